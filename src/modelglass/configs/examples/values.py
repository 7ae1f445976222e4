"""Tensors for inputs: numbers in range, with values where a fake run looks at them."""

from __future__ import annotations

from math import prod
from typing import Any

import torch

_SEED = 0


def float_dtype(native: torch.nn.Module) -> torch.dtype:
    """Of floating inputs: that of the weights."""
    found = (each.dtype for each in native.parameters() if each.dtype.is_floating_point)
    return next(found, torch.float32)


def floats(shape: tuple[int, ...], dtype: Any) -> torch.Tensor:
    """Draws from a normal distribution, by a generator of our own."""
    generator = torch.Generator("cpu").manual_seed(_SEED)
    return torch.randn(shape, generator=generator, device="cpu").to(dtype)


def ones(*shape: int, dtype: Any = torch.int64) -> torch.Tensor:
    return torch.ones(shape, dtype=dtype, device="cpu")


def zeros(*shape: int, dtype: Any = torch.int64) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype, device="cpu")


def whole(values: Any, dtype: Any = torch.int64) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype, device="cpu")


def counted(shape: tuple[int, ...], allowed: list[int]) -> torch.Tensor:
    """Ids that go through those that are allowed, and begin again."""
    number = prod(shape)
    chosen = (allowed * (number // len(allowed) + 1))[:number]
    return torch.tensor(chosen, dtype=torch.int64, device="cpu").reshape(shape)
