"""The tensors of an ONNX file: what is said about them is read, their values stay where they are."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from math import prod

from modelglass.formats.files_beside import open_sibling
from modelglass.formats.onnx.messages import ENTRY, SPARSE, TENSOR, dtype_of
from modelglass.formats.protobuf import FIXED32, FIXED64, LENGTH, VARINT, Span, Wire
from modelglass.formats.reading import Reading
from modelglass.formats.source import OpenFile
from modelglass.formats.tensors.location import Place
from modelglass.report import Packing, Shape, Tensor, TensorKind

_EXTERNAL = 1  # the data_location of values in another file
_EXTERNAL_KEYS = ("location", "offset", "length", "checksum")
_MOST_ENTRIES = 100  # of external data, for one tensor
_IN_MEMORY = "_ORT_MEM_ADDR_"  # a location by which one runtime means an address, not a file

# How one element of a typed field is written when it is not packed.
_ELEMENTS = {
    "float_data": FIXED32,
    "double_data": FIXED64,
    "int32_data": VARINT,
    "int64_data": VARINT,
    "uint64_data": VARINT,
    "string_data": LENGTH,
}
_WIDTHS = {"float_data": 4, "double_data": 8}


@dataclass(slots=True, kw_only=True)
class Stored:
    """A tensor of the file. `scope` and `label` make the name that it gets in the end."""

    scope: str  # "" for the main graph
    label: str
    kind: TensorKind
    dtype: str
    shape: Shape
    storage: str
    place: Place | None
    packing: Packing | None = None
    name: str = ""

    def tensor(self) -> Tensor:
        return Tensor(
            name=self.name,
            kind=self.kind,
            shape=self.shape,
            dtype=self.dtype,
            storage=self.storage,
            packing=self.packing,
        )


class Tensors:
    """Collects the tensors of one file, in `found`."""

    def __init__(self, wire: Wire, reading: Reading) -> None:
        self._wire, self._source, self._reading = wire, wire.source, reading
        self.found: list[Stored] = []
        self._files: dict[str, OpenFile | None] = {}
        self._parts: dict[str, list[tuple[int, int, str]]] = {}  # of other files: start, stop, tensor

    def dense(self, span: Span, scope: str, label: str | None, kind: TensorKind) -> Stored:
        """Read a TensorProto. Without a label it is called by its own name, which it then must have."""
        parts = self._parts_of(span)
        if label is None:
            label = parts.name
            if not label:
                raise self._source.corrupt(
                    "an initializer has no name", code="onnx.no-name", offset=span.start
                )
        shown = f"the tensor {(scope + label)[:200]!r}"
        dtype, bits, home = dtype_of(self._wire, parts.dtype, shown, span.start)
        shape = self._shape(parts.dims, shown, span)
        numel = prod(shape)
        nbytes = (numel * bits + 7) // 8
        storage = str(span.start)
        self._check_fields(parts, numel, shown, span)
        if parts.location == _EXTERNAL:
            entries = self._external_entries(parts.entries, shown)
            at, storage = self._external(entries, nbytes, dtype, shown, span)
            place = (
                None
                if at is None
                else Place(source=at[0], offset=at[1], nbytes=nbytes, dtype=dtype, shape=shape)
            )
        else:
            start = self._inline(parts, dtype, numel, bits, home, shown, span)
            place = (
                None
                if start is None
                else Place(source=self._source, offset=start, nbytes=nbytes, dtype=dtype, shape=shape)
            )
        stored = Stored(
            scope=scope, label=label, kind=kind, dtype=dtype, shape=shape, storage=storage, place=place
        )
        self._keep(stored, span)
        return stored

    def sparse(self, span: Span, scope: str, label: str | None, kind: TensorKind) -> Stored:
        """Read a SparseTensorProto: its values, and beside them its indices as a buffer."""
        fields = self._wire.message(span, SPARSE, "a sparse tensor")
        if "values" not in fields or "indices" not in fields:
            raise self._source.corrupt(
                "a sparse tensor lacks its values or its indices", code="onnx.sparse", offset=span.start
            )
        values = self.dense(fields["values"], scope, label, kind)
        shown = f"the sparse tensor {(scope + values.label)[:200]!r}"
        indices = self.dense(fields["indices"], f"{scope}{values.label}/", "indices", "buffer")
        dims = self._shape(fields.get("dims", []), shown, span)
        count = values.shape[0] if len(values.shape) == 1 else -1
        if (
            not dims
            or indices.dtype != "int64"
            or indices.shape not in ((count,), (count, len(dims)))
            or not 0 <= count <= prod(dims)
        ):
            raise self._source.corrupt(
                f"{shown} of shape {_text(dims)} cannot have values of shape {_text(values.shape)} with "
                f"indices of type {indices.dtype} and shape {_text(indices.shape)}",
                code="onnx.sparse",
                offset=span.start,
            )
        values.packing = Packing(
            scheme="sparse",
            logical_shape=dims,
            nbytes=values.tensor().nbytes or 0,
            side_nbytes=8 * prod(indices.shape),
        )
        return values

    def name_all(self) -> None:
        """Give every tensor a name of its own: first those of the main graph, which keep theirs."""
        taken: set[str] = set()
        again: dict[str, int] = {}
        for stored in sorted(self.found, key=lambda stored: stored.scope != ""):
            base = name = stored.scope + stored.label
            while name in taken:
                again[base] = again.get(base, 1) + 1
                name = f"{base}#{again[base]}"
            taken.add(name)
            stored.name = name

    def check_overlaps(self) -> None:
        """Tensors that share a part of another file, but not all of it, are odd."""
        for location, parts in self._parts.items():
            parts.sort()
            for (start, stop, one), (after, end, other) in pairwise(parts):
                if after < stop and (start, stop) != (after, end):
                    self._reading.found(
                        self._source,
                        "onnx.overlap",
                        "notice",
                        f"{one} and {other} overlap in {location[:200]!r}, from byte {after:,}",
                        path=location[:1000],
                    )
                    break

    def _keep(self, stored: Stored, span: Span) -> None:
        if len(self.found) >= self._reading.limits.tensors:
            raise self._source.over("tensors", self._reading.limits.tensors, offset=span.start)
        self.found.append(stored)

    def _parts_of(self, span: Span) -> _Parts:
        parts = _Parts()
        for name, value, at in self._wire.entries(span, TENSOR, "a tensor"):
            if name == "dims":
                if len(parts.dims) == self._reading.limits.dims:
                    raise self._source.over("dims", self._reading.limits.dims, offset=at)
                parts.dims.append(value)
            elif name in _ELEMENTS:
                self._add(parts, name, value)
            elif name == "external_data":
                if len(parts.entries) == _MOST_ENTRIES:
                    raise self._source.corrupt(
                        f"a tensor has more than {_MOST_ENTRIES} entries of external_data",
                        code="onnx.external-key",
                        offset=at,
                    )
                parts.entries.append(value)
            elif name == "raw_data":
                parts.raw = value
            elif name == "data_type":
                parts.dtype = value
            elif name == "name":
                parts.name = value
            elif name == "data_location":
                parts.location = value
            else:
                raise self._source.corrupt(
                    "a tensor is cut into segments, which no reader supports", code="onnx.segment", offset=at
                )
        return parts

    def _add(self, parts: _Parts, name: str, span: Span) -> None:
        """Count the elements of a typed field; packed and single ones may be mixed."""
        count, _ = parts.typed.get(name, (0, None))
        if span.wire == _ELEMENTS[name]:
            parts.typed[name] = count + 1, None
            return
        if span.wire != LENGTH:
            raise self._source.corrupt(
                f"a tensor has {name} with the wire type {span.wire}, which does not belong to it",
                code="protobuf.wire-type",
                offset=span.start,
            )
        length, width = span.stop - span.start, _WIDTHS.get(name)
        if width is None:
            more = self._wire.count(span)
        elif length % width:
            raise self._source.corrupt(
                f"the {name} of a tensor take {length:,} bytes, not a multiple of {width}",
                code="protobuf.packed",
                offset=span.start,
            )
        else:
            more = length // width
        parts.typed[name] = count + more, span if count == 0 else None

    def _shape(self, dims: list[int], shown: str, span: Span) -> Shape:
        if len(dims) > self._reading.limits.dims:
            raise self._source.over("dims", self._reading.limits.dims, offset=span.start)
        if min(dims, default=0) < 0 or prod(dim for dim in dims if dim) >= 1 << 63:
            raise self._source.corrupt(
                f"{shown} has the shape {_text(dims)}, with a negative size or more than 2**63 elements",
                code="onnx.shape",
                offset=span.start,
            )
        return tuple(dims)

    def _check_fields(self, parts: _Parts, numel: int, shown: str, span: Span) -> None:
        """Values are in exactly one place; a tensor without elements has none."""
        if parts.location not in (0, _EXTERNAL):
            raise self._source.corrupt(
                f"{shown} has the data_location {parts.location:,}, not 0 or 1",
                code="onnx.data-location",
                offset=span.start,
            )
        present = [name for name, (count, _) in parts.typed.items() if count]
        if parts.raw is not None and parts.raw.stop > parts.raw.start:
            present.append("raw_data")
        if parts.entries or parts.location == _EXTERNAL:
            if parts.location == _EXTERNAL and parts.entries and not present:
                return
            present.append("external_data" if parts.entries else "data_location")
            wanted = "values in another file, and only there"
        elif len(present) == (1 if numel else 0):
            return
        else:
            wanted = "exactly one" if numel else "none, as it has no elements"
        raise self._source.corrupt(
            f"{shown} has these fields with values: {', '.join(present) or 'none'}; it must have {wanted}",
            code="onnx.data-fields",
            offset=span.start,
        )

    def _inline(
        self, parts: _Parts, dtype: str, numel: int, bits: int, home: str, shown: str, span: Span
    ) -> int | None:
        """Check the size of values in this file; where they start, if they can be read from there."""
        if numel == 0:
            return span.start if bits else None
        typed = next(((name, each) for name, each in parts.typed.items() if each[0]), None)
        if typed is None and parts.raw is not None and bits:
            nbytes, stored = (numel * bits + 7) // 8, parts.raw.stop - parts.raw.start
            if nbytes == stored:
                return parts.raw.start
            raise self._source.corrupt(
                f"{shown} of type {dtype} has {numel:,} elements, which take {nbytes:,} bytes, "
                f"but its raw_data has {stored:,}",
                code="onnx.size",
                offset=parts.raw.start,
            )
        name, (count, packed) = typed if typed is not None else ("raw_data", (0, None))
        if name != home:
            raise self._source.corrupt(
                f"{shown} of type {dtype} has its values in {name}; they belong in {home}",
                code="onnx.data-fields",
                offset=span.start,
            )
        expected = _entries(dtype, numel, bits)
        if count != expected:
            raise self._source.corrupt(
                f"{shown} of type {dtype} has {numel:,} elements, which are {expected:,} entries of {name}, "
                f"but there are {count:,}",
                code="onnx.size",
                offset=span.start,
            )
        return packed.start if packed is not None and name in _WIDTHS else None

    def _external_entries(self, spans: list[Span], shown: str) -> dict[str, str]:
        entries: dict[str, str] = {}
        told = False
        for each in spans:
            fields = self._wire.message(each, ENTRY, "an entry of external_data")
            key = fields.get("key", "")
            if key in _EXTERNAL_KEYS and key not in entries:
                entries[key] = fields.get("value", "")
            elif not told:
                told = True
                problem = "twice" if key in entries else "which is not one of " + ", ".join(_EXTERNAL_KEYS)
                self._bad("onnx.external-key", f"{shown} has the external key {key[:200]!r}, {problem}", each)
        return entries

    def _external(
        self, entries: dict[str, str], nbytes: int, dtype: str, shown: str, span: Span
    ) -> tuple[tuple[OpenFile, int] | None, str]:
        """Where in which file the values are, None when they cannot be read; and what names that memory."""
        location = entries.get("location", "")
        tidy = "/".join(part for part in location.split("/") if part not in ("", "."))
        offset = self._number(entries, "offset", shown, span)
        length = self._number(entries, "length", shown, span)
        storage = str(span.start) if offset is None else f"{tidy}@{offset}+{nbytes}"
        file = self._file(location, shown, span)
        if offset is None or length is None:
            return None, storage
        problem = None
        if dtype == "string":
            problem = "is text, which cannot be kept in another file"
        elif "length" in entries and length != nbytes:
            problem = f"takes {nbytes:,} bytes, but the length of its external data is {length:,}"
        elif file is not None and offset + nbytes > file.nbytes:
            problem = (
                f"takes {nbytes:,} bytes from byte {offset:,} of {location[:200]!r}, "
                f"which has {file.nbytes:,} bytes"
            )
        if problem is not None:
            self._bad("onnx.external-size", f"{shown} {problem}", span)
            return None, str(span.start)
        if nbytes:
            self._parts.setdefault(tidy, []).append((offset, offset + nbytes, shown))
        return None if file is None else (file, offset), storage

    def _number(self, entries: dict[str, str], key: str, shown: str, span: Span) -> int | None:
        text = entries.get(key, "0")
        if text.isascii() and text.isdigit() and len(text) <= 19:
            return int(text)
        self._bad(
            "onnx.external-number",
            f"{shown} has the external {key} {text[:200]!r}, which is not a plain number",
            span,
        )
        return None

    def _file(self, location: str, shown: str, span: Span) -> OpenFile | None:
        """The file of that name beside the model; each name is looked for, and complained about, once."""
        if location in self._files:
            return self._files[location]
        self._files[location] = None
        if _IN_MEMORY in location:
            self._reading.found(
                self._source,
                "onnx.memory-address",
                "high",
                f"{shown} asks the runtime to read its values from an address in memory",
                offset=span.start,
            )
        elif not isinstance(self._source, OpenFile):
            self._reading.found(
                self._source,
                "onnx.external-unread",
                "notice",
                f"{shown} has its values in {location[:200]!r}, which is not opened from an archive",
                offset=span.start,
            )
        else:
            self._files[location] = open_sibling(self._source, location, self._reading)
        return self._files[location]

    def _bad(self, code: str, text: str, span: Span) -> None:
        self._reading.found(self._source, code, "invalid", text, offset=span.start)


@dataclass(slots=True)
class _Parts:
    """A TensorProto. `typed` has the entries of each field, and where they are if in one packed run."""

    name: str = ""
    dtype: int = 0
    dims: list[int] = field(default_factory=list)
    raw: Span | None = None
    typed: dict[str, tuple[int, Span | None]] = field(default_factory=dict)
    entries: list[Span] = field(default_factory=list)
    location: int = 0


def _entries(dtype: str, numel: int, bits: int) -> int:
    """How many entries of a typed field that many elements are."""
    if dtype.startswith("complex"):
        return 2 * numel
    return (numel * bits + 7) // 8 if bits in (2, 4) else numel


def _text(shape: list[int] | Shape) -> str:
    return "x".join(map(str, shape)) or "scalar"
