"""Values of files are those the file's own library reads, in bounded pieces, whatever lies between them."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from modelglass.analyses.stats.engine import describe
from modelglass.analyses.stats.statistics import source_of
from modelglass.formats.gguf import reader
from modelglass.formats.gguf.types import NAMED
from modelglass.formats.reading import Reading
from modelglass.formats.source import OpenFile, Source
from modelglass.formats.tensors.location import Place
from modelglass.formats.tensors.values import values
from modelglass.report import Packing, Tensor, Values
from sources import DTYPES


def source_of_bytes(data: bytes) -> Source:
    return Source(lambda at, n: data[at : at + n], len(data), file="x")


def reading_of(place: Place | None, *, dtype: str = "float32", shape: tuple[int, ...] = ()) -> Reading:
    reading = Reading(tensors=[Tensor(name="w", kind="parameter", shape=shape, dtype=dtype, storage="w")])
    reading.places = {} if place is None else {"w": place}
    return reading


def values_at(place: Place) -> Values | str:
    return values(reading_of(place))["w"]


def readable(place: Place) -> Values:
    found = values_at(place)
    assert isinstance(found, Values)
    return found


@pytest.mark.parametrize("big_endian", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_elements_of_every_type_in_both_orders(dtype: str, big_endian: bool) -> None:
    expected = np.arange(-30, 30).astype(DTYPES[dtype]).reshape(3, 4, 5)
    if dtype.startswith("complex"):
        expected = expected + np.asarray(0.5j, expected.dtype)
    stored = expected
    if big_endian and expected.itemsize > 1:
        part = expected.itemsize // (2 if dtype.startswith("complex") else 1)
        stored = expected.reshape(-1).view(f"u{part}").byteswap()
    data = b"head" + stored.tobytes() + b"tail"
    place = Place(
        source=source_of_bytes(data),
        offset=4,
        nbytes=expected.nbytes,
        dtype=dtype,
        shape=expected.shape,
        big_endian=big_endian,
    )
    found = readable(place)
    assert (found.dtype, found.shape, found.described) == (dtype, (3, 4, 5), "values")
    flat = expected.reshape(-1)
    assert found.read(0, 60).tobytes() == flat.tobytes()
    assert found.read(7, 31).tobytes() == flat[7:31].tobytes()
    assert found.read(7, 7).size == 0
    assert found.read(0, 9).flags.writeable


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_views_give_the_elements_of_torch(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(0, 5), max_size=4).map(tuple))
    strides = data.draw(st.tuples(*(st.integers(0, 30) for _ in shape)))
    first = data.draw(st.integers(0, 10))
    big_endian = data.draw(st.booleans())
    storage = np.arange(1000, dtype=np.int32)
    raw = storage.byteswap().tobytes() if big_endian else storage.tobytes()
    place = Place(
        source=source_of_bytes(raw),
        offset=0,
        nbytes=len(raw),
        dtype="int32",
        shape=shape,
        strides=strides,
        first=first,
        big_endian=big_endian,
    )
    expected = torch.as_strided(torch.from_numpy(storage), shape, strides, first).reshape(-1).numpy()
    found = readable(place)
    start, stop = sorted(data.draw(st.tuples(*[st.integers(0, expected.size)] * 2)))
    assert found.read(start, stop).view(np.int32).tolist() == expected[start:stop].tolist()


def test_a_piece_of_a_transposed_matrix_reads_little_more_than_the_piece() -> None:
    rows, columns = 2000, 3000
    matrix = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
    source = source_of_bytes(matrix.tobytes())
    place = Place(
        source=source,
        offset=0,
        nbytes=matrix.nbytes,
        dtype="float32",
        shape=(columns, rows),
        strides=(1, columns),
    )
    found = readable(place)
    piece = found.read(100 * rows, 150 * rows).view(np.float32)
    assert np.array_equal(piece, matrix.T[100:150].reshape(-1))
    assert source.meter.nbytes < 2 * piece.nbytes
    whole = found.read(0, rows * columns).view(np.float32)
    assert np.array_equal(whole, matrix.T.reshape(-1))


def test_an_expanded_view_is_read_without_its_copies() -> None:
    source = source_of_bytes(np.arange(4, dtype=np.float32).tobytes())
    place = Place(source=source, offset=0, nbytes=16, dtype="float32", shape=(1_000_000, 4), strides=(0, 1))
    assert readable(place).read(1_000_001, 1_000_006).view(np.float32).tolist() == [1, 2, 3, 0, 1]
    assert source.meter.nbytes <= 16


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"shape": (2**40,), "strides": (0,)}, "expanded from 16 bytes to 1,099,511,627,776 elements"),
        ({"shape": (5,)}, "not all in the file"),
        ({"shape": (4,), "first": 1}, "not all in the file"),
        ({"shape": (2, 2), "strides": (3, 1)}, "not all in the file"),
        ({"shape": (2,), "strides": (-1,), "first": 2}, "stored backwards"),
        ({"shape": (4,), "dtype": "float99"}, "of type float99"),
        ({"shape": (4,), "dtype": "int4"}, "of type int4"),
        ({"shape": (256,), "encoding": "IQ1_S"}, "of the unknown encoding IQ1_S"),
        ({"shape": (64,), "encoding": "Q8_0"}, "not all in the file"),
    ],
)
def test_what_cannot_be_read_is_said_in_words(change: dict[str, object], words: str) -> None:
    fields: dict[str, object] = {
        "source": source_of_bytes(bytes(16)),
        "offset": 0,
        "nbytes": 16,
        "dtype": "float32",
    }
    assert values_at(Place(**(fields | change))) == words  # type: ignore[arg-type]


def test_a_tensor_without_a_place_has_no_values() -> None:
    assert values(reading_of(None)) == {"w": "not stored where they can be read"}


def test_quantized_integers_are_described_as_stored() -> None:
    data = np.array([-3, 4], np.int8).tobytes()
    found = readable(Place(source=source_of_bytes(data), offset=0, nbytes=2, dtype="qint8", shape=(2,)))
    assert (found.dtype, found.described) == ("int8", "stored")


@pytest.mark.parametrize("encoding", ["Q4_0", "Q5_1", "Q8_0", "Q4_K", "Q6_K", "IQ4_XS", "TQ1_0", "MXFP4"])
def test_any_piece_of_a_quantized_tensor_is_dequantized(encoding: str) -> None:
    kind = NAMED[encoding]
    raw = np.random.default_rng(1).integers(0, 64, (6, 2 * kind.nbytes), dtype=np.uint8)
    expected = gguf.dequantize(raw, gguf.GGMLQuantizationType[encoding]).reshape(-1)
    place = Place(
        source=source_of_bytes(raw.tobytes()),
        offset=0,
        nbytes=raw.nbytes,
        dtype=encoding.lower(),
        shape=(6, 2 * kind.numel),
        encoding=encoding,
    )
    found = readable(place)
    assert (found.dtype, found.described) == ("float32", "dequantized")
    for start, stop in (
        (0, expected.size),
        (5, 6),
        (kind.numel - 1, kind.numel + 1),
        (9, 9),
        (0, kind.numel),
    ):
        assert np.array_equal(found.read(start, stop).view(np.float32), expected[start:stop], equal_nan=True)


@pytest.mark.parametrize("name", ["Q4_0", "Q8_0", "Q5_1", "Q4_1", "Q5_0", "TQ2_0"])
def test_statistics_of_a_quantized_file_are_those_of_its_dequantized_weights(
    tmp_path: Path, name: str
) -> None:
    kind = gguf.GGMLQuantizationType[name]
    weights = np.random.default_rng(2).normal(size=(96, 512)).astype(np.float32)
    packed = gguf.quantize(weights, kind)
    path = tmp_path / "x.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor("w", packed, raw_dtype=kind)
    writer.add_tensor("plain", weights)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    reading = Reading()
    with OpenFile(path) as source:
        reader.read(source, reading)
        offered = values(reading)
        kept = {tensor.name: source_of(tensor, offered) for tensor in reading.tensors}
        found = describe({name: one for name, one in kept.items() if isinstance(one, Values)})
    assert found["w"].described == "dequantized"
    assert found["plain"].described == "values"
    for key, numbers in (("w", gguf.dequantize(packed, kind)), ("plain", weights)):
        expected = numbers.astype(np.float64)
        stats = found[key]
        assert stats.count == expected.size
        assert (stats.min, stats.max) == (expected.min(), expected.max())
        assert stats.zeros == np.count_nonzero(expected == 0)
        assert stats.mean == pytest.approx(expected.mean(), rel=1e-9, abs=1e-12)
        assert stats.std == pytest.approx(expected.std(ddof=1), rel=1e-9)
        assert stats.l2 == pytest.approx(np.linalg.norm(expected), rel=1e-9)
        assert stats.histogram is not None
        assert sum(stats.histogram.counts) == expected.size


def test_other_packed_weights_are_still_described_as_stored() -> None:
    packing = Packing(scheme="awq", logical_shape=(8,), nbytes=4)
    tensor = Tensor(name="w", kind="packed", shape=(1,), dtype="int32", storage="w", packing=packing)
    offered = Values(dtype="int32", shape=(1,), read=lambda start, stop: np.zeros(1, np.int32))
    found = source_of(tensor, {"w": offered})
    assert isinstance(found, Values)
    assert found.described == "stored"
