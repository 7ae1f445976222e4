"""Modules that a model converts while it runs, as routers of experts do: `self.gate = self.gate.to(kind)`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn


@contextmanager
def converted_by_replacing() -> Iterator[None]:
    """Have `Module.to` and its like put other tensors into a module's place for fake ones.

    torch exchanges what is inside a fake tensor, and refuses to where anybody holds a weak reference to it,
    as those do who follow how long it lives.
    """
    original = nn.Module._apply

    def apply(self: nn.Module, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> nn.Module:
        for module in self.children() if recurse else ():
            module._apply(fn)
        for held in (self._parameters, self._buffers):
            for name, tensor in held.items():
                if tensor is not None:
                    held[name] = _converted(tensor, fn)
        return self

    nn.Module._apply = apply  # type: ignore[method-assign]
    try:
        yield
    finally:
        nn.Module._apply = original  # type: ignore[method-assign]


def _converted(tensor: torch.Tensor, fn: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """What a conversion makes of a tensor in the tensor's role; the tensor itself where nothing changes."""
    with torch.no_grad():
        made: Any = fn(tensor)
    if made is not tensor and isinstance(tensor, nn.Parameter):
        made.requires_grad_(tensor.requires_grad)
        made._is_param = True
    return made
