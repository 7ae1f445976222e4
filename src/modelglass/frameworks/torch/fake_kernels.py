"""Shapes of kernels whose stand-in in torch refuses what the real kernel takes.

A fake run asks torch for a shape function. Where that one is stricter than the kernel on the device at hand,
the run would end for no reason; these take its place. Nothing is registered with torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor


def fake_kernel(func: Any, args: tuple[Any, ...]) -> Callable[..., Any] | None:
    """Our shape function for this kernel, when it runs on fake tensors and has one."""
    shapes = _SHAPES.get(func)
    return shapes if shapes is not None and isinstance(args[0], FakeTensor) else None


def _grouped_mm(
    left: torch.Tensor,
    right: torch.Tensor,
    offs: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """torch's own takes only bfloat16; the CPU kernel takes any floating type."""
    groups = () if offs is None else (offs.shape[0],)
    if left.dim() == 2 and right.dim() == 2:
        shape: tuple[int, ...] = (*groups, left.shape[0], right.shape[1])
    elif left.dim() == 3 and right.dim() == 3:
        shape = (left.shape[0], left.shape[1], right.shape[2])
    else:
        shape = (left.shape[-2], right.shape[-1])
    return left.new_empty(shape, dtype=out_dtype or left.dtype)


_SHAPES: dict[Any, Callable[..., Any]] = {}
if hasattr(torch.ops.aten, "_grouped_mm"):
    _SHAPES[torch.ops.aten._grouped_mm.default] = _grouped_mm
