"""What is exchanged when a torch model is borrowed."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any

import torch
from torch import nn

from modelglass.frameworks.substitution import Substitution

# What `fully_shard` keeps of a model, which the hooks of its modules refer to.
_SHARDING = frozenset(
    f"torch.distributed.fsdp._fully_shard._fsdp_{part}" for part in ("state", "param_group", "param")
)


def make_substitution(substitute: Callable[[torch.Tensor], torch.Tensor]) -> Substitution:
    """Every tensor is exchanged, and what TorchScript made, whose tensors live outside Python."""
    return Substitution(
        package="torch",
        module=nn.Module,
        substitutes={torch.Tensor: substitute, torch.jit.ScriptModule: _script_copy},
        generator=_generator_state,
        entered=_SHARDING,
    )


def _script_copy(module: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
    """A copy of its own: copied with gradients on, it would backpropagate into the original."""
    with torch.no_grad():
        copy = deepcopy(module)
    for original, copied in zip(module.parameters(), copy.parameters(), strict=True):
        copied.requires_grad_(original.requires_grad)
    return copy


def _generator_state(value: Any) -> Callable[[], Any] | None:
    if isinstance(value, torch.Generator):
        return partial(value.set_state, value.get_state())
    return None
