"""Numbers of packed weights are those of `mx.dequantize`, bit by bit, whatever is stored and asked for."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from modelglass.quantized import dequantized
from modelglass.quantized.numbers import PIECE
from modelglass.report import Packing, Values

Arrays = dict[str, mx.array]

GROUPS = {"mxfp4": 32, "nvfp4": 16, "mxfp8": 32}
BITS = {"mxfp4": 4, "nvfp4": 4, "mxfp8": 8}


def stored(array: mx.array) -> Values:
    words = np.array(array.view(mx.uint16) if array.dtype == mx.bfloat16 else array).reshape(-1)
    name = str(array.dtype).removeprefix("mlx.core.")
    return Values(dtype=name, shape=tuple(array.shape), read=lambda start, stop: words[start:stop])


def offered(scheme: str, arrays: Arrays, shape: tuple[int, ...]) -> Values | None:
    weight, *_ = arrays.values()
    packing = Packing(scheme=scheme, logical_shape=shape, nbytes=weight.nbytes)
    return dequantized(packing, stored(weight), {name: stored(a) for name, a in list(arrays.items())[1:]})


def bits_read(found: Values | None, start: int = 0, stop: int | None = None) -> Any:
    assert found is not None
    assert (found.dtype, found.described) == ("float32", "dequantized")
    return found.read(start, found.numel if stop is None else stop).view(np.uint32)


def random_words(*shape: int) -> mx.array:
    return mx.array(np.random.default_rng(0).integers(0, 1 << 32, shape, dtype=np.uint32))


def affine(bits: int, group: int, dtype: mx.Dtype, outer: tuple[int, ...] = (6,)) -> tuple[Arrays, Any]:
    """Every field is random, and so are scales and biases; with what MLX makes of them."""
    weight = random_words(*outer, 256 * bits // 32)
    scales, biases = (mx.random.normal((*outer, 256 // group)).astype(dtype) for _ in range(2))
    truth = mx.dequantize(weight, scales.astype(mx.float32), biases.astype(mx.float32), group, bits)
    return {"weight": weight, "scales": scales, "biases": biases}, np.array(truth).reshape(-1)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("group", [32, 64, 128])
@pytest.mark.parametrize("bits", [1, 2, 3, 4, 5, 6, 8])
def test_every_affine_layout(bits: int, group: int, dtype: str) -> None:
    arrays, truth = affine(bits, group, getattr(mx, dtype))
    found = offered(f"mlx-{bits}bit", arrays, (6, 256))
    assert np.array_equal(bits_read(found), truth.view(np.uint32))


@pytest.mark.parametrize("mode", GROUPS)
def test_every_scale_of_the_floating_point_modes(mode: str) -> None:
    """Infinite ones and those that are no number among them, and all elements there are."""
    columns = 256
    weight = np.tile(np.arange(256, dtype=np.uint8), (256, 1))[:, : BITS[mode] * columns // 8].copy()
    scales = np.repeat(np.arange(256, dtype=np.uint8)[:, None], columns // GROUPS[mode], axis=1)
    arrays = {"weight": mx.array(weight.view(np.uint32)), "scales": mx.array(scales)}
    truth = np.array(mx.dequantize(*arrays.values(), mode=mode, dtype=mx.float32)).reshape(-1)
    found = bits_read(offered(mode, arrays, (256, columns))).view(np.float32)
    numbers = ~np.isnan(truth)  # which can be written in many ways
    assert np.array_equal(np.isnan(found), ~numbers)
    assert np.array_equal(found[numbers].view(np.uint32), truth[numbers].view(np.uint32))
    assert not numbers.all()


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (5,), (5, 1, 1)], ids=str)
def test_a_scale_for_all_weights_or_for_each_expert(shape: tuple[int, ...]) -> None:
    weight, scales = random_words(5, 3, 8), mx.array(np.arange(60, dtype=np.uint8).reshape(5, 3, 4))
    every = mx.arange(1, 6) * 0.37 if 5 in shape else mx.array([0.37] * 5)
    truth = [
        mx.dequantize(weight[i], scales[i], mode="nvfp4", global_scale=every[i], dtype=mx.float32)
        for i in range(5)
    ]
    arrays = {"weight": weight, "scales": scales}
    arrays["global_scale"] = every.reshape(shape) if 5 in shape else every[0].reshape(shape)
    found = offered("nvfp4", arrays, (5, 3, 64))
    assert np.array_equal(bits_read(found), np.array(mx.stack(truth)).reshape(-1).view(np.uint32))
    assert np.array_equal(
        bits_read(found, 190, 400), np.array(mx.stack(truth)).reshape(-1)[190:400].view("u4")
    )


@pytest.mark.parametrize("bits", [3, 4, 5])
def test_any_piece_of_any_number_of_dimensions(bits: int) -> None:
    arrays, truth = affine(bits, 64, mx.float16, outer=(2, 3, 4))
    found = offered(f"mlx-{bits}bit", arrays, (2, 3, 4, 256))
    for start, stop in ((0, 0), (0, 1), (63, 65), (64, 128), (100, 2000), (6143, 6144), (5, 6144)):
        assert np.array_equal(bits_read(found, start, stop), truth[start:stop].view(np.uint32))


def test_more_than_is_computed_at_once() -> None:
    weight, scales, biases = mx.quantize(mx.random.normal((3 * PIECE // 1024 + 1, 1024)), 64, 4)
    found = offered("mlx-4bit", {"weight": weight, "scales": scales, "biases": biases}, (769, 1024))
    truth = np.array(mx.dequantize(weight, scales, biases, 64, 4)).reshape(-1).view(np.uint32)
    assert np.array_equal(bits_read(found), truth)
    assert np.array_equal(bits_read(found, 7, 2 * PIECE + 9), truth[7 : 2 * PIECE + 9])


def test_only_the_groups_that_are_asked_for_are_read() -> None:
    weight, scales, biases = mx.quantize(mx.random.normal((64, 1024)), 64, 4)
    asked: list[tuple[int, int]] = []

    def watched(array: mx.array) -> Values:
        inner = stored(array)

        def read(start: int, stop: int) -> Any:
            asked.append((start, stop))
            return inner.read(start, stop)

        return Values(dtype=inner.dtype, shape=inner.shape, read=read)

    packing = Packing(scheme="mlx-4bit", logical_shape=(64, 1024), nbytes=weight.nbytes)
    found = dequantized(packing, watched(weight), {"scales": watched(scales), "biases": watched(biases)})
    assert found is not None
    found.read(6400, 6401)
    assert sorted(asked) == [(100, 101), (100, 101), (800, 808)]


def test_infinite_and_undefined_scales_are_infinite_and_undefined_weights() -> None:
    scales, biases = mx.array([[float("nan"), float("inf"), 1.0]]), mx.array([[0.0, 0.0, float("-inf")]])
    weight = mx.full((1, 12), 0x11111111, dtype=mx.uint32)
    found = offered("mlx-4bit", {"weight": weight, "scales": scales, "biases": biases}, (1, 96))
    assert found is not None
    numbers = found.read(0, 96)
    assert np.isnan(numbers[:32]).all()
    assert np.isposinf(numbers[32:64]).all()
    assert np.isneginf(numbers[64:]).all()


def without(arrays: Arrays, *names: str, **more: mx.array) -> Arrays:
    return {name: array for name, array in arrays.items() if name not in names} | more


PLAIN, _ = affine(4, 64, mx.float32)
FLOAT = {"weight": random_words(6, 32), "scales": mx.zeros((6, 8), mx.uint8)}
UNSETTLED: dict[str, tuple[str, Arrays, tuple[int, ...]]] = {
    "a width that is assumed": ("mlx-4bit, if groups have 64", PLAIN, (6, 256)),
    "a mode nobody knows": ("mlx-7bit", PLAIN, (6, 256)),
    "no scales": ("mlx-4bit", without(PLAIN, "scales"), (6, 256)),
    "no biases": ("mlx-4bit", without(PLAIN, "biases"), (6, 256)),
    "biases of another shape": ("mlx-4bit", without(PLAIN, biases=mx.zeros((6, 2))), (6, 256)),
    "scales that are integers": ("mlx-4bit", without(PLAIN, scales=mx.zeros((6, 4), mx.int32)), (6, 256)),
    "another shape": ("mlx-4bit", PLAIN, (6, 128)),
    "other rows": ("mlx-4bit", PLAIN, (3, 512)),
    "groups that MLX does not have": (
        "mlx-4bit",
        without(PLAIN, scales=mx.zeros((6, 1)), biases=mx.zeros((6, 1))),
        (6, 256),
    ),
    "words of another type": ("mlx-4bit", without(PLAIN, weight=mx.zeros((6, 32), mx.int32)), (6, 256)),
    "biases of floating-point weights": ("mxfp4", without(FLOAT, biases=mx.zeros((6, 8))), (6, 256)),
    "a scale for all where there is none": ("mxfp4", without(FLOAT, global_scale=mx.array(1.0)), (6, 256)),
    "a scale for some": (
        "nvfp4",
        {**FLOAT, "scales": mx.zeros((6, 16), mx.uint8), "global_scale": mx.zeros((3,))},
        (6, 256),
    ),
    "floating-point scales of sixteen": (
        "mxfp4",
        without(FLOAT, scales=mx.zeros((6, 16), mx.uint8)),
        (6, 256),
    ),
}


@pytest.mark.parametrize(("scheme", "arrays", "shape"), UNSETTLED.values(), ids=UNSETTLED)
def test_what_is_not_settled_is_not_offered(scheme: str, arrays: Arrays, shape: tuple[int, ...]) -> None:
    arrays = {"weight": arrays["weight"], **without(arrays, "weight")}
    assert offered(scheme, arrays, shape) is None


def test_a_side_that_cannot_be_read_settles_nothing() -> None:
    packing = Packing(scheme="mlx-4bit", logical_shape=(6, 256), nbytes=768)
    sides = {"scales": stored(PLAIN["scales"]), "biases": "not all in the file"}
    assert dequantized(packing, stored(PLAIN["weight"]), sides) is None
