"""The values of a model's tensors as numpy arrays, a piece at a time and without copies where possible."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from modelglass.frameworks.shared.foreign import foreign_errors
from modelglass.frameworks.torch.describe import dtype_name, unobserved
from modelglass.frameworks.torch.privates import (
    DisableTorchFunctionSubclass,
    FakeTensor,
    is_traceable_wrapper_subclass,
)
from modelglass.frameworks.torch.structure.modules import name_tensors
from modelglass.frameworks.torch.structure.packing import find_wrapped_parts
from modelglass.frameworks.torch.structure.sharing import elements_of
from modelglass.report.values import Values

_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # numpy has all of these
_STORED_AS = {torch.qint8: torch.int8, torch.quint8: torch.uint8, torch.qint32: torch.int32}
_COMPRESSED = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)


def values(native: nn.Module) -> Mapping[str, Values | str]:
    """How to read each tensor by name, or a few words on why it cannot be read."""
    with unobserved(), DisableTorchFunctionSubclass():
        return {name: _values(tensor) for name, tensor in name_tensors(native)}


def _values(tensor: torch.Tensor) -> Values | str:
    if is_lazy(tensor):
        return "not initialised"
    if isinstance(tensor, FakeTensor) or tensor.is_meta:
        return "on the meta device, or fake"
    with foreign_errors() as found:  # a tensor of somebody's own making may raise anything
        stored = _find_stored(tensor)
        return (
            stored if isinstance(stored, str) else replace(_readable(*stored), elements=elements_of(tensor))
        )
    return f"unreadable ({type(found.error).__name__})"


def _find_stored(tensor: torch.Tensor) -> tuple[torch.Tensor, bool] | str:
    """The plain tensor that holds the elements, and whether they are something else than the weights."""
    if tensor.is_nested:  # before wrappers: jagged ones are also wrappers
        inside = _find_stored(tensor.detach().values())
        return inside if isinstance(inside, str) else (inside[0], True)
    if is_traceable_wrapper_subclass(tensor):
        # Scales and zero points are fewer than what they belong to.
        inside = _find_stored(max(find_wrapped_parts(tensor), key=torch.Tensor.numel))
        return inside if isinstance(inside, str) else (inside[0], True)
    if isinstance(tensor, FakeTensor) or tensor.is_meta:
        return "on the meta device, or fake"
    if tensor.is_quantized:
        known = tensor.dtype in _STORED_AS
        return (_integers(tensor), True) if known else f"of type {dtype_name(tensor.dtype)}"
    if tensor.layout in _COMPRESSED:
        return tensor.detach().values(), True
    if tensor.layout is torch.sparse_coo:
        return tensor.detach()._values(), True
    if tensor.layout is not torch.strided:
        return f"kept as {tensor.layout}"
    return tensor.detach(), False


def _integers(tensor: torch.Tensor) -> torch.Tensor:
    """The integers a quantized tensor stores, in its own memory."""
    view = torch.empty(0, dtype=_STORED_AS[tensor.dtype], device=tensor.device)
    place = tensor.storage_offset(), tensor.size(), tensor.stride()
    return view.set_(tensor.untyped_storage(), *place)  # type: ignore[call-overload, no-any-return]


def _readable(stored: torch.Tensor, packed: bool) -> Values:
    read = partial(_read, stored)
    read(0, min(1, stored.numel()))  # what cannot be read is found out here, not in the middle of the work
    return Values(
        dtype=dtype_name(stored.dtype),
        shape=tuple(stored.shape),
        read=read,
        described="stored" if packed else "values",
    )


def _read(tensor: torch.Tensor, start: int, stop: int) -> Any:
    with unobserved(), DisableTorchFunctionSubclass():
        piece = _flat(tensor, start, stop).contiguous()
        piece = piece.resolve_conj().resolve_neg().cpu()
        word = _WORDS.get(piece.element_size())
        return (piece if word is None else piece.view(word)).numpy()


def _flat(tensor: torch.Tensor, start: int, stop: int) -> torch.Tensor:
    """Elements `start` to `stop` in row-major order; of a tensor with gaps, not much more is copied."""
    if tensor.is_contiguous():
        return tensor.view(-1)[start:stop]
    if tensor.dim() == 1:
        return tensor[start:stop]
    row = tensor[0].numel()
    first, last = start // row, -(-stop // row)
    if row <= stop - start:
        return tensor[first:last].reshape(-1)[start - first * row : stop - first * row]
    rows = range(first, last)
    return torch.cat([_flat(tensor[i], max(0, start - i * row), min(row, stop - i * row)) for i in rows])
