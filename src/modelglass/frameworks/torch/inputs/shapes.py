"""Inputs made from shapes, for people who have a shape and no data."""

from __future__ import annotations

from itertools import chain
from math import prod
from typing import Any

import torch
from torch import nn

from modelglass.errors import InputsError, UsageError
from modelglass.frameworks.shared.request import Inputs
from modelglass.frameworks.shared.specs import InputSpec, TensorSpec, values_of
from modelglass.frameworks.torch.describe import dtype_name
from modelglass.frameworks.torch.fake.known_values import is_knowable
from modelglass.frameworks.torch.structure.modules import walk

_SEED = 0


def make_inputs(native: nn.Module, specs: tuple[InputSpec, ...], device: str | None, *, fake: bool) -> Inputs:
    """Tensors as specified: integers within every embedding's range, the rest from a normal draw.

    For a fake run they have no values and take no memory, except for small ones of whole numbers.
    """
    target = _device(native, device)
    made = list(values_of(specs, lambda spec: _tensor(native, spec, target, fake=fake)))
    return Inputs(
        args=tuple(tensor for name, tensor in made if name is None),
        kwargs={name: tensor for name, tensor in made if name is not None},
    )


def array(native: nn.Module, words: Any, shape: tuple[int, ...], dtype: str) -> torch.Tensor:
    """What a file holds, as a tensor where the model is. `words` are numpy's, of the size of an element."""
    size = words.dtype.itemsize
    bits = words if size in (1, 2, 4, 8) and words.dtype.kind in "iu" else words.view("u1")
    signed = torch.from_numpy(bits.view(f"i{bits.dtype.itemsize}"))
    return signed.view(find_dtype(dtype)).reshape(shape).to(device_of(native))


def picture(native: nn.Module, pixels: Any) -> torch.Tensor:
    """A picture as the model's layers take it, in the type of its weights."""
    floats = (p.dtype for p in native.parameters() if p.dtype.is_floating_point)
    return torch.from_numpy(pixels).to(device_of(native), next(floats, torch.float32))


def _tensor(native: nn.Module, spec: TensorSpec, device: torch.device, *, fake: bool) -> torch.Tensor:
    dtype = _natural_dtype(native) if spec.dtype is None else find_dtype(spec.dtype)
    try:
        if fake and device.type == "cpu":
            empty = torch.empty(spec.shape, dtype=dtype, device="meta")
            if not is_knowable(empty):
                return empty
        return _values(native, spec, dtype).to(device, dtype)
    except (RuntimeError, TypeError, ValueError, NotImplementedError) as cause:
        shape = "x".join(map(str, spec.shape))
        raise InputsError(
            f"cannot make an input {shape} of {dtype}: {str(cause).splitlines()[0]}",
            hint="give a smaller shape or another type, or pass the inputs themselves",
        ) from cause


def _values(native: nn.Module, spec: TensorSpec, dtype: torch.dtype) -> torch.Tensor:
    shape = spec.shape
    if dtype.is_floating_point or dtype.is_complex:
        # A generator of our own: the user's random state is not ours to use.
        generator = torch.Generator("cpu").manual_seed(_SEED)
        draw = dtype if dtype.is_complex else torch.float32
        return torch.randn(shape, generator=generator, dtype=draw, device="cpu")
    if dtype is torch.bool or "mask" in (spec.name or ""):  # that hides nothing
        return torch.ones(shape, dtype=dtype, device="cpu")
    return (torch.arange(prod(shape), device="cpu") % _id_bound(native)).reshape(shape)


def _device(native: nn.Module, asked: str | None) -> torch.device:
    if asked is None:
        return device_of(native)
    try:
        return torch.device(asked)
    except RuntimeError as cause:
        raise UsageError(f"there is no device {asked!r}", hint="for example cpu or cuda:0") from cause


def find_dtype(name: str) -> torch.dtype:
    """The element type of that name."""
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise UsageError(
            f"torch has no element type {name!r}", hint="for example float32, bfloat16, int64, bool"
        )
    return dtype


def device_of(native: nn.Module) -> torch.device:
    """Where the model is; the CPU stands in for `meta`."""
    first = next(chain(native.parameters(), native.buffers()), None)
    return torch.device("cpu") if first is None or first.is_meta else first.device


def _natural_dtype(native: nn.Module) -> torch.dtype:
    """What the model most likely eats: ids when it begins with an embedding, else its weights' type."""
    if getattr(native, "main_input_name", None) == "input_ids":
        return torch.int64
    weighted = (m for _, m in walk(native) if any(p is not None for p in m._parameters.values()))
    first = next(weighted, None)
    if isinstance(first, (nn.Embedding, nn.EmbeddingBag)):
        return torch.int64
    floats = (p.dtype for p in native.parameters() if p.dtype.is_floating_point)
    return next((d for d in floats if not dtype_name(d).startswith("float8")), torch.float32)


def _id_bound(native: nn.Module) -> int:
    """Ids below this fit every embedding the model has."""
    sizes = [
        module.num_embeddings
        for _, module in walk(native)
        if isinstance(module, (nn.Embedding, nn.EmbeddingBag))
    ]
    return max(1, min(sizes, default=2))
