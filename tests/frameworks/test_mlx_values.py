"""Values of MLX arrays: the right bits, in pieces, and no memory kept."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn

import modelglass as mg
from modelglass.analyses.stats.engine import describe
from modelglass.errors import TargetError
from modelglass.frameworks.mlx.values import values
from modelglass.report import Values


def values_of(native: nn.Module) -> dict[str, Values]:
    found = values(native)
    assert all(isinstance(each, Values) for each in found.values())
    return found  # type: ignore[return-value]


def module_with(**arrays: Any) -> nn.Module:
    native = nn.Module()
    for name, array in arrays.items():
        setattr(native, name, array)
    return native


TYPES = ["bool_", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"]
TYPES += ["float16", "float32", "complex64"]


@pytest.mark.parametrize("name", TYPES)
def test_every_type_is_read_as_it_is_stored(name: str) -> None:
    array = mx.arange(24).reshape(2, 3, 4).astype(getattr(mx, name))
    source = values_of(module_with(x=array))["x"]
    assert (source.dtype, source.shape) == (name.removesuffix("_"), (2, 3, 4))
    assert np.array_equal(source.read(5, 17), np.array(array).reshape(-1)[5:17])


def test_sixteen_bit_floats_that_numpy_lacks_are_read_as_words() -> None:
    array = mx.array([1.0, -2.5, float("nan"), 3.14159]).astype(mx.bfloat16)
    words = values_of(module_with(x=array))["x"].read(0, 4)
    assert words.dtype == np.uint16
    assert np.array_equal(
        (words.astype(np.uint32) << 16).view(np.float32), np.array(array.astype(mx.float32)), equal_nan=True
    )


def test_pieces_of_a_transposed_array_come_in_row_major_order() -> None:
    array = mx.arange(60).reshape(5, 12).T
    source = values_of(module_with(x=array))["x"]
    assert [source.read(at, at + 20).tolist() for at in (0, 20, 40)] == [
        np.arange(60).reshape(5, 12).T.reshape(-1)[at : at + 20].tolist() for at in (0, 20, 40)
    ]


def test_an_empty_array_and_a_single_number() -> None:
    found = values_of(module_with(empty=mx.zeros((0, 3)), one=mx.array(2.5)))
    assert found["empty"].read(0, 0).tolist() == []
    assert found["one"].read(0, 1).tolist() == [2.5]


def test_what_is_read_cannot_be_written() -> None:
    piece = values_of(module_with(x=mx.zeros((3,))))["x"].read(0, 3)
    with pytest.raises(ValueError, match="read-only"):
        piece[0] = 1


def test_packed_weights_are_described_as_stored() -> None:
    found = values_of(nn.QuantizedLinear(64, 64))
    assert {name: each.described for name, each in found.items()} == {
        "weight": "stored",
        "scales": "values",
        "biases": "values",
        "bias": "values",
    }


def test_statistics_of_a_model_that_nobody_computed_keep_no_memory() -> None:
    native = nn.Sequential(nn.Linear(1024, 512), nn.relu, nn.Linear(512, 1024), nn.Embedding(2048, 128))
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    found = describe(values_of(native), workers=2)
    assert mx.get_active_memory() - before < 64 << 10
    total = 4 * (2 * 1024 * 512 + 2048 * 128)
    assert mx.get_peak_memory() - before < 3 * total
    for name, weight in (
        ("layers.0.weight", native.layers[0].weight),
        ("layers.3.weight", native.layers[3].weight),
    ):
        truth = np.array(weight).astype(np.float64)
        assert found[name].mean == pytest.approx(truth.mean(), abs=1e-9)
        assert found[name].std == pytest.approx(truth.std(ddof=1), rel=1e-6)
        assert (found[name].min, found[name].max) == (truth.min(), truth.max())


def test_arrays_that_wait_for_a_file_are_read(tmp_path: Path) -> None:
    file = str(tmp_path / "x.safetensors")
    mx.save_safetensors(file, {"x": mx.arange(100).astype(mx.float32)})
    native = module_with(x=mx.load(file)["x"])
    source = values_of(native)["x"]
    with source.holding():
        assert source.read(10, 13).tolist() == [10, 11, 12]
        assert source.read(97, 100).tolist() == [97, 98, 99]


def test_other_threads_read_what_one_holds() -> None:
    source = values_of(nn.Linear(64, 64, bias=False))["weight"]
    pieces: dict[int, Any] = {}

    def read(at: int) -> None:
        pieces[at] = source.read(at * 1024, (at + 1) * 1024)

    with source.holding():
        threads = [threading.Thread(target=read, args=(at,)) for at in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert np.array_equal(np.concatenate([pieces[at] for at in range(4)]), source.read(0, 4096))


def test_what_cannot_be_computed_is_said() -> None:
    native = nn.Linear(4, 4)
    raised: list[BaseException] = []

    def read() -> None:
        try:
            values_of(native)["weight"].read(0, 16)
        except TargetError as error:
            raised.append(error)

    thread = threading.Thread(target=read)  # which did not make the array
    thread.start()
    thread.join()
    assert "MLX cannot compute an array of the model" in str(raised[0])


def test_a_shared_array_is_computed_once_for_all_its_names() -> None:
    native = module_with(a=nn.Linear(8, 8, bias=False), b=nn.Linear(8, 8, bias=False))
    native.b.weight = native.a.weight
    found = values_of(native)
    with found["a.weight"].holding(), found["b.weight"].holding():
        one, other = found["a.weight"].read(0, 64), found["b.weight"].read(0, 64)
        assert np.shares_memory(one, other)


def test_the_report_has_statistics_of_every_array() -> None:
    native = nn.Sequential(nn.Linear(16, 8), nn.BatchNorm(8))
    native.set_dtype(mx.bfloat16)
    report = mg.inspect(native, stats=True)
    assert report.stats is not None
    assert set(report.stats) == {tensor.name for tensor in report.model.tensors}
    assert report.stats["layers.1.weight"].mean == 1
