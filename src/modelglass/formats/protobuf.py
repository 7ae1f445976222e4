"""Protobuf's wire format: messages of numbered fields, walked by position in a file.

Only the heads of fields are read, and what a caller asks for: to skip two gigabytes costs nothing. Bytes come
through a window that grows while reading goes straight on and is small after a jump.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from struct import unpack
from typing import Any, NamedTuple, TypeAlias

from modelglass.formats.limits import Limits
from modelglass.formats.source import Source

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5  # how a field is written; 3 and 4 were groups, long deprecated
DEEPEST = 100  # messages inside messages; the reference reader follows no further either

_SMALL, _LARGE = 4 << 10, 256 << 10  # bytes of the window
_HEAD = 20  # bytes that a tag and a number take at most
_GOES_ON = bytes(range(0x80, 0x100))  # bytes that are not the last of a varint

# Number, wire type, and for a LENGTH field the length, otherwise the value; then where the content starts.
Field: TypeAlias = tuple[int, int, int, int]


class Span(NamedTuple):
    """Where the content of a field lies: a message, a text, or raw values. `wire` is how it is written."""

    start: int
    stop: int
    wire: int = LENGTH


class Rule(NamedTuple):
    """What a field of a message is. `kind` is "int", "float", "text" or "span" (left where it is)."""

    name: str
    kind: str
    repeated: bool = False


class Schema(dict[int, Rule]):
    """The fields of a message that are read, by number."""

    def __init__(self, rules: Mapping[int, Rule]) -> None:
        super().__init__(rules)
        self.repeated = frozenset(rule.name for rule in rules.values() if rule.repeated)


class Wire:
    """Reads the messages of a source, within limits: of a text, and of what one message may hold."""

    def __init__(self, source: Source, limits: Limits) -> None:
        self.source, self._limits = source, limits
        self._data, self._base, self._size = b"", 0, _SMALL
        self.odd_texts = 0  # texts that are not UTF-8

    def fields(self, start: int, stop: int) -> Iterator[Field]:
        """Each field of the message that lies between two positions, in the order of the file."""
        at = start
        while at < stop:
            data, base = self._data, self._base  # whoever used a field may have moved the window
            i = at - base
            if i < 0 or i + _HEAD > len(data):
                self._move(at)
                data, base = self._data, self._base
                i = at - base
            try:
                tag = data[i]
                i += 1
                if tag >= 0x80:
                    tag, i = self._varint(data, i - 1, base)
                wire, number = tag & 7, tag >> 3
                value = 0
                if wire in (VARINT, LENGTH):
                    value = data[i]
                    i += 1
                    if value >= 0x80:
                        value, i = self._varint(data, i - 1, base)
                elif wire == FIXED32:
                    value = int.from_bytes(data[i : i + 4], "little")
                    i += 4
                elif wire == FIXED64:
                    value = int.from_bytes(data[i : i + 8], "little")
                    i += 8
                else:
                    raise self._bad_wire(wire, number, at)
            except IndexError:
                raise self.source.corrupt(
                    "the file ends inside the head of a field", code="protobuf.truncated", offset=at
                ) from None
            if not 0 < number < 1 << 29:
                raise self.source.corrupt(
                    f"a field has the number {number:,}, not one from 1 to 2**29 - 1",
                    code="protobuf.field-number",
                    offset=at,
                )
            begin = base + i
            end = begin + value if wire == LENGTH else begin
            if end > stop:
                raise self._too_long(number, wire, value, stop - begin, at)
            at = end
            yield number, wire, value, begin

    def entries(self, span: Span, schema: Schema, message: str) -> Iterator[tuple[str, Any, int]]:
        """Name, value and position of each field that the schema knows; others are skipped.

        A field that may be there once and is there twice is refused: readers differ in which one they take.
        """
        seen = 0
        for number, wire, value, begin in self.fields(span.start, span.stop):
            rule = schema.get(number)
            if rule is None:
                continue
            name, kind, repeated = rule
            if not repeated:
                if seen >> number & 1:
                    raise self.source.corrupt(
                        f"{message} has the field {name!r} twice", code="protobuf.repeated", offset=begin
                    )
                seen |= 1 << number
            if wire == LENGTH:
                if kind == "text":
                    yield name, self.text(begin, begin + value), begin
                elif kind == "span":
                    yield name, Span(begin, begin + value), begin
                elif repeated:
                    for element in self._packed(kind, begin, begin + value):
                        yield name, element, begin
                else:
                    raise self._mismatch(message, name, wire, begin)
            elif kind == "int" and wire == VARINT:
                yield name, value if value < 1 << 63 else signed(value), begin
            elif kind == "float" and wire == FIXED32:
                yield name, unpack("<f", value.to_bytes(4, "little"))[0], begin
            elif kind == "span" and repeated:
                yield name, Span(begin, begin, wire), begin
            else:
                raise self._mismatch(message, name, wire, begin)

    def message(self, span: Span, schema: Schema, message: str) -> dict[str, Any]:
        """The known fields of a message by name; those that may repeat are lists."""
        found: dict[str, Any] = {}
        repeated, left = schema.repeated, self._limits.tensors
        for name, value, at in self.entries(span, schema, message):
            if name in repeated:
                found.setdefault(name, []).append(value)
                # A number takes a few bytes here as in the file; others take many times more.
                left -= not isinstance(value, int | float)
                if left < 0:
                    raise self.source.over("tensors", self._limits.tensors, offset=at)
            else:
                found[name] = value
        return found

    def text(self, start: int, stop: int) -> str:
        """A text. Bytes that are not UTF-8 are kept as lone surrogates, and counted in `odd_texts`."""
        if stop - start > self._limits.kept_text:
            raise self.source.over("kept_text", self._limits.kept_text, offset=start)
        data = self.raw(start, stop)
        try:
            return data.decode()
        except UnicodeDecodeError:
            self.odd_texts += 1
            return data.decode(errors="surrogateescape")

    def raw(self, start: int, stop: int) -> bytes:
        """The bytes between two positions."""
        if start < self._base or stop > self._base + len(self._data):
            if stop - start > _LARGE:
                return self.source.read(start, stop - start, "the value of a field")
            self._move(start, stop - start)
        return self._data[start - self._base : stop - self._base]

    def count(self, span: Span) -> int:
        """How many varints lie packed in a span. All of it is read, piece by piece."""
        count, at, last = 0, span.start, 0
        while at < span.stop:
            piece = self.source.read(at, min(1 << 20, span.stop - at), "packed numbers")
            count += len(piece.translate(None, _GOES_ON))
            at, last = at + len(piece), piece[-1]
        if last >= 0x80:
            raise self.source.corrupt(
                "packed numbers end inside a number", code="protobuf.truncated", offset=span.start
            )
        return count

    def _move(self, at: int, least: int = 0) -> None:
        """Put the window at a position: larger than the last one when reading goes straight on."""
        end = self._base + len(self._data)
        straight = self._base <= at <= end
        self._size = min(self._size * 2, _LARGE) if straight else _SMALL
        kept = self._data[at - self._base :] if straight else b""
        more = self.source.up_to(at + len(kept), max(self._size, least))
        self._data, self._base = kept + more, at

    def _varint(self, data: bytes, i: int, base: int) -> tuple[int, int]:
        """The number at an index of the window, and the index after it."""
        value = 0
        for shift in range(0, 70, 7):
            byte = data[i + shift // 7]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >> 64:
                    break
                return value, i + shift // 7 + 1
        raise self.source.corrupt(
            "a number takes more than 10 bytes or 64 bits", code="protobuf.varint", offset=base + i
        )

    def _packed(self, kind: str, start: int, stop: int) -> Iterator[int | float]:
        if kind == "float":
            if (stop - start) % 4:
                raise self.source.corrupt(
                    f"packed floats take {stop - start:,} bytes, not a multiple of 4",
                    code="protobuf.packed",
                    offset=start,
                )
            for at in range(start, stop, 4096):
                data = self.raw(at, min(at + 4096, stop))
                yield from unpack(f"<{len(data) // 4}f", data)
            return
        at = start
        while at < stop:
            data = self.raw(at, min(at + 10, stop))
            try:
                value, used = self._varint(data, 0, at)
            except IndexError:
                raise self.source.corrupt(
                    "packed numbers end inside a number", code="protobuf.truncated", offset=at
                ) from None
            at += used
            yield signed(value)

    def _bad_wire(self, wire: int, number: int, at: int) -> Exception:
        what = "a group, which is no longer in use" if wire in (3, 4) else f"of the unknown wire type {wire}"
        return self.source.corrupt(
            f"field {number:,} is {what}",
            code="protobuf.group" if wire in (3, 4) else "protobuf.wire-type",
            offset=at,
        )

    def _too_long(self, number: int, wire: int, length: int, left: int, at: int) -> Exception:
        takes = f" and takes {length:,} bytes" if wire == LENGTH else ""
        return self.source.corrupt(
            f"field {number:,} starts at byte {at:,}{takes}, but its message has {max(0, left):,} bytes left",
            code="protobuf.truncated",
            offset=at,
        )

    def _mismatch(self, message: str, name: str, wire: int, at: int) -> Exception:
        return self.source.corrupt(
            f"{message} has the field {name!r} with the wire type {wire}, which does not belong to it",
            code="protobuf.wire-type",
            offset=at,
        )


def signed(value: int) -> int:
    """64 bits as a signed number."""
    return value - (1 << 64) if value >= 1 << 63 else value
