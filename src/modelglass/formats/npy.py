"""NumPy's format of one array: a magic, a version, a header that is a Python literal, then the values.

Only the header is read. An array of Python objects has a pickle instead of values, which is scanned.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from modelglass.formats.reading import Reading
from modelglass.formats.source import Source
from modelglass.formats.tensors.location import Place
from modelglass.formats.tensors.strides import column_major
from modelglass.report import Shape, Tensor
from modelglass.report.dtypes import BITS

MAGIC = b"\x93NUMPY"
HEADER_LIMIT = 64 << 10  # bytes; numpy itself reads 10,000 unless told otherwise
_PREFIX_NBYTES = 12  # magic, version, and the longer of the two kinds of length

_LENGTH_NBYTES = {(1, 0): 2, (2, 0): 4, (3, 0): 4}
_DEEPEST = 32  # of brackets in a header; nested structured types need a few
_MOST_DIGITS = 20
_MOST_NUMEL = 2**63 - 1
_MOST_ITEMSIZE = 2**31 - 1  # as in numpy
_OBJECT_NBYTES = 8  # of a pointer, which no file holds

_BFLOAT16 = "<V2"  # as MLX and ml_dtypes have it; what numpy itself calls void is "|V2"
_END_BY_MLX = ", )}"  # of a header: numpy has its comma after the bracket
_NAMES = {"b": "bool", "i": "int", "u": "uint", "f": "float", "c": "complex", "V": "void"}
_TEXT_NAMES = {"S": "bytes", "a": "bytes", "U": "str", "M": "datetime64", "m": "timedelta64", "O": "object"}
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", "'": "'", '"': '"'}
_HEX_ESCAPES = {"x": 2, "u": 4, "U": 8}
_WORDS = {"True": True, "False": False, "None": None}
_CLOSERS = {"(": ")", "[": "]", "{": "}"}
_SPACE = " \t\r\n\f"


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What the header of an array says. `nbytes` is its own length, `data_nbytes` that of the values.

    `data_nbytes` is None for an array of objects: a pickle is as long as it is.
    """

    nbytes: int
    shape: Shape
    dtype: str
    itemsize: int
    fortran: bool
    big_endian: bool
    structured: bool
    has_object: bool

    @property
    def data_nbytes(self) -> int | None:
        return None if self.has_object else prod(self.shape) * self.itemsize


def read(source: Source, reading: Reading) -> None:
    """Read a file of one array."""
    reading.format = "npy"
    head = header(source, reading)
    add(source, reading, "array", head, nbytes=source.nbytes)


def header(source: Source, reading: Reading) -> Header:
    """The header of an array, from the first bytes of a file or member."""
    start = source.up_to(0, _PREFIX_NBYTES)
    nbytes = header_nbytes(source, start)
    text_at = 8 + _LENGTH_NBYTES[start[6], start[7]]
    raw = source.read(text_at, nbytes - text_at, "the npy header")
    encoding = "utf-8" if start[6] >= 3 else "latin-1"
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError as cause:
        raise source.corrupt("its header is not UTF-8", code="npy.header", offset=text_at) from cause
    try:
        said = literal(text)
        shape, fortran = _shape(said, reading.limits.dims), said["fortran_order"]
        kind = _kind(said["descr"])
        if text.rstrip().endswith(_END_BY_MLX):
            reading.has_buffers = False
    except _NotALiteralError as cause:
        at = text_at if cause.at is None else text_at + len(text[: cause.at].encode(encoding))
        raise source.corrupt(f"its header {cause}", code="npy.header", offset=at) from cause
    return Header(nbytes=nbytes, shape=shape, fortran=fortran, **kind)


