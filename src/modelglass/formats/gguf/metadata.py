"""The first part of a GGUF file: its version and byte order, and its key-value metadata.

The length of all that comes before the tensors' data is nowhere written, so it is read through a window that
moves on. Long arrays, such as a vocabulary, are stepped over.
"""

from __future__ import annotations

import struct
from math import isfinite
from typing import NamedTuple

from modelglass.formats.jinja.chat_templates import judge
from modelglass.formats.limits import Limits
from modelglass.formats.reading import Reading
from modelglass.formats.source import Source
from modelglass.report import Json

MAGIC = b"GGUF"
VERSIONS = (1, 2, 3)
ALIGNMENT = 32  # of tensor data, when the file does not say
MOST_ALIGNMENT = 1 << 20
MOST_KEY_NBYTES = 65_535
MOST_DEPTH = 8  # of arrays in arrays

WHOLE_ITEMS = 32  # arrays up to this length are kept as they are
FIRST_ITEMS = 8  # of longer ones
FIRST_WINDOW, MOST_WINDOW = 64 << 10, 4 << 20

_SCALARS = {  # by their number: name, and code of `struct`
    0: ("uint8", "B"),
    1: ("int8", "b"),
    2: ("uint16", "H"),
    3: ("int16", "h"),
    4: ("uint32", "I"),
    5: ("int32", "i"),
    6: ("float32", "f"),
    7: ("bool", "B"),
    10: ("uint64", "Q"),
    11: ("int64", "q"),
    12: ("float64", "d"),
}
_BOOL, _STRING, _ARRAY, _UINT32, _FLOAT32 = 7, 8, 9, 4, 6
_NAMES = {number: name for number, (name, _) in _SCALARS.items()} | {_STRING: "string", _ARRAY: "array"}


class FileShape(NamedTuple):
    """What a version and a byte order decide about the file."""

    order: str
    length: str  # the code of `struct` for lengths, counts and dimensions
    length_nbytes: int

    @property
    def big_endian(self) -> bool:
        return self.order == ">"


def shape_of_file(window: Window) -> FileShape:
    if window.take(4, "the magic number") != MAGIC:
        raise window.source.corrupt(
            "it does not begin with the magic number GGUF", code="gguf.magic", offset=0
        )
    (version,) = window.numbers("I", "the version")
    order = "<"
    if version & 0xFFFF == 0:  # no version is so large: the bytes are in the other order
        order, version = ">", int.from_bytes(version.to_bytes(4, "little"), "big")
    if version not in VERSIONS:
        raise window.source.corrupt(
            f"its version is {version:,}; versions 1 to 3 are known",
            code="gguf.version",
            offset=4,
            hint="if the version is newer than this reader, update modelglass",
        )
    window.order = order
    return FileShape(order, "I", 4) if version == 1 else FileShape(order, "Q", 8)


class Window:
    """The bytes around the place where the reader is. `data[at]` is the next one."""

    def __init__(self, source: Source, limits: Limits) -> None:
        self.source, self.order = source, "<"
        self.data, self.at, self._start = b"", 0, 0
        self._limit, self._read, self._size = limits.header_nbytes, 0, FIRST_WINDOW

    @property
    def position(self) -> int:
        """Of the next byte, in the file. It may be past the end after something was stepped over."""
        return self._start + self.at

    @property
    def left(self) -> int:
        return self.source.nbytes - self.position

    def take(self, count: int, what: str) -> bytes:
        self.hold(count, what)
        taken = self.data[self.at : self.at + count]
        self.at += count
        return taken

    def numbers(self, codes: str, what: str) -> tuple[int, ...]:
        found: tuple[int, ...] = struct.unpack(
            layout := self.order + codes, self.take(struct.calcsize(layout), what)
        )
        return found

    def step_over(self, count: int, what: str) -> None:
        if count > self.left:
            raise self._short(count, what)
        self.at += count

    def require(self, count: int, smallest: int, what: str, code: str) -> None:
        """There is room for so many records; asked before any of them is read."""
        if count * smallest > self.left:
            raise self.source.corrupt(
                f"{what} is {count:,}, which takes at least {count * smallest:,} bytes, "
                f"but {max(0, self.left):,} are left",
                code=code,
                offset=self.position,
            )

    def hold(self, count: int, what: str) -> None:
        """Make sure that the next bytes are in `data`."""
        if self.at + count > len(self.data):
            if count > self.left:
                raise self._short(count, what)
            self.move(count)

    def move(self, count: int = 0) -> bool:
        """Begin the window here, and fill it with `count` bytes or more; False: the file ends with it."""
        position, tail = self.position, self.data[self.at :]
        wanted = min(max(count, self._size, 2 * len(tail)), self.left) - len(tail)
        if wanted <= 0:
            return False
        if self._read >= self._limit:
            raise self.source.over("header_nbytes", self._limit, offset=position)
        self.data = tail + self.source.read(position + len(tail), wanted, "the metadata")
        self.at, self._start = 0, position
        self._read += wanted
        self._size = min(2 * self._size, MOST_WINDOW)
        return True

    def _short(self, count: int, what: str) -> Exception:
        return self.source.corrupt(
            f"{what} takes {count:,} bytes, but {max(0, self.left):,} are left",
            code="truncated",
            offset=self.position,
        )


