"""Optimizers by name, by an instance or by the function that makes them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from copy import deepcopy
from typing import Any, TypeAlias

import mlx.core as mx
from mlx import optimizers

from modelglass.errors import UsageError
from modelglass.frameworks.shared.request import Request
from modelglass.report.fit import IMITATED

Factory: TypeAlias = Callable[[], optimizers.Optimizer]

_RATE = 1e-3  # how fast it learns changes no memory


def find_factories(request: Request) -> dict[str, Factory]:
    """The optimizers whose steps are looked at: the one that is asked for first; of others, those MLX has."""
    if not request.train or request.optimizer is None:
        return {}
    found = dict([make_factory(request.optimizer)])
    for name in request.other_optimizers:
        try:
            found.update([make_factory(name)])
        except UsageError:
            continue  # nobody asked for it by name
    return found


def make_factory(given: Any) -> tuple[str, Factory]:
    """The optimizer's name and a function that makes a fresh one; an instance of the user's is copied."""
    if isinstance(given, str):
        name = given.lower()
        return name, _find_by_name(name)
    if isinstance(given, optimizers.Optimizer):
        return type(given).__name__.lower(), lambda: deepcopy(given)
    if not callable(given):
        raise UsageError(
            f"optimizer must be a name or a function, got {type(given).__name__}",
            hint='give a name such as "adamw", or a function or optimizer of mlx.optimizers',
        )
    made = _call_function(given)
    return str(getattr(given, "__name__", type(given).__name__)), lambda: deepcopy(made)


def _find_by_name(name: str) -> Factory:
    if name in IMITATED:
        raise UsageError(
            f"MLX has no optimizer that keeps its state in 8 bits, as {name} does",
            hint="choose one of mlx.optimizers, such as adafactor, whose state is small",
        )
    known: dict[str, Any] = {
        key.lower(): value
        for key, value in vars(optimizers).items()
        if isinstance(value, type) and issubclass(value, optimizers.Optimizer)
    }
    for abstract in ("optimizer", "multioptimizer"):
        known.pop(abstract, None)
    if name not in known:
        raise UsageError(
            f"MLX has no optimizer {name!r}",
            hint=f"one of {', '.join(sorted(known))}, or a function that makes an optimizer",
        )
    made = known[name]
    takes_rate = inspect.signature(made).parameters["learning_rate"].default is inspect.Parameter.empty
    return lambda: made(learning_rate=_RATE) if takes_rate else made()


def _call_function(make: Callable[..., Any]) -> optimizers.Optimizer:
    """What the user's function gives; one that wants the parameters, as other frameworks' do, is refused."""
    try:
        inspect.signature(make).bind()
    except TypeError as cause:
        raise UsageError(
            f"the function given as optimizer= cannot be called without arguments: {cause}",
            hint="MLX's optimizers take no parameters: lambda: mlx.optimizers.SGD(0.1, momentum=0.9)",
        ) from cause
    except ValueError:
        pass  # a function without a signature
    made = make()
    if not isinstance(made, optimizers.Optimizer):
        raise UsageError(
            f"the function given as optimizer= returned {type(made).__name__}, not an optimizer of MLX",
            hint="return an optimizer of mlx.optimizers",
        )
    return made


def reset_state(optimizer: optimizers.Optimizer) -> None:
    """Have an optimizer forget what it kept of parameters, so that its next step is a first one."""
    plain = {key: value for key, value in optimizer.state.items() if isinstance(value, mx.array)}
    optimizer.state = plain
    for part in getattr(optimizer, "optimizers", ()):  # one made of several
        reset_state(part)