def header_nbytes(source: Source, start: bytes) -> int:
    """How long the header is, its prefix included; `start` has the first bytes of the file or member."""
    if start[:6] != MAGIC:
        raise source.corrupt("it does not begin as a .npy file does", code="npy.magic", offset=0)
    version = (*start[6:8],)
    length_nbytes = _LENGTH_NBYTES.get(version) if len(version) == 2 else 0  # type: ignore[call-overload]
    if length_nbytes is None:
        shown = ".".join(map(str, version))
        raise source.corrupt(f"its version {shown} is not 1.0, 2.0 or 3.0", code="npy.version", offset=6)
    if not length_nbytes or len(start) < 8 + length_nbytes:
        raise source.corrupt("it ends before its header begins", code="npy.truncated", offset=len(start))
    length = int.from_bytes(start[8 : 8 + length_nbytes], "little")
    if length > HEADER_LIMIT:
        raise source.corrupt(
            f"its header has {length:,} bytes; more than {HEADER_LIMIT:,} are not read",
            code="npy.header",
            offset=8,
        )
    return 8 + length_nbytes + length


def add(
    source: Source, reading: Reading, name: str, head: Header, *, nbytes: int, placed: bool = True
) -> None:
    """Add an array to what was read.

    `nbytes` is the length of the file or member. `source` has all of it when `placed` is true, or else only
    its header, and then the values cannot be read.
    """
    actual, expected = nbytes - head.nbytes, head.data_nbytes
    if expected is not None and actual < expected:
        raise source.corrupt(
            f"its {_times(head.shape)} elements of {head.itemsize} bytes take {expected:,} bytes, but"
            f" {actual:,} are left",
            code="npy.truncated",
            offset=head.nbytes,
        )
    reading.tensors.append(
        Tensor(name=name, kind="parameter", shape=head.shape, dtype=head.dtype, storage=name)
    )
    if expected is None:
        _scan_objects(source, reading, head)
        return
    if actual > expected:
        reading.found(
            source,
            "npy.trailing",
            "invalid",
            f"{actual - expected:,} bytes follow the values of the array",
            offset=head.nbytes + expected,
        )
    if head.structured:
        reading.found(
            source,
            "npy.structured",
            "info",
            f"its elements are records of {head.itemsize:,} bytes, whose values are not read",
            offset=0,
        )
    elif placed and head.dtype in BITS:
        place = Place(
            source=source,
            offset=head.nbytes,
            nbytes=expected,
            dtype=head.dtype,
            shape=head.shape,
            strides=column_major(head.shape) if head.fortran and len(head.shape) > 1 else None,
            big_endian=head.big_endian,
        )
        if not isinstance(reading.places, dict):
            reading.places = dict(reading.places)
        reading.places[name] = place


def literal(text: str) -> Any:
    """The value of a Python literal of texts, whole numbers, True, False, None, tuples, lists and dicts.

    Nothing is evaluated or compiled, as `ast.literal_eval` would, and brackets do not nest on the stack.
    """
    return _Literal(text).value()


def _scan_objects(source: Source, reading: Reading, head: Header) -> None:
    # Only arrays of objects need the pickle machine.
    from modelglass.formats.pickles import scan_stream

    reading.found(
        source,
        "npy.object",
        "info",  # what that pickle does is judged by itself
        "its elements are Python objects: numpy loads them only with allow_pickle=True, and then runs the"
        " pickle that holds them",
        offset=head.nbytes,
    )
    rest = source.nbytes - head.nbytes
    scan_stream(source.part(head.nbytes, rest, source.member, "the pickle"), reading)


def _times(shape: Shape) -> str:
    return " × ".join(map(str, shape)) or "1"


# --- what a header says -------------------------------------------------------------------------------


def _shape(said: Any, most_dims: int) -> Shape:
    if not isinstance(said, dict) or set(said) != {"descr", "fortran_order", "shape"}:
        raise _NotALiteralError("is not a dict of 'descr', 'fortran_order' and 'shape'")
    if type(said["fortran_order"]) is not bool:
        raise _NotALiteralError("has a 'fortran_order' that is neither True nor False")
    shape = said["shape"]
    if type(shape) is not tuple or not all(type(dim) is int and dim >= 0 for dim in shape):
        raise _NotALiteralError(f"has a 'shape' that is not a tuple of sizes: {str(shape)[:200]}")
    if len(shape) > most_dims:
        raise _NotALiteralError(f"has a 'shape' of {len(shape):,} dimensions; the most are {most_dims}")
    if prod(dim or 1 for dim in shape) > _MOST_NUMEL:
        raise _NotALiteralError(f"has a 'shape' of more than {_MOST_NUMEL:,} elements: {str(shape)[:200]}")
    return shape


