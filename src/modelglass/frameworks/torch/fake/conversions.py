"""Modules that a model converts while it runs, as routers of experts do: `self.gate = self.gate.to(kind)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from modelglass.frameworks.torch.process import replace_here
from modelglass.undo import UndoLog


def convert_by_replacing(log: UndoLog) -> None:
    """Have `Module.to` and its like put other tensors into a module's place for fake ones.

    torch exchanges what is inside a fake tensor, and refuses to where anybody holds a weak reference to it,
    as those do who follow how long it lives.
    """
    replace_here(log, nn.Module, "_apply", lambda original: _apply)


def _apply(self: nn.Module, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> nn.Module:
    for module in self.children() if recurse else ():
        module._apply(fn)
    for held in (self._parameters, self._buffers):
        for name, tensor in held.items():
            if tensor is not None:
                held[name] = _convert(tensor, fn)
    return self


def _convert(tensor: torch.Tensor, fn: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """What a conversion makes of a tensor in the tensor's role; the tensor itself where nothing changes."""
    with torch.no_grad():
        made: Any = fn(tensor)
    if made is not tensor and isinstance(tensor, nn.Parameter):
        made.requires_grad_(tensor.requires_grad)
        made._is_param = True
    return made