class Metadata:
    """The key-value pairs, as they can be shown."""

    def __init__(self, window: Window, shape: FileShape, reading: Reading) -> None:
        self._window, self._shape, self._reading = window, shape, reading
        self._source = window.source
        self._kept = reading.limits.kept_text
        self._misspelt: tuple[int, str] | None = None  # the first key that is not UTF-8, and where

    def read(self, entries: int) -> int:
        """Keep every entry; the alignment that they ask for is returned."""
        alignment = ALIGNMENT
        templates: list[tuple[int, str, str]] = []
        for _ in range(entries):
            position = self._window.position
            key = self._key()
            if key in self._reading.metadata:
                raise self._source.corrupt(
                    f"the key {key[:200]!r} is there twice", code="gguf.duplicate-key", offset=position
                )
            (kind,) = self._window.numbers("I", "the type of a metadata value")
            if kind == _STRING and "chat_template" in key:
                self._reading.metadata[key] = self._template(key, position, templates)
                continue
            value = self._value(kind)
            self._reading.metadata[key] = value
            if key == "general.alignment":
                alignment = self._alignment(kind, value, position)
        self._report(templates)
        return alignment

    def _key(self) -> str:
        length = self._length("the length of a key")
        if length > MOST_KEY_NBYTES:
            raise self._source.corrupt(
                f"a key has {length:,} bytes; the format allows {MOST_KEY_NBYTES:,}",
                code="gguf.key",
                offset=self._window.position,
            )
        position = self._window.position
        raw = self._window.take(length, "a key")
        key = text_of(raw)
        if not _is_utf8(raw) and self._misspelt is None:
            self._misspelt = position, key
        return key

    def _value(self, kind: int) -> Json:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            return self._array()
        return self._scalars(kind, 1)[0]

    def _string(self) -> str:
        return self._shorten(*self._start_of_string(self._kept))

    def _template(self, key: str, position: int, templates: list[tuple[int, str, str]]) -> str:
        """A chat template as it is kept; all of it is put with the templates that will be judged."""
        # One character more than may be judged, so that what is too long is known to be.
        judged = self._reading.limits.template_nchars + 1 if self._reading.thorough else 0
        text, length = self._start_of_string(max(self._kept, judged))
        templates.append((position, key, text))
        return self._shorten(text, length)

    def _start_of_string(self, most: int) -> tuple[str, int]:
        """So many characters of a string, or more, and the bytes that all of it takes."""
        length = self._length("the length of a string")
        self._window.require(length, 1, "the length of a string", "truncated")
        taken = min(length, 4 * most)  # a character takes no more than four bytes
        text = text_of(self._window.take(taken, "a string"))
        self._window.step_over(length - taken, "a string")
        return text, length

    def _shorten(self, text: str, length: int) -> str:
        whole = len(text) <= self._kept and length <= 4 * self._kept
        return text if whole else f"{text[: self._kept]}… ({length:,} bytes in all)"

    def _length(self, what: str) -> int:
        return self._window.numbers(self._shape.length, what)[0]

    def _array(self) -> Json:
        """An array; those that it may hold are gone through with a stack, not by recursion."""
        outer: list[tuple[int, list[Json]]] = []  # how many items each has, and the first of them
        remaining: list[int] = []
        while True:
            kind, length = self._array_head()
            if kind == _ARRAY and length:
                if len(outer) == MOST_DEPTH - 1:
                    raise self._source.corrupt(
                        f"arrays lie in arrays more than {MOST_DEPTH} deep",
                        code="gguf.depth",
                        offset=self._window.position,
                    )
                outer.append((length, []))
                remaining.append(length)
                continue
            value = _array_shown(kind, length, self._items(kind, length))
            while outer:
                length, kept = outer[-1]
                if len(kept) < WHOLE_ITEMS:
                    kept.append(value)
                remaining[-1] -= 1
                if remaining[-1]:
                    break
                outer.pop()
                remaining.pop()
                value = _array_shown(_ARRAY, length, kept)
            else:
                return value

    def _array_head(self) -> tuple[int, int]:
        kind, length = self._window.numbers("I" + self._shape.length, "the type and length of an array")
        self._window.require(length, self._smallest(kind), "the length of an array", "gguf.count")
        return kind, length

    def _items(self, kind: int, length: int) -> list[Json]:
        """The first items; the others are stepped over."""
        first = length if length <= WHOLE_ITEMS else FIRST_ITEMS
        if not length:
            return []
        if kind == _STRING:
            items: list[Json] = [self._string() for _ in range(first)]
            self._step_over_strings(length - first)
            return items
        items = self._scalars(kind, first)
        if kind == _BOOL:
            self._check_booleans(length - first)
        else:
            self._window.step_over((length - first) * self._smallest(kind), "an array")
        return items

    def _step_over_strings(self, count: int) -> None:
        window, head = self._window, self._shape.length_nbytes
        length_at = struct.Struct(self._shape.order + self._shape.length).unpack_from
        data, at = window.data, window.at
        last = len(data) - head
        for _ in range(count):
            if at > last:
                window.at = at
                window.hold(head, "a string of an array")
                data, at = window.data, window.at
                last = len(data) - head
            at += head + length_at(data, at)[0]
        window.at = at
        if window.left < 0:
            raise self._source.corrupt(
                f"a string of an array ends {-window.left:,} bytes after the end of the file",
                code="truncated",
                offset=self._source.nbytes,
            )

    def _check_booleans(self, count: int) -> None:
        while count:
            piece = self._window.take(min(count, FIRST_WINDOW), "an array")
            strange = piece.translate(None, b"\x00\x01")
            if strange:
                raise self._no_boolean(strange[0])
            count -= len(piece)

    def _smallest(self, kind: int) -> int:
        """The bytes that a value of a type takes at least."""
        if kind == _STRING:
            return self._shape.length_nbytes
        if kind == _ARRAY:
            return 4 + self._shape.length_nbytes
        if kind not in _SCALARS:
            raise self._source.corrupt(
                f"a metadata value has the type {kind:,}; types 0 to 12 are known",
                code="gguf.value-type",
                offset=self._window.position,
            )
        return struct.calcsize("=" + _SCALARS[kind][1])

    def _scalars(self, kind: int, count: int) -> list[Json]:
        self._window.require(count, self._smallest(kind), "the number of values", "truncated")
        found = self._window.numbers(f"{count}{_SCALARS[kind][1]}", "a metadata value")
        if kind == _BOOL:
            strange = next((number for number in found if number > 1), None)
            if strange is not None:
                raise self._no_boolean(strange)
            return [bool(number) for number in found]
        if kind == _FLOAT32:
            return [_single(number) for number in found]
        return [number if isfinite(number) else str(number) for number in found]

    def _no_boolean(self, number: int) -> Exception:
        return self._source.corrupt(
            f"a boolean has the value {number}; only 0 and 1 are allowed",
            code="gguf.bool",
            offset=self._window.position - 1,
        )

    def _alignment(self, kind: int, value: Json, position: int) -> int:
        if kind != _UINT32:
            problem = f"is of type {_NAMES[kind]}, not uint32"
        elif value == 0 or value & (value - 1) or value > MOST_ALIGNMENT:
            problem = f"is {value:,}, not a power of two up to {MOST_ALIGNMENT:,}"
        else:
            return int(value)
        raise self._source.corrupt(f"general.alignment {problem}", code="gguf.alignment", offset=position)

    def _report(self, templates: list[tuple[int, str, str]]) -> None:
        if self._misspelt is not None:
            position, key = self._misspelt
            self._reading.found(
                self._source,
                "gguf.name-encoding",
                "notice",
                f"the key {key[:200]!r} is not UTF-8",
                offset=position,
            )
        for position, key, text in templates:
            judge(text, self._source, self._reading, offset=position, key=key[:200])


def _array_shown(kind: int, length: int, first: list[Json]) -> Json:
    if length <= WHOLE_ITEMS:
        return first
    return {"array": _NAMES[kind], "length": length, "first": first[:FIRST_ITEMS]}


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def text_of(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")


def _single(number: float) -> float | str:
    """A 32-bit float by its shortest decimal: 1e-05, not 9.999999747378752e-06."""
    if not isfinite(number):
        return str(number)
    raw = struct.pack("f", number)
    shorter = (float(f"{number:.{digits}g}") for digits in (6, 7, 8))
    return next((short for short in shorter if struct.pack("f", short) == raw), number)
