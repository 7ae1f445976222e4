"""Safetensors: an 8-byte length, a JSON header of that length, then raw values.

Only the header is read, a window at a time, so neither the size of the file nor the number of its tensors
decides how much memory its JSON takes. Entries in the form that common writers give them are matched by one
pattern; everything else goes through the strict JSON parser, with the same result.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, NoReturn

from modelglass.errors import CorruptFileError
from modelglass.formats.limits import Limits
from modelglass.formats.reading import Reading
from modelglass.formats.source import Source
from modelglass.report import Tensor
from modelglass.report.dtypes import BITS

if TYPE_CHECKING:
    from modelglass.formats.tensors.location import Place
    from modelglass.report import Json, Shape

HEADER_NBYTES = 100_000_000  # the reference reader refuses longer headers

DTYPES = {
    "BOOL": "bool",
    "F4": "float4_e2m1fn",
    "F6_E2M3": "float6_e2m3fn",
    "F6_E3M2": "float6_e3m2fn",
    "U8": "uint8",
    "I8": "int8",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "I16": "int16",
    "U16": "uint16",
    "F16": "float16",
    "BF16": "bfloat16",
    "I32": "int32",
    "U32": "uint32",
    "F32": "float32",
    "C64": "complex64",
    "F64": "float64",
    "I64": "int64",
    "U64": "uint64",
}

_LENGTH = 8
_WINDOW = 1 << 20
_BATCH = 1 << 18  # bytes of entries that the JSON parser gets at once
_LOOK = 1 << 16  # bytes of a strange entry that are looked at closely
_METADATA = "__metadata__"
_FIELDS = {"dtype", "shape", "data_offsets"}
_SHAPES = 4096  # shapes that are remembered; a model has few different ones

_ENTRY = re.compile(
    rb'"([^"\\\x00-\x1f]*+)": ?\{"dtype": ?"([A-Z0-9_]{1,16})", ?"shape": ?\[([0-9, ]{0,1400}+)\], ?'
    rb'"data_offsets": ?\[(0|[1-9][0-9]{0,19}+), ?(0|[1-9][0-9]{0,19}+)\]\}([,}]) ?'
)
_NUMBERS = re.compile(rb"(?:(?:0|[1-9][0-9]{0,19}+)(?:, ?(?:0|[1-9][0-9]{0,19}+))*+)?+")
# An entry that is one flat object, in whatever spelling; to tell where it ends.
_FLAT = re.compile(
    rb'\s*+"[^"\\]*+(?:\\.[^"\\]*+)*+"\s*+:\s*+'
    rb'\{(?:[^"{}\[\]]++|"[^"\\]*+(?:\\.[^"\\]*+)*+"|\[[^"{}\[\]]*+\])*+\}\s*+([,}])',
    re.DOTALL,
)
_CLOSE = re.compile(rb"\s*+\}")
# The last quote is captured when it is there: without it, the string goes on beyond the window.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+("?+)|[\[\]{},]', re.DOTALL)
_DTYPES_IN_BYTES = {name.encode(): (dtype, BITS[dtype]) for name, dtype in DTYPES.items()}


def looks_like(head: bytes, nbytes: int) -> bool:
    """Whether a file of `nbytes` bytes that starts with `head` (16 bytes do) may be a safetensors file."""
    length = int.from_bytes(head[:_LENGTH], "little")
    return head[_LENGTH : _LENGTH + 1] == b"{" and 2 <= length <= nbytes - _LENGTH


def read(source: Source, reading: Reading) -> None:
    """Fill `reading` with the tensors and the metadata that the header lists."""
    reading.format = "safetensors"
    length = _header_nbytes(source, reading.limits)
    header = _Header(source, reading, length)
    header.read()
    header.check_tiling()
    tensors = reading.tensors[header.first :]
    reading.ordered = not _is_sorted(tensors)
    reading.places = Places(source, _LENGTH + length, tensors, header.begins, header.ends)


def _is_sorted(tensors: list[Tensor]) -> bool:
    """Whether the writer sorted the tensors: by name, or as the reference library by type and name."""
    return all(one.name < next_.name or one.dtype != next_.dtype for one, next_ in pairwise(tensors))


class Places(Mapping[str, "Place"]):
    """Where the values of each tensor are; a `Place` is made when it is asked for."""

    def __init__(
        self, source: Source, start: int, tensors: list[Tensor], begins: array[int], ends: array[int]
    ) -> None:
        self._source, self._start, self._tensors = source, start, tensors
        self._begins, self._ends = begins, ends
        self._index: dict[str, int] = {}

    def __getitem__(self, name: str) -> Place:
        if not self._index:
            self._index = {tensor.name: index for index, tensor in enumerate(self._tensors)}
        index = self._index[name]
        tensor, begin = self._tensors[index], self._begins[index]
        from modelglass.formats.tensors.location import Place  # nobody who lists tensors asks for one

        return Place(
            source=self._source,
            offset=self._start + begin,
            nbytes=self._ends[index] - begin,
            dtype=tensor.dtype,
            shape=tensor.shape or (),
        )

    def __iter__(self) -> Iterator[str]:
        return (tensor.name for tensor in self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


def _header_nbytes(source: Source, limits: Limits) -> int:
    if source.nbytes < _LENGTH + 2:
        raise source.corrupt(
            f"a safetensors file has at least {_LENGTH + 2} bytes, this one {source.nbytes:,}",
            code="truncated",
            offset=0,
        )
    length = int.from_bytes(source.read(0, _LENGTH, "the header's length"), "little")
    if not 2 <= length <= source.nbytes - _LENGTH:
        raise source.corrupt(
            f"the header's length is given as {length:,} bytes, but "
            f"{source.nbytes - _LENGTH:,} bytes follow, and an empty header has 2",
            code="safetensors.header-length",
            offset=0,
        )
    if length > limits.header_nbytes:
        if length <= HEADER_NBYTES:
            raise source.over("header_nbytes", limits.header_nbytes, offset=0)
        raise source.corrupt(
            f"the header has {length:,} bytes; the format allows {HEADER_NBYTES:,}",
            code="safetensors.header-length",
            offset=0,
            hint=f"if you trust the file, raise the limit: --limit header_nbytes={length}",
        )
    return length


class _Header:
    """The header while it is read: the bytes at hand, and what was found in those before."""

    def __init__(self, source: Source, reading: Reading, length: int) -> None:
        self.source, self.reading = source, reading
        self.tensors, self.first = reading.tensors, len(reading.tensors)
        self.begins, self.ends = array("Q"), array("Q")
        self.data_nbytes = source.nbytes - _LENGTH - length
        self.in_order = True  # each tensor begins where the one before it ends
        self.names = {_METADATA}  # a tensor may not have this name
        self.has_metadata = False
        self.shapes: dict[bytes, tuple[Shape, int]] = {}
        self.end = _LENGTH + length
        self.piece, self.piece_at = b"", _LENGTH  # entries that were parsed as JSON, and their position
        self.buffer, self.at = b"", _LENGTH  # the bytes at hand, and the position of the first of them

    def read(self) -> None:
        """All entries, then the padding."""
        self._more()
        if self.buffer[:1] != b"{":
            raise self.source.corrupt(
                f"the header must start with '{{', not with {self.buffer[:8]!r}",
                code="safetensors.header-start",
                offset=_LENGTH,
            )
        position, closed = 1, False
        while not closed:
            position, closed = self._match(position)
            if not closed:
                if len(self.buffer) - position < _BATCH and self._missing():
                    position = self._more(position)
                else:
                    position, closed = self._parse(position)
        self.names = set()
        self._padding(position)

    def check_tiling(self) -> None:
        """The tensors cover the data exactly: no byte is left out, none belongs to two."""
        expected = 0
        if not self.in_order:
            for index in sorted(range(len(self.begins)), key=self._rank):
                if self.begins[index] != expected:
                    self._refuse_tiling(index, expected)
                expected = self.ends[index]
        elif self.ends:
            expected = self.ends[-1]
        if expected != self.data_nbytes:
            raise self.source.corrupt(
                f"after the {expected:,} bytes of the tensors, {self.data_nbytes - expected:,} more follow",
                code="safetensors.trailing",
                offset=self.end + expected,
            )

    def _rank(self, index: int) -> int:
        """Orders tensors by where they begin; an empty one comes before what begins at the same byte."""
        begin = self.begins[index]
        return (begin << 1) | (self.ends[index] > begin)

    def _match(self, position: int) -> tuple[int, bool]:
        """Take entries that have the usual form; where they end, and whether the header ends there, too."""
        buffer, at, names, shapes = self.buffer, self.at, self.names, self.shapes
        tensors = self.tensors
        begins, ends, data_nbytes = self.begins, self.ends, self.data_nbytes
        expected = ends[-1] if ends else 0
        most = self.reading.limits.tensors - len(begins)
        for match in _ENTRY.finditer(buffer, position):
            if match.start() != position:
                break
            name_bytes, dtype_bytes, shape_bytes, begin_bytes, end_bytes, closing = match.groups()
            known = _DTYPES_IN_BYTES.get(dtype_bytes)
            shape_of = shapes.get(shape_bytes) or self._shape(shape_bytes)
            if known is None or shape_of is None:
                break
            try:
                name = name_bytes.decode()
            except UnicodeDecodeError:
                break
            (dtype, bits), (shape, numel) = known, shape_of
            begin, end = int(begin_bytes), int(end_bytes)
            if name in names or not begin <= end <= data_nbytes or numel * bits != (end - begin) << 3:
                break
            if most <= 0:
                raise self.source.over("tensors", self.reading.limits.tensors, offset=at + position)
            most -= 1
            names.add(name)
            if begin != expected:
                self.in_order = False
            expected = end
            tensors.append(Tensor(name=name, kind="parameter", shape=shape, dtype=dtype, storage=name))
            begins.append(begin)
            ends.append(end)
            position = match.end()
            if closing == b"}":
                return position, True
        return position, False

    def _shape(self, text: bytes) -> tuple[Shape, int] | None:
        """The shape that the text between the brackets spells, and its elements; None: look closer."""
        if _NUMBERS.fullmatch(text) is None:
            return None
        shape = tuple(int(dim) for dim in text.split(b",")) if text else ()
        if len(shape) > self.reading.limits.dims:
            return None
        if len(self.shapes) >= _SHAPES:
            self.shapes.clear()
        self.shapes[text] = shape, prod(shape)
        return self.shapes[text]

    def _parse(self, position: int) -> tuple[int, bool]:
        """Parse the next entries as JSON; where they end, and whether the header ends there, too."""
        while True:
            cut, closing = self._entries_end(position)
            if cut is not None or not self._missing():
                break
            position = self._more(position)
        if cut is None:
            self._refuse_rest(position)
        at, limits = self.at + position, self.reading.limits
        piece = self.buffer[position:cut]
        if piece.count(b'"') > 4 * limits.tensors:  # metadata of that many texts takes memory as tensors do
            raise self.source.over("tensors", limits.tensors, offset=at)
        as_object = b"{" + piece + (b"]" if closing == b"]" else b"}")
        entries = _strictly_read(
            as_object, self.source, replace(limits, json_nbytes=len(as_object), spent=None), offset=at - 1
        )
        first = not self.begins and not self.has_metadata
        if not entries and not (first and closing == b"}"):
            raise self.source.corrupt("the header's JSON lacks an entry", code="json.syntax", offset=at)
        self.piece, self.piece_at = piece, at
        for name, entry in entries.items():
            self._take(name, entry)
        return cut + 1, closing == b"}"

    def _place(self, name: str) -> int:
        """Where the entry of that name is; when it is spelled with escapes, where its neighbours are."""
        return self.piece_at + max(0, self.piece.find(b'"' + name.encode() + b'"'))

    def _entries_end(self, position: int) -> tuple[int | None, bytes]:
        """The bracket that ends the header, or the last comma between entries of a batch; and which it is."""
        if (close := _CLOSE.match(self.buffer, position)) is not None:
            return close.end() - 1, b"}"
        limit, end = position + _BATCH, position
        while end < limit and (flat := _FLAT.match(self.buffer, end)) is not None:
            end = flat.end()
            if flat[1] == b"}":
                return end - 1, b"}"
        return (end - 1, b",") if end > position else self._entry_end(position)

    def _entry_end(self, position: int) -> tuple[int | None, bytes]:
        """The same for one entry of any form, unless it is long: no valid one comes here."""
        depth, most = 0, self.reading.limits.json_depth
        for match in _TOKEN.finditer(self.buffer, position, position + _LOOK):
            token = match[0][:1]
            if token == b'"':
                if not match[1]:
                    break
            elif token in b"[{":
                depth += 1
                if depth >= most:
                    raise self.source.corrupt(
                        f"its JSON is nested more than {most:,} levels deep (limit json_depth)",
                        code="json.depth",
                        offset=self.at + match.start(),
                    )
            elif depth == 0:
                return match.start(), token
            elif token != b",":
                depth -= 1
        return None, b""

    def _refuse_rest(self, position: int) -> NoReturn:
        """The header ends before the entry does; say why, without parsing all that there may be."""
        at, rest = self.at + position, self.buffer[position : position + _LOOK]
        try:
            _strictly_read(b"{" + rest, self.source, self.reading.limits, offset=at - 1)
        except CorruptFileError:
            if len(self.buffer) - position <= _LOOK:
                raise
        raise self.source.corrupt(
            "the header's JSON goes on with something that is not an entry", code="json.syntax", offset=at
        )

    def _take(self, name: str, entry: Json) -> None:
        """Keep what one parsed entry says, or say what is wrong with it."""
        if name == _METADATA:
            self._metadata(entry)
            return
        if name in self.names:
            self._refuse_duplicate(name, entry)
        if type(entry) is not dict or set(entry) != _FIELDS:
            fields = _short(sorted(entry)) if isinstance(entry, dict) else _short(entry)
            self._refuse(name, "entry", f"must have dtype, shape and data_offsets, not {fields}")
        dtype = DTYPES.get(entry["dtype"]) if isinstance(entry["dtype"], str) else None
        if dtype is None:
            self._refuse(name, "dtype", f"has the unknown dtype {str(entry['dtype'])[:40]!r}")
        shape, (begin, end) = self._sizes(name, entry["shape"]), self._offsets(name, entry)
        if prod(shape) * BITS[dtype] != (end - begin) * 8:
            self._refuse_size(name, dtype, shape, end - begin)
        if len(self.begins) >= self.reading.limits.tensors:
            raise self.source.over("tensors", self.reading.limits.tensors, offset=self._place(name))
        self.names.add(name)
        if begin != (self.ends[-1] if self.ends else 0):
            self.in_order = False
        tensor = Tensor(name=name, kind="parameter", shape=shape, dtype=dtype, storage=name)
        self.tensors.append(tensor)
        self.begins.append(begin)
        self.ends.append(end)

    def _sizes(self, name: str, shape: Json) -> Shape:
        if type(shape) is not list or not all(type(dim) is int and dim >= 0 for dim in shape):
            self._refuse(name, "shape", f"has the shape {_short(shape)}; it must list whole numbers")
        if len(shape) > self.reading.limits.dims:
            most = self.reading.limits.dims
            self._refuse(name, "shape", f"has {len(shape):,} dimensions, more than the limit dims = {most:,}")
        return tuple(shape)

    def _offsets(self, name: str, entry: Json) -> tuple[int, int]:
        offsets = entry["data_offsets"]
        if (
            type(offsets) is not list
            or len(offsets) != 2
            or not all(type(offset) is int and offset >= 0 for offset in offsets)
        ):
            problem = f"has the data_offsets {_short(offsets)}; they must be two whole numbers"
            self._refuse(name, "offsets", problem)
        begin, end = offsets
        if begin > end:
            self._refuse(name, "offsets", f"begins at {begin:,}, after its end at {end:,}")
        if end > self.data_nbytes:
            problem = f"ends at byte {end:,} of the data, which has {self.data_nbytes:,} bytes"
            self._refuse(name, "out-of-range", problem)
        return begin, end

    def _metadata(self, entry: Json) -> None:
        if self.has_metadata:
            self._refuse_duplicate(_METADATA, entry)
        if entry is None:  # how MLX says that there is none; others leave it out
            self.reading.has_buffers, entry = False, {}
        if type(entry) is not dict or not all(type(value) is str for value in entry.values()):
            self._refuse(_METADATA, "metadata", "must map text to text")
        self.has_metadata = True
        if entry.get("format") == "mlx":
            self.reading.has_buffers = False
        most = self.reading.limits.kept_text
        for key, value in entry.items():
            self.reading.metadata[key] = value[:most]
            if len(value) > most:
                self.reading.found(
                    self.source,
                    "text.shortened",
                    "info",
                    f"the metadata {key[:200]!r} has {len(value):,} characters; the first {most:,} are kept",
                    offset=self._place(_METADATA),
                )

    def _padding(self, position: int) -> None:
        """After the entries there are only spaces, or NUL bytes, which some writers leave."""
        nul = None
        while True:
            rest = self.buffer[position:]
            other = rest.lstrip(b" \t\r\n\0")
            if other:
                raise self.source.corrupt(
                    f"the header goes on after its JSON, with {other[:20]!r}",
                    code="json.syntax",
                    offset=self.at + len(self.buffer) - len(other),
                )
            if nul is None and b"\0" in rest:
                nul = self.at + position + rest.index(b"\0")
            if not self._missing():
                break
            position = self._more(len(self.buffer))
        if nul is not None:
            self.reading.found(
                self.source,
                "safetensors.padding",
                "info",
                "the header is padded with NUL bytes, where the format has spaces",
                offset=nul,
            )

    def _missing(self) -> int:
        """Bytes of the header that are not at hand yet."""
        return self.end - self.at - len(self.buffer)

    def _more(self, position: int = 0) -> int:
        """Drop what lies before `position`, and read on; the position of what stays is 0.

        What stays is searched again, so the next window is at least as long: the work stays linear.
        """
        kept = self.buffer[position:]
        self.at += position
        length = min(self.end - self.at - len(kept), max(_WINDOW, len(kept)))
        self.buffer = kept + self.source.read(self.at + len(kept), length, "the header")
        return 0

    def _refuse(self, name: str, code: str, problem: str) -> NoReturn:
        raise self.source.corrupt(
            f"the header's entry {name[:200]!r} {problem}",
            code=f"safetensors.{code}",
            offset=self._place(name),
        )

    def _refuse_duplicate(self, name: str, entry: Json) -> NoReturn:
        before = next((tensor for tensor in self.tensors[self.first :] if tensor.name == name), None)
        first = "text to text" if before is None else f"{before.dtype} {list(before.shape or ())}"
        raise self.source.corrupt(
            f"duplicate key {name[:200]!r}: first {first[:200]}, then {_short(entry)}",
            code="json.duplicate-key",
            offset=self._place(name),
        )

    def _refuse_size(self, name: str, dtype: str, shape: Shape, nbytes: int) -> NoReturn:
        bits = prod(shape) * BITS[dtype]
        takes = f"{bits // 8:,} bytes" if bits % 8 == 0 else f"{bits:,} bits, no whole number of bytes"
        problem = f"has {dtype} elements of shape {_short(list(shape))}: {takes}, but {nbytes:,} are stored"
        self._refuse(name, "size", problem)

    def _refuse_tiling(self, index: int, expected: int) -> NoReturn:
        begin, name = self.begins[index], self.tensors[self.first + index].name
        if begin > expected:
            raise self.source.corrupt(
                f"no tensor holds the {begin - expected:,} bytes of data before {name[:200]!r}",
                code="safetensors.gap",
                offset=self.end + expected,
            )
        raise self.source.corrupt(
            f"the tensor {name[:200]!r} begins inside another one, {expected - begin:,} bytes before its end",
            code="safetensors.overlap",
            offset=self.end + begin,
        )


def _strictly_read(data: bytes, source: Source, limits: Limits, *, offset: int) -> Json:
    """JSON as the general parser reads it, which the usual form of a header never needs."""
    from modelglass.formats.documents.strict_json import loads

    return loads(data, source, limits, offset=offset)


def _short(value: Json) -> str:
    """The value as a message shows it; lists from a file may be long."""
    if isinstance(value, list) and len(value) > 8:
        return f"[{', '.join(_short(item) for item in value[:8])}, ... {len(value):,} items]"
    return repr(value[:100] if isinstance(value, str) else value)[:200]
