"""Quantized layers of MLX: how many weights there really are, and what they take."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx import nn
from mlx.utils import tree_flatten
from mlx_lm.models.bitlinear_layers import BitLinear
from mlx_lm.models.mla import MultiLinear
from mlx_lm.models.switch_layers import SwitchLinear

import modelglass as mg
from modelglass.analyses.counts import count
from modelglass.frameworks.mlx.structure import modules as structure
from modelglass.report import Counts, Packing, Tensor


def tensors_of(native: nn.Module) -> dict[str, Tensor]:
    return {tensor.name: tensor for tensor in structure.read(native)[0].tensors}


def counts_of(native: nn.Module) -> Counts:
    return count(structure.read(native)[0])


def packing_of(native: nn.Module, name: str = "weight") -> Packing:
    packing = tensors_of(native)[name].packing
    assert packing is not None
    return packing


def stored(native: nn.Module) -> int:
    """Elements that MLX itself lists."""
    return sum(array.size for _, array in tree_flatten(native.parameters()))


STORED = {2: 25_088, 3: 33_280, 4: 41_472, 5: 49_664, 6: 57_856, 8: 74_240}


@pytest.mark.parametrize(("bits", "elements"), STORED.items(), ids=lambda value: str(value))
def test_the_count_is_the_same_at_every_width(bits: int, elements: int) -> None:
    native = nn.Linear(512, 512).to_quantized(group_size=64, bits=bits)
    counts = counts_of(native)
    assert counts.params == counts.logical_params == 262_656
    assert counts.trainable == 512  # the bias is not frozen with the rest
    tensors = tensors_of(native)
    assert {name: tensor.kind for name, tensor in tensors.items()} == {
        "weight": "packed",
        "scales": "buffer",
        "biases": "buffer",
        "bias": "parameter",
    }
    assert tensors["weight"].packing is not None
    assert tensors["weight"].packing.scheme == f"mlx-{bits}bit"
    assert sum(tensor.numel or 0 for tensor in tensors.values()) == stored(native) == elements


def test_bytes_and_bits_per_weight() -> None:
    native = nn.Linear(512, 512).to_quantized(group_size=64, bits=4)
    assert counts_of(native).nbytes == 165_888
    half = nn.Linear(4096, 4096, bias=False)
    half.set_dtype(mx.float16)
    counts = counts_of(half.to_quantized(group_size=64, bits=4))
    assert counts.params == 16_777_216
    assert counts.nbytes == 9_437_184
    assert counts.bits_per_weight == 4.5


@pytest.mark.parametrize("group", [32, 64, 128])
@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
def test_every_affine_layout(bits: int, group: int) -> None:
    packing = packing_of(nn.QuantizedLinear(256, 96, group_size=group, bits=bits))
    assert packing.logical_shape == (96, 256)
    assert packing.nbytes == 96 * 256 * bits // 8
    assert packing.side_nbytes == 2 * 4 * 96 * 256 // group
    assert packing.bits_per_weight == bits + 64 / group


MODES = {"mxfp4": (4, 4.25), "nvfp4": (4, 4.5), "mxfp8": (8, 8.25)}


@pytest.mark.parametrize(("mode", "expected"), MODES.items(), ids=list(MODES))
def test_every_floating_point_mode(mode: str, expected: tuple[int, float]) -> None:
    for native in (nn.QuantizedLinear(128, 32, mode=mode), nn.QuantizedEmbedding(32, 128, mode=mode)):
        packing = packing_of(native)
        assert (packing.scheme, packing.logical_shape) == (mode, (32, 128))
        assert packing.nbytes == 32 * 128 * expected[0] // 8
        assert packing.bits_per_weight == expected[1]
        assert "biases" not in tensors_of(native)


def test_a_layer_that_quantizes_as_it_runs_is_packed_only_when_it_is() -> None:
    native = nn.QQLinear(128, 64)
    assert tensors_of(native)["weight"].packing is None
    assert counts_of(native).params == 128 * 64
    native.quantize()
    assert packing_of(native).scheme == "nvfp4"
    assert counts_of(native).params == counts_of(native).logical_params == 128 * 64


STACKS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "experts": (lambda: SwitchLinear(128, 64, 8).to_quantized(64, 4), (8, 64, 128)),
    "experts without bias": (lambda: SwitchLinear(128, 64, 8, bias=False).to_quantized(32, 3), (8, 64, 128)),
    "heads": (lambda: MultiLinear(128, 64, 4).to_quantized(64, 8), (4, 64, 128)),
    "shards of outputs": (lambda: nn.QuantizedAllToShardedLinear(128, 64), (64, 128)),
    "shards of inputs": (lambda: nn.QuantizedShardedToAllLinear(128, 64), (64, 128)),
}


@pytest.mark.parametrize(("build", "shape"), STACKS.values(), ids=STACKS)
def test_packed_layers_are_known_by_their_arrays(build: Callable[[], Any], shape: tuple[int, ...]) -> None:
    assert packing_of(build()).logical_shape == shape


def test_a_scale_for_all_of_an_expert_is_no_weight() -> None:
    native = SwitchLinear(64, 32, 4, bias=False).to_quantized(16, 4, "nvfp4", global_scale=True)
    assert tensors_of(native)["global_scale"].kind == "buffer"
    assert counts_of(native).params == 4 * 32 * 64


def test_ternary_weights_are_four_a_byte() -> None:
    native = BitLinear(64, 32, bias=False)
    packing = packing_of(native)
    assert (packing.scheme, packing.logical_shape, packing.nbytes) == ("bitnet-2bit", (32, 64), 512)
    assert counts_of(native).params == 2048


def test_without_settings_the_sizes_tell_or_the_usual_group_is_assumed() -> None:
    native = nn.Module()
    weight, scales, biases = mx.quantize(mx.zeros((32, 256)), 64, 4)
    native.quantized = {"weight": weight, "scales": scales, "biases": biases}
    assert packing_of(native, "quantized.weight").scheme == "mlx-4bit, if groups have 64"
    weight, scales, biases = mx.quantize(mx.zeros((32, 256)), 32, 2)  # 64 bits a group: nothing else fits
    native.quantized = {"weight": weight, "scales": scales, "biases": biases}
    assert packing_of(native, "quantized.weight").logical_shape == (32, 256)


def test_arrays_that_only_look_alike_are_left_alone() -> None:
    native = nn.Module()
    native.weight = mx.zeros((4, 8), dtype=mx.uint32)
    native.scales = mx.zeros((5, 2))
    native.bits, native.group_size = 4, 64
    assert {tensor.kind for tensor in tensors_of(native).values()} == {"parameter"}
    native.scales = mx.zeros((4, 3))
    assert tensors_of(native)["weight"].packing is None


def test_quantizing_a_model_keeps_its_count_and_computes_nothing() -> None:
    native = nn.TransformerEncoder(4, 8192, 64, 32768)
    params = counts_of(native).params
    before = mx.get_active_memory()
    nn.quantize(native, group_size=64, bits=4)
    counts = counts_of(native)
    assert counts.params == counts.logical_params == params
    assert mx.get_active_memory() - before < 1 << 20


@pytest.mark.parametrize("mode", ["affine", "mxfp4", "nvfp4", "mxfp8"])
def test_a_live_model_and_its_file_agree(tmp_path: Path, mode: str) -> None:
    native = nn.Sequential(nn.Embedding(32, 128), nn.Linear(128, 64), nn.Linear(64, 64, bias=False))
    nn.quantize(native, mode=mode)
    native.save_weights(str(tmp_path / "model.safetensors"))
    layer = native.layers[1]
    said = {"group_size": layer.group_size, "bits": layer.bits, "mode": mode}
    (tmp_path / "config.json").write_text(json.dumps({"quantization": said}))
    live, saved = counts_of(native), mg.inspect(tmp_path / "model.safetensors").counts
    assert saved is not None
    assert (live.params, live.logical_params, live.buffers, live.nbytes, live.bits_per_weight) == (
        saved.params,
        saved.logical_params,
        saved.buffers,
        saved.nbytes,
        saved.bits_per_weight,
    )


@pytest.mark.parametrize(
    ("settings", "scheme"),
    [
        ({"group_size": 32}, "mlx-4bit"),
        ({"bits": 8}, "mlx-8bit"),
        ({"bits": 2, "group_size": 32}, "mlx-2bit"),
        ({"mode": "mxfp8"}, "mxfp8"),
    ],
    ids=["groups", "bits", "both", "mode"],
)
def test_experts_that_leave_a_setting_to_mlx_have_the_shape_they_had(
    settings: dict[str, Any], scheme: str
) -> None:
    model = nn.Sequential(SwitchLinear(64, 96, 4, bias=False))
    nn.quantize(model, **settings)
    (packing,) = [tensor.packing for tensor in mg.inspect(model).model.tensors if tensor.packing]
    assert (packing.scheme, packing.logical_shape) == (scheme, (4, 96, 64))
