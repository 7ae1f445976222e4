"""What `torch.export.save` writes: a zip of JSON documents and raw weights, `.pt2`.

Much of it is more than data: weights and constants may be pickles, sizes and guards are texts that torch
evaluates, and compiled packages are libraries that loading starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from modelglass.errors import FileError
from modelglass.formats.archives import zip as zips
from modelglass.formats.archives.zip_members import unpacked
from modelglass.formats.documents.strict_json import document, loads
from modelglass.formats.files_beside import is_safe_relative
from modelglass.formats.reading import Reading
from modelglass.formats.scan import native
from modelglass.formats.source import Source
from modelglass.formats.tensors.location import Place
from modelglass.formats.torch import archive as torch_archive
from modelglass.formats.torch.expressions import strange_part
from modelglass.formats.torch.memory import extent
from modelglass.formats.torch.tensors import Found
from modelglass.report import GlobalUse, Json, Level, Tensor, TensorKind
from modelglass.report.dtypes import nbytes_of

_PROGRAM = "serialized_exported_program.json"  # before torch 2.8
_COMPILED = (*native.SUFFIXES, *native.SOURCES)
_CONFIGS = ("_weights_config.json", "_constants_config.json")
_SAVED = ("serialized_state_dict.pt", "serialized_constants.pt")  # before torch 2.8: weights, constants
_OBJECTS = ("custom_obj_", "opaque_obj_")  # of constants, which are pickles whatever is said of them
_ARTIFACTS = (".pt", "serialized_state_dict.json", "serialized_constants.json")  # what torch.load is given
_MOST_SHOWN = 20  # expressions of one kind that are reported

# The element types of torch's export schema, by number.
_DTYPES = {
    1: "uint8",
    2: "int8",
    3: "int16",
    4: "int32",
    5: "int64",
    6: "float16",
    7: "float32",
    8: "float64",
    9: "complex32",
    10: "complex64",
    11: "complex128",
    12: "bool",
    13: "bfloat16",
    28: "uint16",
    29: "float8_e4m3fn",
    30: "float8_e5m2",
    31: "float8_e4m3fnuz",
    32: "float8_e5m2fnuz",
    33: "float8_e8m0fnu",
    34: "uint32",
    35: "uint64",
}


def read(source: Source, archive: zips.Archive, reading: Reading) -> None:
    """Fill the reading from the documents that describe the weights; every member is searched for code."""
    reading.format = "torch-export"
    described = _Described()
    stopped: FileError | None = None
    for entry in archive.entries:
        name = entry.name.lower()
        try:
            if name.endswith(_CONFIGS):
                _weights(archive, entry, reading, described, buffers="constants" in name)
            elif name.rpartition("/")[2] in _SAVED:
                _saved(archive, entry, reading, buffers="constants" in name)
            elif _is_program(name):
                _program(archive.member(entry, reading.limits), reading)
        except FileError as error:
            stopped = stopped or error  # what is wrong with one must not hide another
    if reading.thorough:
        _look_into(archive, described, reading)
    if stopped is not None:
        raise stopped


def _is_program(name: str) -> bool:
    """Whether torch takes a member for a program: all that is in that folder, whatever it is called."""
    *folders, last = name.split("/")
    return folders[-1:] == ["models"] or last == _PROGRAM


@dataclass(slots=True)
class _Described:
    """The members that hold values: as they are, or in a pickle."""

    raw: set[str] = field(default_factory=set)
    pickled: set[str] = field(default_factory=set)


def _look_into(archive: zips.Archive, described: _Described, reading: Reading) -> None:
    """Search every member; of what is said to be raw values, only what runs code is told."""
    for entry in archive.entries:
        name = zips.folded(entry.name)
        last = name.rpartition("/")[2]
        pickled = name in described.pickled or last.startswith(_OBJECTS) or last.endswith(_ARTIFACTS)
        raw = not pickled and (name in described.raw or "/aotinductor/" in name)
        try:
            member = unpacked(archive, entry, reading)
            if last.endswith(_COMPILED) and native.native_code(member.up_to(0, 1024)) is None:
                level: Level = "notice" if last.endswith((".py", ".sh")) else "high"
                text = f"carries code that is compiled or started when it is loaded: {entry.name[:200]!r}"
                reading.found(
                    archive.source, "code.native", level, text, member=entry.name, offset=entry.offset
                )
            reading.look_into(member, pickled=pickled and bool(member.nbytes), raw=raw, native="high")
        except FileError as error:
            reading.stopped(error)


def _program(member: Source, reading: Reading) -> None:
    """What a serialized program says about itself, and the texts in it that torch evaluates."""
    program = document(member, reading.limits, lenient=True)
    reading.metadata |= _model_facts(program)
    evaluated = _Evaluated(member, reading)
    waiting: list[Json] = [program]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            evaluated.look_at(value)
            waiting += value.values()
    evaluated.close()


class _Evaluated:
    """Judges the texts that torch evaluates, each kind of them once."""

    def __init__(self, member: Source, reading: Reading) -> None:
        self._member, self._reading = member, reading
        self._seen: set[str] = set()
        self._strange = 0

    def look_at(self, value: Mapping[str, Json]) -> None:
        self._judge(value.get("expr_str"), "is evaluated when it is loaded")
        guards = value.get("guards_code")
        for guard in guards if isinstance(guards, list) else [guards]:
            self._judge(guard, "is evaluated when it is called")
        ranges = value.get("range_constraints")
        for name in ranges if isinstance(ranges, dict) else ():
            self._judge(name, "is evaluated when it is loaded")
        for key in ("in_spec", "out_spec"):
            self._imports(value.get(key))

    def _judge(self, text: Json, when: str) -> None:
        if text is None or (isinstance(text, str) and text in self._seen):
            return
        if isinstance(text, str):
            self._seen.add(text)
        odd = strange_part(text) if isinstance(text, str) else repr(text)[:100]
        if odd is None:
            return
        self._strange += 1
        if self._strange <= _MOST_SHOWN:
            shown = text[:200] if isinstance(text, str) else odd
            sentence = f"a text that {when} is not an expression over sizes, from {odd!r} on: {shown!r}"
            self._reading.found(self._member, "code.expression", "high", sentence)

    def close(self) -> None:
        if self._strange > _MOST_SHOWN:
            text = f"{self._strange - _MOST_SHOWN:,} more texts that are evaluated"
            self._reading.found(self._member, "code.expression", "high", text)

    def _imports(self, spec: Json) -> None:
        """A finding for each module that reading the structure of inputs and outputs imports."""
        waiting: list[Json] = [spec]
        while waiting:
            value = waiting.pop()
            if isinstance(value, str) and (
                '"__enum__"' in value or "default_factory" in value or value == spec
            ):
                with suppress(FileError):
                    waiting.append(loads(value.encode(errors="replace"), self._member, self._reading.limits))
            elif isinstance(value, list):
                waiting += value
            elif isinstance(value, dict):
                named = value.get("default_factory_module") or (
                    value.get("fqn") if "__enum__" in value else None
                )
                if isinstance(named, str):
                    self._imported(named.partition(":")[0], value)
                waiting += value.values()

    def _imported(self, module: str, value: Mapping[str, Json]) -> None:
        if module in ("builtins", "collections") or module in self._seen:
            return
        self._seen.add(module)
        text = f"names the module {module[:200]!r} for its inputs: loading imports it and runs its code"
        self._reading.found(self._member, "code.import", "notice", text, name=module[:200])
        name = value.get("default_factory_name") or value.get("name")
        self._reading.globals.append(
            GlobalUse(
                name=f"{module}.{name}",
                kind="class",
                file=self._member.file,
                member=self._member.member,
                offset=0,
                package=module.partition(".")[0],
            )
        )


def _model_facts(model: Json) -> dict[str, Json]:
    if not isinstance(model, dict):
        return {}
    return {key: model[key] for key in ("opset_version", "schema_version", "torch_version") if key in model}


def _saved(archive: zips.Archive, entry: zips.Entry, reading: Reading, *, buffers: bool) -> None:
    """Add the tensors of a member that is itself an archive, as `torch.save` writes them."""
    inner = reading.inner(deeper=True)
    inner.thorough = False  # every member is searched later on
    member = unpacked(archive, entry, reading)
    saved = zips.read(member, inner)
    if not torch_archive.tops(saved):
        raise member.corrupt("it is not an archive as torch.save writes it", code="export.config", offset=0)
    try:
        torch_archive.read(member, saved, inner)
    finally:
        reading.opened += inner.opened
    named = {tensor.name: f"{inner.prefix}{tensor.name}" for tensor in inner.tensors}
    for tensor in inner.tensors:
        kind: TensorKind = "buffer" if buffers else tensor.kind
        storage = f"{entry.name}:{tensor.storage}"
        reading.tensors.append(replace(tensor, name=named[tensor.name], kind=kind, storage=storage))
    reading.places = {
        **reading.places,
        **{named.get(name, name): each for name, each in inner.places.items()},
    }


def _weights(
    archive: zips.Archive, entry: zips.Entry, reading: Reading, members: _Described, *, buffers: bool
) -> None:
    """Add the tensors that a document describes, and the members that hold them."""
    member = archive.member(entry, reading.limits)
    described = document(member, reading.limits)
    config = described.get("config") if isinstance(described, dict) else None
    if not isinstance(config, dict):
        raise member.corrupt("no weights are described", code="export.config", offset=0)
    folder = entry.name.rpartition("/")[0]
    for each in config.values():  # all of them first: one that cannot be read must not hide another
        path = each.get("path_name") if isinstance(each, dict) else None
        if isinstance(path, str) and isinstance(each, dict):
            held = members.pickled if each.get("use_pickle") else members.raw
            held.add(zips.folded(f"{folder}/{path}"))
    places = dict(reading.places)
    names = {tensor.name for tensor in reading.tensors}
    for name, each in config.items():
        if isinstance(each, dict) and each.get("tensor_meta") is None and _is_object(each):
            continue  # an object in a pickle
        try:
            found, path, is_parameter = _describe(each)
            pickled = bool(each.get("use_pickle"))
            record = None if pickled else _record(archive, f"{folder}/{path}", found)
        except (KeyError, TypeError, ValueError, AttributeError) as cause:
            text = f"the description of {name[:200]!r} cannot be read: {cause}"
            raise member.corrupt(text, code="export.config", offset=0) from cause
        if name in names:
            raise member.corrupt(f"{name[:200]!r} is described twice", code="export.config", offset=0)
        names.add(name)
        kind: TensorKind = "parameter" if is_parameter and not buffers else "buffer"
        storage = f"{folder}/{path}@{found.first}"
        reading.tensors.append(
            Tensor(name=name, kind=kind, shape=found.shape, dtype=found.dtype, storage=storage)
        )
        if record is not None:
            places[name] = _place(archive.source, record, found)
    reading.places = places


def _is_object(each: Mapping[str, Any]) -> bool:
    path = each.get("path_name")
    return bool(each.get("use_pickle")) or (isinstance(path, str) and path.startswith(_OBJECTS))


def _place(source: Source, record: zips.Entry, found: Found) -> Place:
    return Place(
        source=source,
        offset=record.data_offset,
        nbytes=record.nbytes,
        dtype=found.dtype,
        shape=found.shape,
        strides=found.strides,
        first=found.first,
    )


def _describe(each: Any) -> tuple[Found, str, bool]:
    meta = each["tensor_meta"]
    dtype = _DTYPES.get(meta["dtype"])
    if dtype is None:
        raise ValueError(f"element type {meta['dtype']!r} is not known")
    path = each["path_name"]
    if not isinstance(path, str) or is_safe_relative(path) is not None or "/" in path:
        raise ValueError(f"the member {path!r} may not be looked up")
    found = Found(
        storage=None,
        shape=tuple(_integer(size) for size in meta["sizes"]),
        dtype=dtype,
        strides=tuple(_integer(step) for step in meta["strides"]),
        first=_integer(meta["storage_offset"]),
    )
    if len(found.strides or ()) != len(found.shape):
        raise ValueError("strides do not fit the shape")
    return found, path, each["is_param"] is True


def _integer(value: Mapping[str, Any]) -> int:
    number = value["as_int"]
    if type(number) is not int or number < 0:
        raise ValueError(f"{number!r} is not a size")
    return number


def _record(archive: zips.Archive, name: str, found: Found) -> zips.Entry | None:
    """The member with the values, or None when it is packed."""
    entry = archive.find_in_any_case(name)
    if entry is None:
        raise ValueError(f"the member {name!r} is missing")
    needed = nbytes_of(found.dtype, extent(found)) or 0
    if needed > entry.nbytes:
        raise ValueError(f"it needs {needed:,} bytes, and its member has {entry.nbytes:,}")
    return entry if entry.method == zips.STORED else None
