"""What `torch.export.save` writes: a zip of JSON documents and raw weights, `.pt2`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from modelglass.errors import FileError
from modelglass.formats import pickles
from modelglass.formats import zip as zips
from modelglass.formats.places import Place
from modelglass.formats.reading import Reading
from modelglass.formats.siblings import is_safe_relative
from modelglass.formats.source import Source
from modelglass.formats.strict_json import document
from modelglass.formats.torch import archive as torch_archive
from modelglass.formats.torch.memory import extent
from modelglass.formats.torch.tensors import Found
from modelglass.report import Json, Tensor, TensorKind
from modelglass.report.dtypes import nbytes_of

_PICKLES = (".pkl", ".pickle")
_NATIVE = (".so", ".dll", ".dylib", ".cpp", ".cu", ".cubin", ".ptx", ".py")

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
    """Fill the reading from the documents that describe the weights; other members are searched for code."""
    reading.format = "torch-export"
    described: set[str] = set()
    for entry in archive.entries:
        if entry.name.endswith(("_weights_config.json", "_constants_config.json")):
            described |= _weights(archive, entry, reading, buffers="constants" in entry.name)
        elif "/models/" in entry.name and entry.name.endswith(".json"):
            reading.metadata |= _model_facts(document(archive.member(entry, reading.limits), reading.limits))
    for entry in archive.entries:
        if entry.name not in described:
            _look_into(archive, entry, reading)


def _look_into(archive: zips.Archive, entry: zips.Entry, reading: Reading) -> None:
    """A member that is no weight may be a torch file, a pickle, or code."""
    if entry.name.endswith(_NATIVE):
        text = f"carries compiled code, which runs when the model does: {entry.name[:200]!r}"
        reading.found(archive.source, "code.native", "notice", text, member=entry.name, offset=entry.offset)
        return
    try:
        head = archive.start(entry, 64, reading.limits)
        if head[:4] == b"PK\x03\x04":
            _nested(archive.member(entry, reading.limits), reading)
        elif entry.name.endswith(_PICKLES) or pickles.looks_like(head):
            pickles.scan_stream(archive.member(entry, reading.limits), reading)
    except FileError as error:
        reading.stopped(error)


def _model_facts(model: Json) -> dict[str, Json]:
    if not isinstance(model, dict):
        return {}
    return {key: model[key] for key in ("opset_version", "schema_version", "torch_version") if key in model}


def _nested(member: Source, reading: Reading) -> None:
    """Sample inputs are a torch file inside, with a pickle of its own."""
    inner = Reading(limits=reading.limits, thorough=reading.thorough)
    archive = zips.read(member, inner)
    if torch_archive.tops(archive):
        torch_archive.read(member, archive, inner)
    reading.absorb(inner)


def _weights(archive: zips.Archive, entry: zips.Entry, reading: Reading, *, buffers: bool) -> set[str]:
    """Add the tensors that a document describes; the members that hold them."""
    member = archive.member(entry, reading.limits)
    described = document(member, reading.limits)
    config = described.get("config") if isinstance(described, dict) else None
    if not isinstance(config, dict):
        raise member.corrupt("no weights are described", code="export.config", offset=0)
    places = dict(reading.places)
    names = {tensor.name for tensor in reading.tensors}
    members: set[str] = set()
    folder = entry.name.rpartition("/")[0]
    for name, each in config.items():
        try:
            found, path, is_parameter = _described(each)
            record = _record(archive, f"{folder}/{path}", found)
        except (KeyError, TypeError, ValueError) as cause:
            text = f"the description of {name[:200]!r} cannot be read: {cause}"
            raise member.corrupt(text, code="export.config", offset=0) from cause
        members.add(f"{folder}/{path}")
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
    return members


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


def _described(each: Any) -> tuple[Found, str, bool]:
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
        raise ValueError(f"{number!r} is no size")
    return number


def _record(archive: zips.Archive, name: str, found: Found) -> zips.Entry | None:
    """The member with the values, or None when it is packed."""
    entry = archive.find(name)
    if entry is None:
        raise ValueError(f"the member {name!r} is missing")
    needed = nbytes_of(found.dtype, extent(found)) or 0
    if needed > entry.nbytes:
        raise ValueError(f"it needs {needed:,} bytes, and its member has {entry.nbytes:,}")
    return entry if entry.method == zips.STORED else None
