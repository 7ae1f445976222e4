"""Substitution of the tensors of a torch model."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any

import torch
from torch import nn

from modelglass.frameworks.state.substitution import Substitution
from modelglass.frameworks.torch.fake.class_checks import ClassChecks, Type

# What `fully_shard` keeps of a model, which the hooks of its modules refer to.
_SHARDING = tuple(
    f"torch.distributed.fsdp._fully_shard._fsdp_{part}" for part in ("state", "param_group", "param")
)
# What a model may hold besides modules: its own optimizer, its distributions.
_HOLDERS = ("torch.optim", "torch.distributions", "torch.amp")


def make_substitution(
    substitute: Callable[[torch.Tensor], torch.Tensor], checks: ClassChecks | None = None
) -> Substitution:
    """Every tensor is exchanged, and what TorchScript made, whose tensors live outside Python.

    In a fake run, `checks` looks for questions about classes that cannot be answered.
    """
    more: dict[str, Any] = {} if checks is None else {"builtins": {"type": Type}, "look_at": checks.look_at}
    return Substitution(
        package="torch",
        module=nn.Module,
        substitutes={torch.Tensor: substitute, torch.jit.ScriptModule: _script_copy},
        generator=_generator_state,
        entered=_SHARDING + _HOLDERS,
        staying=_gradient,
        **more,
    )


def _script_copy(module: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
    """A copy of its own: copied with gradients on, it would backpropagate into the original."""
    with torch.no_grad():
        copy = deepcopy(module)
    for original, copied in zip(module.parameters(), copy.parameters(), strict=True):
        copied.requires_grad_(original.requires_grad)
    return copy


def _gradient(value: Any) -> Callable[[], Any] | None:
    """How to set the gradient back that a parameter outside the model gets; a copy takes what is added."""
    if not isinstance(value, torch.Tensor) or not value.requires_grad or not value.is_leaf:
        return None
    gradient = value.grad
    if gradient is not None:
        value.grad = gradient.clone()
    return partial(setattr, value, "grad", gradient)


def _generator_state(value: Any) -> Callable[[], Any] | None:
    if isinstance(value, torch.Generator):
        return partial(value.set_state, value.get_state())
    return None
