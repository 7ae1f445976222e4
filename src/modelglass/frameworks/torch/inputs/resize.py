"""Inputs of a torch model with another batch size or sequence length, at no cost: large ones have no values.

A resized tensor has no values and no memory, except for small ones of whole numbers: theirs may decide.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import torch
from torch.nn.utils.rnn import PackedSequence

from modelglass.frameworks.shared import resize
from modelglass.frameworks.shared.request import Inputs
from modelglass.frameworks.shared.resize import Form, Tensors
from modelglass.frameworks.torch.fake.known_values import LARGEST, is_knowable
from modelglass.frameworks.torch.fake.mode import FakeMode
from modelglass.frameworks.torch.privates import FakeTensor
from modelglass.report import Axes, Shape

_WHOLE = frozenset({torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64})


def dimensions(inputs: Inputs, axes: Axes | None = None) -> tuple[int | None, int | None]:
    """The batch size and the sequence length that the inputs show, None for what they do not."""
    return resize.dimensions(inputs, _TENSORS, axes)


def resize_inputs(
    inputs: Inputs, batch_size: int | None, seq_len: int | None, axes: Axes | None = None
) -> Inputs:
    """The inputs with another batch size, sequence length or both; what stays the same is the same object."""
    return resize.resize_inputs(inputs, batch_size, seq_len, _TENSORS, axes)


def resize_inputs_at(inputs: Inputs, sizes: Mapping[tuple[int, int], int]) -> Inputs:
    """The inputs with other sizes, each by the leaf it is of, as a run numbers them, and the dimension."""
    return resize.resize_inputs_at(inputs, sizes, _TENSORS)


def _form(tensor: torch.Tensor) -> Form | None:
    if not _is_plain(tensor):
        return None
    kind = "floating" if tensor.dtype.is_floating_point or tensor.dtype.is_complex else "other"
    return Form(tuple(tensor.shape), "whole" if tensor.dtype in _WHOLE else kind)


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor is rows of memory and no more: only such ones can be made in another size."""
    kinds = (torch.Tensor, torch.nn.Parameter, FakeTensor)
    return (
        type(tensor) in kinds
        and tensor.layout is torch.strided
        and not tensor.is_nested
        and not tensor.is_quantized
    )


def _resize_tensor(tensor: torch.Tensor, shape: Shape) -> torch.Tensor:
    if tensor.device.type == "cpu" and is_knowable(tensor) and prod(shape) * tensor.itemsize <= LARGEST:
        return _repeat(tensor, shape)
    made = torch.empty_strided(shape, _strides(tensor, shape), dtype=tensor.dtype, device="meta")
    if tensor.device.type not in ("cpu", "meta"):
        made = FakeTensor(FakeMode(), made, tensor.device)
    return made.requires_grad_(tensor.requires_grad)


def _repeat(tensor: torch.Tensor, shape: Shape) -> torch.Tensor:
    """The same values over again, or the first of them: a mask of ones stays one."""
    for dim, size in enumerate(shape):
        tensor = tensor.index_select(dim, torch.arange(size) % max(tensor.shape[dim], 1))
    return tensor


def _strides(tensor: torch.Tensor, shape: Shape) -> Shape:
    """Dense, in the order of the original: channels that come last do so again. Expanded ones are filled."""
    old = tensor.stride()
    order = list(range(len(shape)))
    if 0 not in old:
        order.sort(key=lambda dim: -old[dim])
    strides, step = [0] * len(shape), 1
    for dim in reversed(order):
        strides[dim] = step
        step *= max(shape[dim], 1)
    return tuple(strides)


# The sizes of a packed batch are in its values.
_TENSORS = Tensors(torch.is_tensor, _form, _resize_tensor, closed=(PackedSequence,))
