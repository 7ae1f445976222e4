from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors as reference
import torch
from hypothesis import HealthCheck, given, settings, strategies as st
from safetensors import numpy as numpy_writer, torch as torch_writer

from modelglass.errors import CorruptFileError, FileError, LimitError
from modelglass.formats import safetensors
from modelglass.formats.limits import Limits
from modelglass.formats.reading import Reading
from modelglass.formats.source import OpenFile, Source

NEVER = re.compile(rb"(?!)")


def _read(data: bytes, limits: Limits | None = None) -> Reading:
    source = Source(lambda at, n: data[at : at + n], len(data), file="x.safetensors")
    reading = Reading(limits=limits or Limits())
    safetensors.read(source, reading)
    assert reading.format == "safetensors"
    return reading


def _file(header: bytes | dict[str, Any], nbytes: int = 0) -> bytes:
    if isinstance(header, dict):
        header = json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(header)) + header + bytes(nbytes)


def _entry(begin: int, end: int, dtype: str = "U8", shape: list[Any] | None = None) -> dict[str, Any]:
    return {
        "dtype": dtype,
        "shape": [end - begin] if shape is None else shape,
        "data_offsets": [begin, end],
    }


def _facts(reading: Reading) -> Any:
    tensors = {t.name: (t.dtype, t.shape, reading.places[t.name].offset, t.nbytes) for t in reading.tensors}
    return tensors, reading.metadata, [finding.code for finding in reading.findings]


def _outcome(data: bytes) -> Any:
    try:
        return _facts(_read(data))
    except FileError as error:
        return error.code, error.offset