def _kind(descr: Any) -> dict[str, Any]:
    """What 'descr' says: one type, or a list of the fields of a structured one."""
    if isinstance(descr, str):
        dtype, itemsize = _simple(descr)
        big = descr[0] == ">" and itemsize > 1
        return {
            "dtype": dtype,
            "itemsize": itemsize,
            "big_endian": big,
            "structured": False,
            "has_object": dtype == "object",
        }
    itemsize, has_object = 0, False
    waiting = [(descr, 1)]
    while waiting:
        one, times = waiting.pop()
        if isinstance(one, str):
            dtype, nbytes = _simple(one)
            itemsize += nbytes * times
            has_object |= dtype == "object"
        elif isinstance(one, list):
            waiting.extend(_field(field, times) for field in one)
        else:
            raise _NotALiteralError(f"has a type in 'descr' that is not known: {str(one)[:200]}")
    if itemsize > _MOST_ITEMSIZE:
        raise _NotALiteralError(f"has a 'descr' of {itemsize:,} bytes for one element")
    return {
        "dtype": "object" if has_object else "struct",
        "itemsize": itemsize,
        "big_endian": False,
        "structured": True,
        "has_object": has_object,
    }


def _field(field: Any, times: int) -> tuple[Any, int]:
    """The type of one field of a structured type, and how often it is there."""
    if type(field) is not tuple or len(field) not in (2, 3) or not _is_field_name(field[0]):
        raise _NotALiteralError(f"has a field in 'descr' that is not known: {str(field)[:200]}")
    shape = field[2] if len(field) == 3 else ()
    dims = shape if type(shape) is tuple else (shape,)
    if not all(type(dim) is int and dim >= 0 for dim in dims) or len(dims) > _DEEPEST:
        raise _NotALiteralError(f"has a field in 'descr' of a strange shape: {str(shape)[:200]}")
    times *= prod(dims)
    if times > _MOST_ITEMSIZE:
        raise _NotALiteralError(f"has a field in 'descr' that is too large: {str(field)[:200]}")
    return field[1], times


def _is_field_name(name: Any) -> bool:
    pair = name if type(name) is tuple and len(name) == 2 else (name,)  # a title and a name
    return all(isinstance(part, str) for part in pair)


def _simple(descr: str) -> tuple[str, int]:
    """Our name for a type such as '<f4', and the bytes of one element."""
    kind, size = descr[1:2], descr[2:]
    if kind in ("M", "m"):
        size = size.partition("[")[0]  # the rest is a unit of time
    number = int(size) if size.isascii() and size.isdigit() and len(size) < 10 else None
    if kind == "O":
        number = _OBJECT_NBYTES
    known = bool(kind) and (kind in _NAMES or kind in _TEXT_NAMES)
    if descr[:1] not in ("<", ">", "|", "=") or not known or number is None:
        raise _NotALiteralError(f"has a type in 'descr' that is not known: {descr[:200]!r}")
    if descr == _BFLOAT16:
        return "bfloat16", number
    if kind in _TEXT_NAMES:
        return _TEXT_NAMES[kind], number * 4 if kind == "U" else number
    return ("bool" if kind == "b" and number == 1 else f"{_NAMES[kind]}{8 * number}"), number


# --- the literal --------------------------------------------------------------------------------------


class _NotALiteralError(Exception):
    """What is wrong with a header, and at which character of it."""

    def __init__(self, problem: str, at: int | None = None) -> None:
        super().__init__(problem)
        self.at = at


