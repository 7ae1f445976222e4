"""GGUF files are read as the reference package reads them, and bad ones are refused with one clear error."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf.constants import GGUFEndian
from hypothesis import HealthCheck, given, settings, strategies as st

from modelglass.errors import CorruptFileError, FileError, LimitError
from modelglass.formats.gguf import reader
from modelglass.formats.gguf.types import REMOVED, TYPES
from modelglass.formats.limits import Limits
from modelglass.formats.reading import Reading
from modelglass.formats.source import OpenFile, Source

PLAIN = {
    "float32": np.float32,
    "float16": np.float16,
    "float64": np.float64,
    "int8": np.int8,
    "int16": np.int16,
    "int32": np.int32,
    "int64": np.int64,
}
QUANTIZED = [kind for kind in TYPES.values() if kind.dtype is None]


def read(data: bytes, **limits: int) -> Reading:
    reading = Reading(limits=Limits(**limits))
    reader.read(Source(lambda at, n: data[at : at + n], len(data), file="x.gguf"), reading)
    return reading


def read_file(path: Path) -> Reading:
    reading = Reading()
    with OpenFile(path) as source:
        reader.read(source, reading)
    return reading


def refusal(data: bytes, **limits: int) -> FileError:
    with pytest.raises(FileError) as caught:
        read(data, **limits)
    return caught.value


def codes(reading: Reading) -> dict[str, str]:
    return {finding.code: finding.level for finding in reading.findings}


class Built:
    """A file written byte by byte, so that it can be wrong."""

    def __init__(self, version: int = 3, order: str = "<") -> None:
        self.version, self.order = version, order
        self.entries: list[bytes] = []
        self.tensors: list[bytes] = []
        self.data = 0

    def number(self, code: str, value: int) -> bytes:
        return struct.pack(self.order + code, value)

    def length(self, value: int) -> bytes:
        return self.number("I" if self.version == 1 else "Q", value)

    def string(self, text: bytes) -> bytes:
        return self.length(len(text)) + text

    def entry(self, key: bytes, kind: int, value: bytes) -> Built:
        self.entries.append(self.string(key) + self.number("I", kind) + value)
        return self

    def array(self, key: bytes, kind: int, length: int, items: bytes) -> Built:
        return self.entry(key, 9, self.number("I", kind) + self.length(length) + items)

    def tensor(
        self,
        name: bytes,
        dims: Sequence[int] = (4,),
        kind: int = 0,
        offset: int = 0,
        *,
        rank: int | None = None,
        data: int = 32,
    ) -> Built:
        sizes = b"".join(map(self.length, dims))
        head = self.string(name) + self.number("I", len(dims) if rank is None else rank)
        self.tensors.append(head + sizes + self.number("I", kind) + self.number("Q", offset))
        self.data += data
        return self

    def bytes(self, *, tensors: int | None = None, entries: int | None = None, alignment: int = 32) -> bytes:
        counts = [
            len(self.tensors) if tensors is None else tensors,
            len(self.entries) if entries is None else entries,
        ]
        head = b"GGUF" + self.number("I", self.version) + b"".join(map(self.length, counts))
        head += b"".join(self.entries) + b"".join(self.tensors)
        return head + bytes(-len(head) % alignment) + bytes(self.data)


def write(path: Path, *, endianess: GGUFEndian = GGUFEndian.LITTLE, quantized: bool = True) -> None:
    """One tensor of every type, and metadata of every type, by the reference package."""
    generator = np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, "llama", endianess=endianess)
    writer.add_uint8("a.uint8", 200)
    writer.add_int8("a.int8", -100)
    writer.add_uint16("a.uint16", 60_000)
    writer.add_int16("a.int16", -30_000)
    writer.add_uint32("a.uint32", 4_000_000_000)
    writer.add_int32("a.int32", -2_000_000_000)
    writer.add_uint64("a.uint64", 2**64 - 1)
    writer.add_int64("a.int64", -(2**63))
    writer.add_float32("a.float32", 1e-5)
    writer.add_float64("a.float64", 0.1)
    writer.add_bool("a.bool", True)
    writer.add_string("a.string", "Grüße \U0001f355" * 3)
    writer.add_array("a.numbers", list(range(20)))
    writer.add_array("a.floats", [0.5, 1.25])
    writer.add_array("a.flags", [True, False, True])
    writer.add_array("a.strings", ["one", "two"])
    writer.add_token_list([f"token {i}" for i in range(5000)])
    for name, dtype in PLAIN.items():
        writer.add_tensor(f"plain.{name}", (generator.normal(size=(3, 4, 5)) * 50).astype(dtype))
    raw_bfloat16 = generator.integers(0, 2**16, (3, 8), dtype=np.uint16)
    writer.add_tensor("plain.bfloat16", raw_bfloat16.view(np.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)
    for kind in QUANTIZED if quantized else []:
        if kind.name != "Q8_1":
            raw = generator.integers(0, 256, (6, 2 * kind.nbytes), dtype=np.uint8)
            writer.add_tensor(f"q.{kind.name}", raw, raw_dtype=gguf.GGMLQuantizationType[kind.name])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_every_type_of_the_reference_has_the_same_number_and_size() -> None:
    expected = {int(kind): (kind.name, *gguf.GGML_QUANT_SIZES[kind]) for kind in gguf.GGMLQuantizationType}
    assert {number: tuple(kind)[:3] for number, kind in TYPES.items()} == expected
    assert not TYPES.keys() & REMOVED.keys()


@pytest.mark.parametrize("endianess", [GGUFEndian.LITTLE, GGUFEndian.BIG])
def test_tensors_are_those_of_the_reference_reader(tmp_path: Path, endianess: GGUFEndian) -> None:
    path = tmp_path / "x.gguf"
    write(path, endianess=endianess)
    reading, theirs = read_file(path), gguf.GGUFReader(path)
    assert [tensor.name for tensor in reading.tensors] == [tensor.name for tensor in theirs.tensors]
    assert codes(reading) == {}
    for ours, their in zip(reading.tensors, theirs.tensors, strict=True):
        place = reading.places[ours.name]
        assert ours.shape == place.shape == tuple(reversed(their.shape.tolist()))
        assert ours.params == their.n_elements
        assert ours.nbytes == place.nbytes == their.n_bytes
        assert place.offset == their.data_offset
        assert place.big_endian is (endianess is GGUFEndian.BIG)
        plain = ours.name.startswith("plain.")
        assert ours.dtype == (ours.name[6:] if plain else their.tensor_type.name.lower())
        assert ours.kind == ("parameter" if plain else "packed")
        assert place.encoding == (None if plain else their.tensor_type.name)
        assert ours.bits_per_weight == 8 * their.n_bytes / their.n_elements


@pytest.mark.parametrize("endianess", [GGUFEndian.LITTLE, GGUFEndian.BIG])
def test_metadata_is_that_of_the_reference_reader(tmp_path: Path, endianess: GGUFEndian) -> None:
    path = tmp_path / "x.gguf"
    write(path, endianess=endianess, quantized=False)
    reading, theirs = read_file(path), gguf.GGUFReader(path)
    fields = {name: field for name, field in theirs.fields.items() if not name.startswith("GGUF.")}
    assert reading.metadata.keys() == fields.keys()
    for key, field in fields.items():
        ours, their = reading.metadata[key], field.contents()
        if key == "tokenizer.ggml.tokens":
            assert ours == {"array": "string", "length": 5000, "first": their[:8]}
        elif field.types[-1] is gguf.GGUFValueType.FLOAT32:
            assert np.array_equal(np.float32(ours), np.float32(their))
        else:
            assert ours == their
    assert reading.metadata["a.float32"] == 1e-5
    json.dumps(reading.metadata, allow_nan=False)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("version", [1, 2, 3])
def test_every_version_and_byte_order_is_read(version: int, order: str) -> None:
    file = Built(version, order).entry(b"n", 4, struct.pack(order + "I", 7)).tensor(b"w", (4, 2), 0)
    file.array(b"s", 8, 40, file.string(b"ab") * 40)
    reading = read(file.bytes())
    assert reading.format == "gguf"
    assert reading.metadata == {"n": 7, "s": {"array": "string", "length": 40, "first": ["ab"] * 8}}
    assert reading.tensors[0].shape == (2, 4)
    assert reading.findings == []


def test_sizes_of_zero_and_scalars_are_fine() -> None:
    file = Built().tensor(b"none", (0, 5), data=0).tensor(b"one", ()).tensor(b"all", (8,), offset=32)
    reading = read(file.bytes())
    assert [tensor.shape for tensor in reading.tensors] == [(5, 0), (), (8,)]
    assert reading.findings == []


def test_values_that_json_cannot_hold_become_text() -> None:
    file = Built().entry(b"nan", 6, struct.pack("<f", float("nan")))
    file.entry(b"inf", 12, struct.pack("<d", float("-inf")))
    file.array(b"both", 6, 2, struct.pack("<ff", float("inf"), 3.4028234663852886e38))
    file.entry(b"raw", 8, file.string(b"a\xff\xed\xa0\x80"))
    assert read(file.bytes()).metadata == {
        "nan": "nan",
        "inf": "-inf",
        "both": ["inf", 3.4028235e38],
        "raw": "a\\xff\\xed\\xa0\\x80",
    }


def test_long_texts_are_cut() -> None:
    file = Built()
    file.entry(b"long", 8, file.string("ä".encode() * 5000)).entry(b"next", 7, b"\x01")
    reading = read(file.bytes(), kept_text=10)
    assert reading.metadata == {"long": "ä" * 10 + "… (10,000 bytes in all)", "next": True}


def test_arrays_in_arrays_are_kept_when_short() -> None:
    file = Built()
    inner = file.number("I", 4) + file.length(2) + struct.pack("<II", 1, 2)
    file.array(b"pairs", 9, 3, inner * 3).array(b"many", 9, 50, inner * 50).array(b"none", 9, 0, b"")
    assert read(file.bytes()).metadata == {
        "pairs": [[1, 2]] * 3,
        "many": {"array": "array", "length": 50, "first": [[1, 2]] * 8},
        "none": [],
    }


def test_a_chat_template_is_shown_and_noted() -> None:
    file = Built()
    file.entry(b"tokenizer.chat_template", 8, file.string(b"{{ messages }}"))
    reading = read(file.bytes())
    assert reading.metadata["tokenizer.chat_template"] == "{{ messages }}"
    assert codes(reading) == {"code.chat-template": "info"}


@pytest.mark.parametrize(
    ("name", "shown", "code"),
    [
        (b"x" * 70, "x" * 70, "gguf.long-name"),
        (b"\xff\xfe", "\\xff\\xfe", "gguf.name-encoding"),
        (b"a\x00b", "a\0b", "gguf.name-nul"),
    ],
)
def test_strange_names_are_read_and_noted(name: bytes, shown: str, code: str) -> None:
    reading = read(Built().tensor(name).bytes())
    assert [tensor.name for tensor in reading.tensors] == [shown]
    assert codes(reading) == {code: "notice"}


def test_names_may_be_anything_else() -> None:
    names = ["\x1b[2J", "<script>", "=cmd|' /C calc'!A0", "\r\n", "\u202e", ""]
    file = Built()
    for i, name in enumerate(names):
        file.tensor(name.encode(), offset=32 * i)
    reading = read(file.bytes())
    assert [tensor.name for tensor in reading.tensors] == names
    assert reading.findings == []


def test_keys_that_are_not_text_are_noted() -> None:
    reading = read(Built().entry(b"\xff", 7, b"\x00").bytes())
    assert reading.metadata == {"\\xff": False}
    assert codes(reading) == {"gguf.name-encoding": "notice"}


ALIGNMENT = b"general.alignment"
HUGE = 2**62
BAD: dict[str, tuple[bytes, str]] = {
    "magic": (b"GGML" + bytes(60), "gguf.magic"),
    "version 0": (b"GGUF" + bytes(60), "gguf.version"),
    "version 99": (Built(99).bytes(), "gguf.version"),
    "version 99 of the other order": (Built(99, ">").bytes(), "gguf.version"),
    "only the magic": (b"GGUF", "truncated"),
    "empty": (b"", "truncated"),
    "tensors 2^63": (Built().bytes(tensors=2**63), "gguf.count"),
    "entries 2^63": (Built().bytes(entries=2**63), "gguf.count"),
    "one tensor too many": (Built().tensor(b"w").bytes(tensors=2), "truncated"),
    "key 2^62": (Built().bytes(entries=1, alignment=1) + struct.pack("<Q", HUGE) + bytes(99), "gguf.key"),
    "string 2^62": (Built().entry(b"k", 8, struct.pack("<Q", HUGE)).bytes(), "truncated"),
    "array 2^60": (Built().array(b"k", 0, 2**60, b"").bytes(), "gguf.count"),
    "array of strings 2^60": (Built().array(b"k", 8, 2**60, b"").bytes(), "gguf.count"),
    "string 2^62 in an array": (
        Built().array(b"k", 8, 40, struct.pack("<Q", 0) * 39 + struct.pack("<Q", HUGE)).bytes(),
        "truncated",
    ),
    "value type": (Built().entry(b"k", 13, bytes(8)).bytes(), "gguf.value-type"),
    "array type": (Built().array(b"k", 99, 1, bytes(8)).bytes(), "gguf.value-type"),
    "nested 100,000": (Built().array(b"k", 9, 1, struct.pack("<IQ", 9, 1) * 100_000).bytes(), "gguf.depth"),
    "boolean": (Built().entry(b"k", 7, b"\x02").bytes(), "gguf.bool"),
    "boolean in an array": (Built().array(b"k", 7, 99, bytes(98) + b"\x02").bytes(), "gguf.bool"),
    "duplicate key": (Built().entry(b"k", 7, b"\0").entry(b"k", 7, b"\1").bytes(), "gguf.duplicate-key"),
    "duplicate tensor": (Built().tensor(b"w").tensor(b"w", offset=32).bytes(), "gguf.duplicate-name"),
    "the same once decoded": (
        Built().tensor(b"\xff").tensor(b"\\xff", offset=32).bytes(),
        "gguf.duplicate-name",
    ),
    "alignment 0": (Built().entry(ALIGNMENT, 4, struct.pack("<I", 0)).bytes(), "gguf.alignment"),
    "alignment 3": (Built().entry(ALIGNMENT, 4, struct.pack("<I", 3)).bytes(), "gguf.alignment"),
    "alignment 2^31": (Built().entry(ALIGNMENT, 4, struct.pack("<I", 2**31)).bytes(), "gguf.alignment"),
    "alignment text": (Built().entry(ALIGNMENT, 8, struct.pack("<Q", 2) + b"32").bytes(), "gguf.alignment"),
    "alignment array": (Built().array(ALIGNMENT, 4, 1, struct.pack("<I", 32)).bytes(), "gguf.alignment"),
    "dims overflow": (Built().tensor(b"w", (2**40, 2**40)).bytes(), "gguf.dims"),
    "dims overflow beside zero": (Built().tensor(b"w", (2**40, 2**40, 0)).bytes(), "gguf.dims"),
    "dim 2^63": (Built().tensor(b"w", (2**63,)).bytes(), "gguf.dims"),
    "rank 10^9": (Built().tensor(b"w", rank=10**9).bytes(), "gguf.rank"),
    "rank 5": (Built().tensor(b"w", (1, 1, 1, 1, 1)).bytes(), "gguf.rank"),
    "name 2^62": (Built().bytes(tensors=1, alignment=1) + struct.pack("<Q", HUGE) + bytes(99), "gguf.name"),
    "type": (Built().tensor(b"w", kind=1000).bytes(), "gguf.type"),
    "half a block": (Built().tensor(b"w", (33,), kind=2).bytes(), "gguf.block"),
    "no row for a block": (Built().tensor(b"w", (), kind=2).bytes(), "gguf.block"),
    "data after the end": (Built().tensor(b"w", offset=64).bytes(), "truncated"),
    "data longer than the file": (Built().tensor(b"w", (2**50,)).bytes(), "truncated"),
    "offset 2^64": (Built().tensor(b"w", offset=2**64 - 32).bytes(), "truncated"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_refused(case: str) -> None:
    data, code = BAD[case]
    started = time.process_time()
    error = refusal(data)
    assert time.process_time() - started < 1
    assert isinstance(error, CorruptFileError)
    assert error.code == code
    assert "x.gguf" in str(error)


@pytest.mark.parametrize("number", REMOVED)
def test_removed_types_are_named(number: int) -> None:
    error = refusal(Built().tensor(b"w", (32,), kind=number).bytes())
    assert error.code == "gguf.type"
    assert REMOVED[number] in error.problem


@pytest.mark.parametrize(
    ("offsets", "code"),
    [
        ((0, 0), "gguf.overlap"),
        ((32, 0), "gguf.order"),
        ((0, 36), "gguf.alignment"),
        ((0, 16), "gguf.alignment"),
    ],
)
def test_data_that_lies_wrong_is_invalid_but_read(offsets: tuple[int, int], code: str) -> None:
    file = Built()
    for i, offset in enumerate(offsets):
        file.tensor(b"%d" % i, offset=offset)
    reading = read(file.bytes())
    assert len(reading.tensors) == len(reading.places) == 2
    assert codes(reading)[code] == "invalid"
    assert codes(reading).keys() - {code, "gguf.trailing"} == set()


def test_bytes_that_belong_to_no_tensor_are_noted() -> None:
    file = Built().tensor(b"a").tensor(b"b", offset=96, data=128)
    assert codes(read(file.bytes())) == {"gguf.gap": "notice", "gguf.trailing": "notice"}


def test_a_type_that_readers_disagree_about_is_invalid() -> None:
    reading = read(Built().tensor(b"w", (32,), kind=9, data=64).bytes())
    assert codes(reading) == {"gguf.ambiguous-type": "invalid"}


def test_the_alignment_of_the_file_is_used() -> None:
    file = Built().entry(ALIGNMENT, 4, struct.pack("<I", 4096)).tensor(b"w")
    assert read(file.bytes(alignment=4096)).places["w"].offset == 4096


def test_tensors_are_listed_when_their_data_is_cut_off() -> None:
    data = Built().tensor(b"a").tensor(b"b", offset=32).bytes()
    reading = Reading()
    cut = data[:-40]
    with pytest.raises(CorruptFileError):
        reader.read(Source(lambda at, n: cut[at : at + n], len(cut), file="x.gguf"), reading)
    assert [tensor.name for tensor in reading.tensors] == ["a", "b"]


def test_limits_stop_the_reading() -> None:
    assert isinstance(refusal(Built().tensor(b"a").tensor(b"b").bytes(), tensors=1), LimitError)
    strings = struct.pack("<Q", 0) * 100_000
    error = refusal(Built().array(b"k", 8, 100_000, strings).bytes(), header_nbytes=1000)
    assert isinstance(error, LimitError)
    assert "header_nbytes" in str(error)


def test_long_arrays_and_texts_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "sparse.gguf"
    file = Built().array(b"numbers", 4, 2**32, b"")
    with path.open("wb") as out:
        out.write(file.bytes(alignment=1))
        out.truncate(len(file.bytes(alignment=1)) + 4 * 2**32)
    with OpenFile(path) as source:
        reading = Reading()
        reader.read(source, reading)
    assert reading.metadata["numbers"]["length"] == 2**32
    assert source.meter.nbytes < 200_000


def many_tensors(count: int) -> bytes:
    file = Built()
    after_name = struct.Struct("<IQQIQ").pack
    names = (b"blk.%d.attn_q.weight" % i for i in range(count))
    file.tensors = [
        len(name).to_bytes(8, "little") + name + after_name(2, 8, 4, 0, 128 * i)
        for i, name in enumerate(names)
    ]
    file.data = 128 * count
    return file.bytes()


def test_many_tensors_are_read_much_faster_than_by_the_reference_reader(tmp_path: Path) -> None:
    path = tmp_path / "many.gguf"
    path.write_bytes(many_tensors(5_000))
    ours = min(timed(lambda: read_file(path)) for _ in range(3))
    theirs = timed(lambda: gguf.GGUFReader(path))
    assert theirs > 10 * ours  # 25 on an idle machine


def test_three_hundred_thousand_tensors_take_seconds() -> None:
    data = many_tensors(300_000)
    started = time.process_time()
    reading = read(data)
    assert time.process_time() - started < 5
    assert len({tensor.name for tensor in reading.tensors}) == 300_000
    assert reading.tensors[-1] == reading.tensors[-1].__class__(
        name="blk.299999.attn_q.weight",
        kind="parameter",
        shape=(4, 8),
        dtype="float32",
        storage="blk.299999.attn_q.weight",
    )


def test_a_large_vocabulary_takes_no_time() -> None:
    file = Built()
    file.array(b"tokens", 8, 128_256, b"".join(file.string(b"token%d" % i) for i in range(128_256)))
    data = file.bytes()
    assert min(timed(lambda: read(data)) for _ in range(3)) < 0.2


def timed(work: Any) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def test_names_as_long_as_allowed_are_read_across_windows() -> None:
    file = Built()
    for i in range(10):
        file.tensor(b"%d" % i + b"x" * 65_534, offset=32 * i)
    reading = read(file.bytes())
    assert {len(tensor.name) for tensor in reading.tensors} == {65_535}


def small(order: str) -> bytes:
    file = Built(3, order)
    file.entry(b"general.architecture", 8, file.string(b"llama"))
    file.entry(ALIGNMENT, 4, file.number("I", 32)).entry(b"flag", 7, b"\x01")
    file.array(b"tokens", 8, 40, b"".join(file.string(b"t%d" % i) for i in range(40)))
    file.array(b"scores", 6, 3, bytes(12)).array(b"flags", 7, 40, bytes(40))
    file.array(b"nested", 9, 2, (file.number("I", 0) + file.length(2) + bytes(2)) * 2)
    file.tensor(b"a", (4, 2), 0).tensor(b"q", (32,), 8, 32, data=64)
    return file.bytes()


SMALL = {order: small(order) for order in "<>"}


@pytest.mark.parametrize("order", SMALL)
def test_a_cut_is_an_error_wherever_it_is(order: str) -> None:
    data = SMALL[order]
    needed = len(data) - 64 + 34  # the last tensor has 34 bytes and padding
    for at in range(needed):
        assert refusal(data[:at]).code in ("truncated", "gguf.count")
    for at in range(needed, len(data)):
        assert read(data[:at]).findings == []


@pytest.mark.parametrize("order", SMALL)
def test_no_change_of_a_byte_makes_the_reader_fail_in_another_way(order: str) -> None:
    data = bytearray(SMALL[order])
    for at in range(len(data) - 96):
        kept = data[at]
        for byte in (0, 1, 0x7F, 0xFF, kept ^ 1, kept ^ 0x80):
            data[at] = byte
            survives(bytes(data))
        data[at] = kept


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_no_bytes_make_the_reader_fail_in_another_way(data: st.DataObject) -> None:
    file = bytearray(data.draw(st.sampled_from(list(SMALL.values()))))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(file) - 1))
        piece = data.draw(st.binary(max_size=12))
        file[at : at + data.draw(st.integers(0, 12))] = piece
    survives(bytes(file))


def survives(data: bytes) -> None:
    try:
        reading = read(data)
    except FileError:
        return
    json.dumps(reading.metadata, allow_nan=False)
    assert len({tensor.name for tensor in reading.tensors}) == len(reading.tensors)
    for place in reading.places.values():
        assert 0 <= place.offset <= place.offset + place.nbytes <= max(len(data), place.offset)
