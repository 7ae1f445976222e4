"""The wire reader sees what protobuf's own reader sees, reads little, and refuses what is broken."""

from __future__ import annotations

from contextlib import suppress
from struct import pack

import pytest
from hypothesis import given, strategies as st

from modelglass.errors import CorruptFileError, FileError, LimitError
from modelglass.formats.limits import Limits
from modelglass.formats.protobuf import Rule, Schema, Span, Wire, signed
from modelglass.formats.source import Source

SCHEMA = Schema(
    {
        1: Rule("number", "int"),
        2: Rule("text", "text"),
        3: Rule("inner", "span", repeated=True),
        4: Rule("numbers", "int", repeated=True),
        5: Rule("ratio", "float"),
        6: Rule("ratios", "float", repeated=True),
    }
)


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def tagged(number: int, wire: int, content: bytes) -> bytes:
    return varint(number << 3 | wire) + content


def counted(number: int, content: bytes) -> bytes:
    return tagged(number, 2, varint(len(content)) + content)


def wire_of(data: bytes, **limits: int) -> Wire:
    source = Source(lambda at, length: data[at : at + length], len(data), file="m")
    return Wire(source, Limits(**limits))


def message(data: bytes) -> dict[str, object]:
    return wire_of(data).message(Span(0, len(data)), SCHEMA, "a message")


def refused(data: bytes) -> str:
    with pytest.raises(CorruptFileError) as caught:
        message(data)
    return caught.value.code


@given(st.lists(st.integers(0, 2**64 - 1)))
def test_every_64_bit_number_is_read_alone_and_packed(values: list[int]) -> None:
    alone = b"".join(tagged(4, 0, varint(value)) for value in values)
    packed = counted(4, b"".join(map(varint, values)))
    expected = [signed(value) for value in values]
    assert message(alone).get("numbers", []) == expected
    assert message(packed).get("numbers", []) == expected
    assert wire_of(packed).count(Span(len(packed) - sum(len(varint(v)) for v in values), len(packed))) == len(
        values
    )


def test_floats_are_read_alone_and_packed() -> None:
    many = [float(number) for number in range(3000)]
    data = tagged(5, 5, pack("<f", 1.5)) + tagged(6, 5, pack("<f", -2.0)) + counted(6, pack("<3000f", *many))
    assert message(data) == {"ratio": 1.5, "ratios": [-2.0, *many]}


def test_unknown_fields_of_every_wire_type_are_skipped() -> None:
    strange = tagged(90, 0, b"\x01") + tagged(91, 1, bytes(8)) + counted(92, b"??") + tagged(93, 5, bytes(4))
    assert message(strange + tagged(1, 0, b"\x07")) == {"number": 7}


def test_a_large_field_is_skipped_without_reading_it() -> None:
    size = 2 << 30
    head = varint(3 << 3 | 2) + varint(size)
    tail = tagged(1, 0, b"\x05")

    def pread(at: int, length: int) -> bytes:
        assert length < 1 << 20
        whole = head if at < len(head) else b""
        end = len(head) + size
        piece = whole[at:] + bytes(max(0, min(length, end - at) - len(whole[at:])))
        return (piece + tail[max(0, at - end) :])[:length]

    source = Source(pread, len(head) + size + len(tail), file="m")
    found = Wire(source, Limits()).message(Span(0, source.nbytes), SCHEMA, "a message")
    assert found == {"inner": [Span(len(head), len(head) + size)], "number": 5}
    assert source.meter.nbytes < 20_000


def test_bytes_are_read_about_once_when_reading_goes_straight_on() -> None:
    data = counted(3, bytes(5)) * 100_000
    wire = wire_of(data)
    assert len(list(wire.fields(0, len(data)))) == 100_000
    assert wire.source.meter.nbytes == len(data)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (tagged(1, 3, b""), "protobuf.group"),
        (tagged(1, 4, b""), "protobuf.group"),
        (tagged(1, 6, b""), "protobuf.wire-type"),
        (tagged(1, 7, b""), "protobuf.wire-type"),
        (tagged(0, 0, b"\x01"), "protobuf.field-number"),
        (varint(1 << 35), "protobuf.truncated"),
        (varint(1 << 35) + b"\x01", "protobuf.field-number"),
        (tagged(1, 0, b"\x80" * 10 + b"\x01"), "protobuf.varint"),
        (tagged(1, 0, b"\xff" * 9 + b"\x02"), "protobuf.varint"),
        (tagged(1, 0, b"\x80"), "protobuf.truncated"),
        (tagged(1, 0, b""), "protobuf.truncated"),
        (tagged(5, 5, b"\0\0\0"), "protobuf.truncated"),
        (tagged(9, 1, b"\0\0\0"), "protobuf.truncated"),
        (tagged(3, 2, varint(2**62)), "protobuf.truncated"),
        (tagged(3, 2, b"\x05abcd"), "protobuf.truncated"),
        (counted(4, b"\x80"), "protobuf.truncated"),
        (counted(6, b"\0\0\0"), "protobuf.packed"),
        (tagged(1, 5, bytes(4)), "protobuf.wire-type"),
        (tagged(2, 0, b"\x01"), "protobuf.wire-type"),
        (tagged(1, 0, b"\x01") * 2, "protobuf.repeated"),
    ],
)
def test_broken_messages_are_refused(data: bytes, code: str) -> None:
    assert refused(data) == code


def test_an_inner_message_cannot_reach_beyond_its_end() -> None:
    inner = tagged(2, 2, b"\x09ab")
    data = counted(3, inner) + b"more bytes after it"
    wire = wire_of(data)
    with pytest.raises(CorruptFileError, match="has 2 bytes left"):
        wire.message(Span(2, 2 + len(inner)), SCHEMA, "a message")


def test_text_that_is_not_utf8_is_kept_and_counted() -> None:
    data = counted(2, b"w\xff")
    wire = wire_of(data)
    text = wire.message(Span(0, len(data)), SCHEMA, "a message")["text"]
    assert text.encode(errors="surrogateescape") == b"w\xff"
    assert wire.odd_texts == 1


def test_a_text_beyond_the_limit_stops() -> None:
    data = counted(2, b"x" * 11)
    with pytest.raises(LimitError, match="kept_text = 10"):
        wire_of(data, kept_text=10).message(Span(0, len(data)), SCHEMA, "a message")


def test_more_inner_messages_than_the_limit_stop() -> None:
    data = counted(3, b"") * 11
    with pytest.raises(LimitError, match="tensors = 10"):
        wire_of(data, tensors=10).message(Span(0, len(data)), SCHEMA, "a message")


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with suppress(FileError):
        message(data)
