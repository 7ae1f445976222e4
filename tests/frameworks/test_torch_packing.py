"""Packed layouts by their documented shapes, checked by arithmetic."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

import modelglass as mg


def holder(**tensors: torch.Tensor) -> nn.Module:
    module = nn.Module()
    for name, tensor in tensors.items():
        module.register_buffer(name, tensor)
    return module


def int32(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.int32)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_gptq_packs_the_input_dimension(bits: int) -> None:
    inputs, outputs, groups = 128, 64, 4
    module = holder(
        qweight=int32(inputs * bits // 32, outputs),
        qzeros=int32(groups, outputs * bits // 32),
        scales=torch.zeros(groups, outputs, dtype=torch.float16),
        g_idx=int32(inputs),
    )
    report = mg.inspect(module)
    packed = next(t for t in report.model.tensors if t.name == "qweight")
    assert packed.packing.scheme == f"gptq-{bits}bit"
    assert packed.packing.logical_shape == (outputs, inputs)
    side = 4 * groups * outputs * bits // 32 + 2 * groups * outputs + 4 * inputs
    assert packed.bits_per_weight == bits + 8 * side / (inputs * outputs)
    assert report.counts.logical_params == inputs * outputs
    assert report.counts.nbytes == inputs * outputs * bits // 8 + side


def test_awq_packs_the_output_dimension() -> None:
    module = holder(
        qweight=int32(128, 64 * 4 // 32), qzeros=int32(2, 8), scales=torch.zeros(2, 64, dtype=torch.float16)
    )
    packed = next(t for t in mg.inspect(module).model.tensors if t.name == "qweight")
    assert (packed.packing.scheme, packed.packing.logical_shape) == ("awq-4bit", (64, 128))


def test_mxfp4_holds_two_values_a_byte_and_a_scale_a_block() -> None:
    blocks = torch.zeros(3, 8, 4, 16, dtype=torch.uint8)
    module = holder(up_blocks=blocks, up_scales=torch.zeros(3, 8, 4, dtype=torch.uint8))
    packed = next(t for t in mg.inspect(module).model.tensors if t.name == "up_blocks")
    assert packed.packing.logical_shape == (3, 8, 128)
    assert packed.bits_per_weight == 4.25


def test_bitsandbytes_keeps_its_shape_in_the_quantization_state() -> None:
    weight = nn.Parameter(torch.zeros(64 * 128 // 2, 1, dtype=torch.uint8), requires_grad=False)
    weight.quant_state = SimpleNamespace(
        shape=(64, 128), quant_type="nf4", absmax=torch.zeros(64 * 128 // 64)
    )
    module = nn.Module()
    module.weight = weight
    report = mg.inspect(module)
    assert report.model.tensors[0].packing.scheme == "bitsandbytes-nf4"
    assert report.counts.params == 64 * 128 // 2, "stored elements, as the framework counts"
    assert report.counts.logical_params == 64 * 128
    assert report.model.tensors[0].bits_per_weight == 4 + 8 * 4 / 64


class TwoHalves(torch.Tensor):
    """A tensor that shows one shape and keeps its values in two smaller ones."""

    @staticmethod
    def __new__(cls, low: torch.Tensor, high: torch.Tensor) -> TwoHalves:
        shape = (low.shape[0], 2 * low.shape[1])
        return torch.Tensor._make_wrapper_subclass(cls, shape, dtype=torch.float32)

    def __init__(self, low: torch.Tensor, high: torch.Tensor) -> None:
        self.low, self.high = low, high

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["low", "high"], None

    @staticmethod
    def __tensor_unflatten__(inner, context, size, stride):  # type: ignore[no-untyped-def]
        return TwoHalves(inner["low"], inner["high"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if func is torch.ops.aten.detach.default:
            return TwoHalves(args[0].low, args[0].high)
        raise NotImplementedError(func)


def test_wrapper_tensors_take_what_their_parts_take() -> None:
    halves = [torch.zeros(4, 8, dtype=torch.int8) for _ in range(2)]
    module = nn.Module()
    module.weight = nn.Parameter(TwoHalves(*halves), requires_grad=False)
    report = mg.inspect(module)
    assert (report.counts.params, report.counts.nbytes) == (64, 64)
    assert report.model.tensors[0].bits_per_weight == 8
