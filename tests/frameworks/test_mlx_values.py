"""Values of MLX arrays: the right bits, in pieces, and no memory kept."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn
from mlx_lm.models.bitlinear_layers import BitLinear
from mlx_lm.models.switch_layers import SwitchLinear

import modelglass as mg
from modelglass.analyses.stats.engine import describe
from modelglass.errors import TargetError
from modelglass.frameworks.mlx.structure.values import values
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


def as_mlx_has_it(layer: nn.Module) -> Any:
    """The weights of a quantized layer, in 32-bit floats."""
    settings = {"group_size": layer.group_size, "bits": layer.bits, "mode": layer.mode}
    weight, scales, whole = layer.weight, layer.scales, layer.get("global_scale")
    if layer.mode == "affine":
        biases = layer.biases.astype(mx.float32)
        return np.array(mx.dequantize(weight, scales.astype(mx.float32), biases, **settings))
    settings["dtype"] = mx.float32
    if whole is None:
        return np.array(mx.dequantize(weight, scales, **settings))
    each = zip(weight, scales, whole, strict=True)
    return np.array(mx.stack([mx.dequantize(w, s, global_scale=one, **settings) for w, s, one in each]))


def linear(dtype: mx.Dtype = mx.float32) -> nn.Linear:
    native = nn.Linear(256, 24)
    native.set_dtype(dtype)
    return native


PACKED: dict[str, Callable[[], nn.Module]] = {
    **{f"{bits} bits": lambda bits=bits: linear().to_quantized(64, bits) for bits in (1, 2, 3, 4, 5, 6, 8)},  # type: ignore[misc]
    "half": lambda: linear(mx.float16).to_quantized(32, 3),
    "bfloat16": lambda: linear(mx.bfloat16).to_quantized(128, 4),
    "mxfp4": lambda: linear().to_quantized(mode="mxfp4"),
    "nvfp4": lambda: linear().to_quantized(mode="nvfp4"),
    "mxfp8": lambda: linear(mx.bfloat16).to_quantized(mode="mxfp8"),
    "embedding": lambda: nn.Embedding(50, 128).to_quantized(64, 4),
    "experts": lambda: SwitchLinear(128, 24, 4).to_quantized(64, 5),
    "experts, nvfp4": lambda: SwitchLinear(128, 24, 4).to_quantized(16, 4, "nvfp4"),
    "experts with a scale each": lambda: SwitchLinear(64, 32, 4, bias=False).to_quantized(
        16, 4, "nvfp4", global_scale=True
    ),
}


@pytest.mark.parametrize("build", PACKED.values(), ids=PACKED)
def test_packed_weights_are_read_as_what_they_stand_for(build: Callable[[], nn.Module]) -> None:
    native = build()
    found = values_of(native)
    source, truth = found["weight"], as_mlx_has_it(native)
    assert (source.dtype, source.shape, source.described) == ("float32", truth.shape, "dequantized")
    assert np.array_equal(source.read(0, source.numel).view("u4"), truth.reshape(-1).view("u4"))
    with source.holding():
        assert np.array_equal(source.read(100, 777), truth.reshape(-1)[100:777])
    assert {each.described for name, each in found.items() if name != "weight"} == {"values"}
    assert found["scales"].shape == tuple(native.scales.shape)


@pytest.mark.slow
@pytest.mark.parametrize("waits", [True, False], ids=["waiting", "computed"])
def test_packed_weights_are_read_in_bounded_memory(waits: bool) -> None:
    native = nn.QuantizedEmbedding(4096, 1024)
    if not waits:
        mx.eval(native.parameters())
    before = mx.get_active_memory()
    found = describe(values_of(native), workers=2)
    assert mx.get_active_memory() - before < 64 << 10
    truth = as_mlx_has_it(native)
    stats = found["weight"]
    assert (stats.count, stats.min, stats.max) == (truth.size, truth.min(), truth.max())
    assert stats.mean == pytest.approx(truth.astype(np.float64).mean(), abs=1e-9)
    assert stats.zeros == np.count_nonzero(truth == 0)


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="threads are counted as Linux lists them")
def test_reading_leaves_no_threads_of_mlx_behind() -> None:
    """It keeps one for every thread that ever computed something with it."""
    native = nn.QuantizedLinear(512, 512)
    mx.eval(native.parameters())
    before = len(os.listdir("/proc/self/task"))
    for _ in range(5):
        describe(values_of(native), workers=2)
    assert len(os.listdir("/proc/self/task")) <= before + 2  # of ours, which have not quite ended


def test_scales_that_wait_beside_words_that_do_not_are_computed_apart() -> None:
    native = nn.QuantizedLinear(2048, 2048, bias=False)
    mx.eval(native.parameters())
    native.set_dtype(mx.bfloat16)  # converts scales and biases only, and later
    before = mx.get_active_memory()
    source = values_of(native)["weight"]
    with source.holding():
        piece = source.read(5, 3000)
    assert mx.get_active_memory() - before < 1 << 10
    assert np.array_equal(piece, as_mlx_has_it(native).reshape(-1)[5:3000])


def test_packed_weights_that_are_not_certain_are_described_as_stored() -> None:
    weight, scales, biases = mx.quantize(mx.zeros((32, 256)), 64, 4)
    assumed = module_with(q={"weight": weight, "scales": scales, "biases": biases})
    ternary = BitLinear(64, 32, bias=False)
    for native, name in ((assumed, "q.weight"), (ternary, "weight")):
        assert values_of(native)[name].described == "stored"


def quantized_pair(change: Callable[[mx.array], mx.array]) -> nn.Sequential:
    """A changed layer of 8 bits beside a healthy one."""
    mx.random.seed(0)
    layers = [nn.Linear(128, 96, bias=False) for _ in range(2)]
    layers[0].weight = change(layers[0].weight)
    return nn.Sequential(*(layer.to_quantized(64, 8) for layer in layers))


def at(index: Any, value: float) -> Callable[[mx.array], mx.array]:
    def change(weight: mx.array) -> mx.array:
        weight[index] = value
        return weight

    return change


FOUND: dict[str, tuple[Callable[[mx.array], mx.array], str]] = {
    "zero": (mx.zeros_like, ""),
    "dead-rows": (at(slice(3, 6), 0.0), "has 3, the first is 3"),
    "dead-columns": (at((slice(None), slice(0, 64)), 0.0), "has 64, the first is 0"),
    "outlier": (at((7, 9), 50.0), "times as far as usual"),
    "scale": (lambda weight: weight * 1e6, "is around 5."),
}


@pytest.mark.parametrize("code", FOUND)
def test_findings_are_about_the_numbers_of_packed_weights(code: str) -> None:
    change, detail = FOUND[code]
    notes = {note.code: note for note in mg.inspect(quantized_pair(change), stats=True).notes}
    assert notes[code].where[0] == "layers.0.weight"
    assert detail in notes[code].details[0]
    assert "layers.1.weight" not in notes[code].where
    assert "stored-values" not in notes


def test_a_scale_that_is_no_number_is_found_where_it_tells() -> None:
    native = quantized_pair(mx.array)
    native.layers[1].scales[2, 1] = float("nan")
    (note,) = [note for note in mg.inspect(native, stats=True).notes if note.code == "nan"]
    assert dict(zip(note.where, note.details, strict=True)) == {
        "layers.1.weight": "has 64, the first at [2, 64]",
        "layers.1.scales": "has 1, the first at [2, 1]",
    }


def test_packed_weights_that_are_equal_are_found() -> None:
    native = quantized_pair(mx.array)
    for name in ("weight", "scales", "biases"):
        native.layers[1][name] = native.layers[0][name] + 0
    (note,) = [note for note in mg.inspect(native, stats=True).notes if note.code == "duplicate"]
    assert note.where == ("layers.1.weight", "layers.1.scales", "layers.1.biases")
    native.layers[1].scales *= 2  # the same words, and other weights
    notes = mg.inspect(native, stats=True).notes
    assert [note.where for note in notes if note.code == "duplicate"] == [("layers.1.biases",)]


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