def _without_pattern(work: Callable[[], Any]) -> Any:
    """What comes out when every entry goes through the JSON parser."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(safetensors, "_ENTRY", NEVER)
        return work()


def test_torch_files_give_the_names_types_shapes_and_values_of_the_reference_reader(tmp_path: Path) -> None:
    names = (
        "bool uint8 int8 int16 uint16 int32 uint32 int64 uint64 float16 bfloat16 float32 float64 complex64"
    )
    names += " float8_e5m2 float8_e4m3fn float8_e8m0fnu float8_e4m3fnuz float8_e5m2fnuz"
    tensors = {
        f"{name}.{len(shape)}": torch.arange(max(1, int(np.prod(shape))))[: int(np.prod(shape))]
        .reshape(shape)
        .to(torch.float32)
        .to(getattr(torch, name))
        for name in names.split()
        for shape in ((), (3, 5), (2, 0, 4))
    }
    path = tmp_path / "m.safetensors"
    torch_writer.save_file(tensors, path, metadata={"format": "pt", "né": '"quoted"'})
    with OpenFile(path) as source, reference.safe_open(path, "pt") as theirs:
        reading = Reading()
        safetensors.read(source, reading)
        assert {t.name for t in reading.tensors} == set(theirs.keys()) == set(reading.places)
        assert len(reading.places) == len(tensors)
        assert reading.metadata == theirs.metadata()
        assert reading.findings == []
        for tensor in reading.tensors:
            expected = theirs.get_tensor(tensor.name)
            assert (tensor.shape, f"torch.{tensor.dtype}") == (tuple(expected.shape), str(expected.dtype))
            place = reading.places[tensor.name]
            assert (place.dtype, place.shape) == (tensor.dtype, tensor.shape)
            stored = source.read(place.offset, place.nbytes, "values")
            assert stored == expected.reshape(-1).view(torch.uint8).numpy().tobytes()
        assert source.meter.nbytes < source.nbytes + 10 * len(tensors)


def test_numpy_files_hold_the_values_at_their_places(tmp_path: Path) -> None:
    arrays = {"a": np.arange(12, dtype=np.float32).reshape(3, 4), "b": np.array(7, dtype=np.int64)}
    data = numpy_writer.save(arrays)
    reading = _read(data)
    for name, array in arrays.items():
        place = reading.places[name]
        stored = np.frombuffer(data[place.offset : place.offset + place.nbytes], place.dtype)
        assert np.array_equal(stored.reshape(place.shape), array)


@pytest.mark.parametrize(("dtype", "bits"), [("F4", 4), ("F6_E2M3", 6), ("F6_E3M2", 6)])
def test_types_below_a_byte_keep_their_logical_shape(dtype: str, bits: int) -> None:
    reading = _read(_file({"w": _entry(0, bits, dtype, [2, 4])}, bits))
    assert (reading.tensors[0].shape, reading.tensors[0].nbytes) == ((2, 4), bits)


def test_every_type_that_the_reference_reader_knows_is_known() -> None:
    for dtype, ours in safetensors.DTYPES.items():
        nbytes = 3 * safetensors.BITS[ours]
        data = _file({"w": _entry(0, nbytes, dtype, [2, 3, 4])}, nbytes)
        (tensor,) = _read(data).tensors
        reference.deserialize(data)
        assert tensor.dtype == ours


@pytest.mark.parametrize(
    ("header", "count"),
    [
        (b"{}", 0),
        (b"{ }   ", 0),
        (b"{" + b" " * 100_000 + b"}", 0),
        (b'{"__metadata__":{}}', 0),
        (b'{"__metadata__":null}', 0),
        (
            b'{\n"a" : {"dtype":"U8","shape":[0],'
            b'"data_offsets":[0,0]}\n, "b":{"dtype":"U8","shape":[0],"data_offsets":[0,0]} } ',
            2,
        ),
    ],
)
def test_empty_headers_and_white_space_are_fine(header: bytes, count: int) -> None:
    reading = _read(_file(header))
    assert (len(reading.tensors), reading.findings) == (count, [])


def test_order_in_the_header_need_not_be_order_in_the_data() -> None:
    header = {"b": _entry(4, 8), "e": _entry(4, 4), "a": _entry(0, 4), "z": _entry(0, 0), "y": _entry(8, 8)}
    reading = _read(_file(header, 8))
    assert [t.name for t in reading.tensors] == list(header)
    assert reading.places["b"].offset == reading.places["a"].offset + 4


def test_nul_padding_is_mentioned_and_spaces_are_not() -> None:
    plain = json.dumps({"a": _entry(0, 4)}).encode()
    assert _read(_file(plain + b"   ", 4)).findings == []
    (finding,) = _read(_file(plain + b" \0\0\0", 4)).findings
    assert (finding.code, finding.level, finding.offset) == ("safetensors.padding", "info", 9 + len(plain))


def test_long_metadata_is_shortened_and_says_so() -> None:
    reading = _read(_file({"__metadata__": {"k": "x" * 100}}), Limits(kept_text=10))
    assert reading.metadata == {"k": "x" * 10}
    assert [finding.code for finding in reading.findings] == ["text.shortened"]


GOOD = json.dumps({"a": _entry(0, 4)}, separators=(",", ":")).encode()


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "truncated"),
        (b"\2\0\0\0\0\0\0", "truncated"),
        (struct.pack("<Q", 2**63) + b"{}", "safetensors.header-length"),
        (struct.pack("<Q", 3) + b"{}", "safetensors.header-length"),
        (struct.pack("<Q", 0) + b"{}", "safetensors.header-length"),
        (_file(b"nonsense"), "safetensors.header-start"),
        (_file(b"[1, 2, 3]"), "safetensors.header-start"),
        (_file(b"\xef\xbb\xbf{}"), "safetensors.header-start"),
        (_file(b"{,}"), "json.syntax"),
        (_file(GOOD[:-1] + b",}", 4), "json.syntax"),
        (_file(GOOD[:-1] + b",,}", 4), "json.syntax"),
        (_file(GOOD[:-1], 4), "json.syntax"),
        (_file(GOOD[:-1] + b"]", 4), "json.syntax"),
        (_file(GOOD + b"x", 4), "json.syntax"),
        (_file(GOOD + GOOD, 4), "json.syntax"),
        (_file(b'{"a\xff"' + GOOD[4:], 4), "json.encoding"),
        (_file(b'{"a\\ud800"' + GOOD[4:], 4), "json.encoding"),
        (_file(b'{"a":NaN}'), "json.number"),
        (_file(GOOD.replace(b"[4]", b"[" + b"4" * 5000 + b"]"), 4), "json.number"),
        (_file(b'{"a":' + b"[" * 100_000 + b"}"), "json.depth"),
        (_file({"a": {"dtype": "U8", "shape": [4]}}, 4), "safetensors.entry"),
        (_file({"a": 1}), "safetensors.entry"),
        (_file({"__metadata__": {"a": 1}}), "safetensors.metadata"),
        (_file({"__metadata__": _entry(0, 4)}, 4), "safetensors.metadata"),
        (_file(b'{"__metadata__":{},"__metadata__":{}}'), "json.duplicate-key"),
        (_file({"a": _entry(0, 4), "b": _entry(2, 6)}, 6), "safetensors.overlap"),
        (_file({"a": _entry(0, 4), "b": _entry(0, 4)}, 4), "safetensors.overlap"),
        (_file({"a": _entry(0, 4), "b": _entry(2, 2)}, 4), "safetensors.overlap"),
        (_file({"a": _entry(0, 4), "b": _entry(5, 6)}, 6), "safetensors.gap"),
        (_file({"a": _entry(1, 4)}, 4), "safetensors.gap"),
        (_file({"a": _entry(0, 5)}, 4), "safetensors.out-of-range"),
        (_file({"a": _entry(0, 2**70, "U8", [2**70])}, 4), "safetensors.out-of-range"),
        (_file({"a": _entry(0, 2**64, "U8", [2**64])}, 4), "safetensors.out-of-range"),
        (_file({"a": _entry(4, 0, "U8", [4])}, 4), "safetensors.offsets"),
        (_file({"a": {**_entry(0, 4), "data_offsets": [0, 4, 8]}}, 4), "safetensors.offsets"),
        (_file({"a": {**_entry(0, 4), "data_offsets": [0, 4.0]}}, 4), "safetensors.offsets"),
        (_file({"a": {**_entry(0, 4), "data_offsets": [False, 4]}}, 4), "safetensors.offsets"),
        (_file({"a": _entry(0, 4)}, 5), "safetensors.trailing"),
        (_file({}, 1), "safetensors.trailing"),
        (_file({"a": _entry(0, 4)}, 4) + b"PK\5\6" + bytes(18), "safetensors.trailing"),
        (_file({"a": _entry(0, 4, "U8", [-4])}, 4), "safetensors.shape"),
        (_file({"a": _entry(0, 4, "U8", [4.0])}, 4), "safetensors.shape"),
        (_file({"a": _entry(0, 1, "U8", [True])}, 1), "safetensors.shape"),
        (_file({"a": {**_entry(0, 4), "shape": 4}}, 4), "safetensors.shape"),
        (_file({"a": _entry(0, 4, "U8", [2**63, 2**63])}, 4), "safetensors.size"),
        (_file({"a": _entry(0, 4, "F32", [2])}, 4), "safetensors.size"),
        (_file({"a": _entry(0, 2, "F4", [3])}, 2), "safetensors.size"),
        (_file({"a": _entry(0, 4, "F33")}, 4), "safetensors.dtype"),
        (_file({"a": {**_entry(0, 4), "dtype": ["U8"]}}, 4), "safetensors.dtype"),
    ],
)
def test_a_wrong_file_is_refused_with_its_reason(data: bytes, code: str) -> None:
    _assert_refused(data, code)
    with pytest.raises(reference.SafetensorError):
        reference.deserialize(data)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (_file(b" {}"), "safetensors.header-start"),
        (_file(b"{" + GOOD[1:-1] + b"," + GOOD[1:], 4), "json.duplicate-key"),
        (_file({"a": {**_entry(0, 4), "x": 1}}, 4), "safetensors.entry"),
    ],
)
def test_what_the_reference_reader_lets_pass_is_refused(data: bytes, code: str) -> None:
    _assert_refused(data, code)
    reference.deserialize(data)


def _assert_refused(data: bytes, code: str) -> None:
    with pytest.raises(CorruptFileError) as raised:
        _read(data)
    assert raised.value.code == code
    assert raised.value.offset is not None
    assert raised.value.exit_code == 3
    assert _without_pattern(lambda: _outcome(data))[0] == code


def test_a_duplicate_key_far_away_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    header = {f"t{i}": _entry(4 * i, 4 * i + 4) for i in range(200)}
    text = json.dumps(header, separators=(",", ":")).encode()[:-1] + b',"t3":' + GOOD[5:]
    monkeypatch.setattr(safetensors, "_WINDOW", 64)
    monkeypatch.setattr(safetensors, "_BATCH", 100)
    with pytest.raises(CorruptFileError, match="duplicate key 't3': first uint8") as raised:
        _read(_file(text, 800))
    assert raised.value.offset == 8 + text.rindex(b'"t3"')


def test_limits_stop_the_reading_and_are_named() -> None:
    data = _file({f"t{i}": _entry(0, 0) for i in range(10)})
    with pytest.raises(LimitError, match="tensors = 9"):
        _read(data, Limits(tensors=9))
    assert len(_read(data, Limits(tensors=10)).tensors) == 10
    with pytest.raises(LimitError, match="header_nbytes"):
        _read(data, Limits(header_nbytes=50))
    with pytest.raises(CorruptFileError, match="dims = 64"):
        _read(_file({"a": _entry(0, 1, "U8", [1] * 65)}, 1))
    with pytest.raises(CorruptFileError, match="dims = 64"):
        _read(_file({"a": _entry(0, 1, "U8", [1] * 1_000_000)}, 1))


def test_a_header_longer_than_the_format_allows_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    with path.open("wb") as file:
        file.write(struct.pack("<Q", 101_000_000))
        file.truncate(200_000_000)
    with OpenFile(path) as source, pytest.raises(CorruptFileError, match="the format allows 100,000,000"):
        safetensors.read(source, Reading())


def test_a_sparse_file_of_one_tebibyte_is_read_at_once(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    head = _file({"a": _entry(0, 1 << 40, "F32", [1 << 19, 1 << 19])})
    with path.open("wb") as file:
        file.write(head)
        try:
            file.truncate(len(head) + (1 << 40))
        except OSError:
            pytest.skip("this file system has no files of that size")
    with OpenFile(path) as source:
        reading = Reading()
        safetensors.read(source, reading)
        assert source.meter.nbytes == len(head)
    assert reading.tensors[0].nbytes == 1 << 40


def test_a_name_may_be_larger_than_a_window() -> None:
    name = '[{,\\"' * 500_000
    assert [t.name for t in _read(_file({name: _entry(0, 4), "b": _entry(4, 5)}, 5)).tensors] == [name, "b"]


@pytest.mark.parametrize(
    "header",
    [
        b'{"' + b'\\"' * 1_000_000,
        b"{" + b'"' * 1_000_000,
        b'{"a":' + b"[" * 1_000_000,
        b'{"a":[' + b"[]," * 1_000_000 + b"[]]}",
        b"{" + b'"":' * 1_000_000 + b"}",
        b"{" + b'"a":{"dtype":"F32","shape":[,' * 100_000 + b"}",
    ],
    ids=["string", "quotes", "open", "pairs", "colons", "halves"],
)
def test_a_long_strange_header_is_refused_without_being_parsed(header: bytes) -> None:
    with pytest.raises(CorruptFileError) as raised:
        _read(_file(header))
    assert raised.value.code in ("json.syntax", "json.depth")


def test_metadata_of_very_many_texts_meets_a_limit() -> None:
    data = _file({"__metadata__": {str(i): "" for i in range(100)}})
    assert len(_read(data).metadata) == 100
    with pytest.raises(LimitError, match="tensors = 20"):
        _read(data, Limits(tensors=20))


def test_looks_like_tells_a_plausible_start() -> None:
    data = _file(GOOD, 4)
    assert safetensors.looks_like(data[:16], len(data))
    assert not safetensors.looks_like(data[:16], 20)
    assert not safetensors.looks_like(data[:8], len(data))
    assert not safetensors.looks_like(b"PK\3\4" + bytes(12), 1 << 50)
    assert not safetensors.looks_like(b"", 0)


NAMES = st.text(st.characters(exclude_categories=("Cs",)), max_size=8) | st.text('",:{}[]\\ é', max_size=6)
STATE = st.dictionaries(
    NAMES.filter(lambda name: name != "__metadata__"),
    st.tuples(
        st.sampled_from(["bool", "uint8", "int16", "float16", "float32", "float64", "int64", "complex64"]),
        st.lists(st.integers(0, 4), max_size=4),
    ),
    max_size=8,
)
RELAXED = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def _saved(state: dict[str, tuple[str, list[int]]], metadata: dict[str, str] | None = None) -> bytes:
    return numpy_writer.save({n: np.zeros(s, d) for n, (d, s) in state.items()}, metadata)


@RELAXED
@given(STATE, st.dictionaries(NAMES, NAMES, max_size=3))
def test_what_the_reference_writer_saves_reads_back(
    state: dict[str, tuple[str, list[int]]], metadata: dict[str, str]
) -> None:
    data = _saved(state, metadata or None)  # with neither, the writer gives no valid JSON
    reading = _read(data)
    assert {t.name: (t.dtype, list(t.shape or ())) for t in reading.tensors} == state
    assert reading.metadata == metadata
    assert _without_pattern(lambda: _outcome(data)) == _facts(reading)


@RELAXED
@given(
    STATE, st.integers(1, 200), st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", "\t:")]), st.booleans()
)
def test_windows_and_spelling_do_not_change_the_result(
    state: dict[str, tuple[str, list[int]]], window: int, separators: tuple[str, str], ascii_only: bool
) -> None:
    data = _saved(state, {"format": "np"})
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    respelled = _file(
        json.dumps(header, separators=separators, ensure_ascii=ascii_only).encode(), len(data) - 8 - length
    )
    expected = _outcome(respelled)
    assert not isinstance(expected[0], str)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(safetensors, "_WINDOW", window)
        patch.setattr(safetensors, "_BATCH", max(1, window // 2))
        assert _outcome(respelled) == expected
        assert _without_pattern(lambda: _outcome(respelled)) == expected


@settings(RELAXED, max_examples=300)
@given(STATE, st.integers(0, 10_000), st.integers(0, 255), st.integers(1, 100))
def test_a_changed_byte_is_read_the_same_way_by_both_parsers(
    state: dict[str, tuple[str, list[int]]], at: int, byte: int, window: int
) -> None:
    data = bytearray(_saved({**state, "w": ("float32", [2, 3])}, {"format": "np"}))
    data[at % (8 + struct.unpack("<Q", data[:8])[0])] = byte
    outcome = _outcome(bytes(data))
    other = _without_pattern(lambda: _outcome(bytes(data)))
    # Which of two problems is met first may differ, not whether there is one.
    assert other == outcome or (isinstance(other[0], str) and isinstance(outcome[0], str))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(safetensors, "_WINDOW", window)
        again = _outcome(bytes(data))
    assert again == outcome or (isinstance(again[0], str) and isinstance(outcome[0], str))
    try:
        reference.deserialize(bytes(data))
    except reference.SafetensorError:
        assert isinstance(outcome[0], str) or "safetensors.padding" in outcome[2]


def test_a_file_cut_anywhere_is_refused() -> None:
    data = _saved({"a": ("float32", [2, 3]), "b": ("int64", [4])}, {"format": "np"})
    for length in range(len(data)):
        with pytest.raises(CorruptFileError):
            _read(data[:length])