class _Open:
    """A bracket that is open, and what stands in it so far; a dict's keys and values alternate."""

    def __init__(self, bracket: str) -> None:
        self.bracket, self.closer = bracket, _CLOSERS[bracket]
        self.items: list[Any] = []
        self.comma = False


class _Literal:
    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.open: list[_Open] = []

    def value(self) -> Any:
        while True:
            char = self._next()
            if char in _CLOSERS:
                if len(self.open) == _DEEPEST:
                    raise self._wrong(f"nests more than {_DEEPEST} brackets")
                self.open.append(_Open(char))
                self.at += 1
                continue
            closes = self.open and char == self.open[-1].closer and self._may_close(self.open[-1])
            value = self._close() if closes else self._atom(char)
            while self.open and self._goes_on(value):
                value = self._close()
            if not self.open:
                if self._next():
                    raise self._wrong("has something after its end")
                return value

    def _goes_on(self, value: Any) -> bool:
        """Put a value into the innermost bracket; whether that bracket ends with it."""
        inner = self.open[-1]
        inner.items.append(value)
        char = self._next()
        wants_colon = inner.bracket == "{" and len(inner.items) % 2 == 1
        if char == inner.closer and not wants_colon:
            return True
        if char != (":" if wants_colon else ","):
            raise self._wrong("is not the literal of a dict")
        inner.comma = True
        self.at += 1
        return False

    @staticmethod
    def _may_close(inner: _Open) -> bool:
        return inner.bracket != "{" or len(inner.items) % 2 == 0

    def _close(self) -> Any:
        inner = self.open.pop()
        self.at += 1
        if inner.bracket == "[":
            return inner.items
        if inner.bracket == "(":
            return tuple(inner.items) if inner.comma or not inner.items else inner.items[0]
        keys = inner.items[::2]
        if not all(isinstance(key, str) for key in keys) or len(set(keys)) != len(keys):
            raise self._wrong("has a dict with the same key twice, or with a key that is not a text")
        return dict(zip(keys, inner.items[1::2], strict=True))

    def _next(self) -> str:
        """The next character that is not blank, or "" at the end."""
        text, at = self.text, self.at
        while at < len(text) and text[at] in _SPACE:
            at += 1
        self.at = at
        return text[at : at + 1]

    def _atom(self, char: str) -> Any:
        if char and char in "'\"":
            return self._quote(char)
        start = self.at
        while self.at < len(self.text) and (self.text[self.at].isalnum() or self.text[self.at] in "_-"):
            self.at += 1
        word = self.text[start : self.at]
        if word in _WORDS:
            return _WORDS[word]
        # Python 2 wrote its long numbers with an L.
        digits = word.removesuffix("L").removeprefix("-")
        if not digits.isascii() or not digits.isdigit() or (digits[0] == "0" and len(digits) > 1):
            self.at = start
            raise self._wrong("is not the literal of a dict")
        if len(digits) > _MOST_DIGITS:
            raise self._wrong(f"has a number of {len(digits):,} digits")
        return -int(digits) if word[0] == "-" else int(digits)

    def _quote(self, quote: str) -> str:
        pieces: list[str] = []
        text = self.text
        self.at += 1
        while True:
            char = text[self.at : self.at + 1]
            if not char or char == "\n":
                raise self._wrong("has a text without an end")
            self.at += 1
            if char == quote:
                return "".join(pieces)
            pieces.append(self._escape() if char == "\\" else char)

    def _escape(self) -> str:
        kind = self.text[self.at : self.at + 1]
        self.at += 1
        if kind in _ESCAPES:
            return _ESCAPES[kind]
        digits = self.text[self.at : self.at + _HEX_ESCAPES.get(kind, 0)]
        valid = digits and len(digits) == _HEX_ESCAPES[kind] and not digits.strip("0123456789abcdefABCDEF")
        if not valid or int(digits, 16) > 0x10FFFF:
            raise self._wrong("has a text with an unknown escape")
        self.at += len(digits)
        return chr(int(digits, 16))

    def _wrong(self, problem: str) -> _NotALiteralError:
        return _NotALiteralError(problem, self.at)
