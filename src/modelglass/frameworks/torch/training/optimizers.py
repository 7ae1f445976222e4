"""Optimizers by name or by the function that makes them, and what a step of one needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import nn

from modelglass.errors import UsageError
from modelglass.frameworks.torch.describe import tensors_in
from modelglass.report.fit import IMITATED

Factory: TypeAlias = Callable[[list[nn.Parameter]], Any]

# The layout of the usual 8-bit optimizers: blocks with a scale each; small tensors stay in float32.
BLOCK = 256
SMALLEST_PACKED = 4096


def make_factory(given: Any) -> tuple[str, Factory]:
    """The optimizer's name and the function that makes it from parameters."""
    if isinstance(given, str):
        name = given.lower()
        return name, _find_by_name(name)
    if isinstance(given, torch.optim.Optimizer) or not callable(given):
        raise UsageError(
            f"optimizer must be a name or a function, got {type(given).__name__}",
            hint='give a name such as "adamw", or a function: lambda params: SGD(params, momentum=0.9)',
        )
    return str(getattr(given, "__name__", type(given).__name__)), given


def _find_by_name(name: str) -> Factory:
    if name in IMITATED:
        return EightBitAdam
    known = {
        key.lower(): value
        for key, value in vars(torch.optim).items()
        if isinstance(value, type) and issubclass(value, torch.optim.Optimizer)
    }
    known.pop("optimizer", None)
    if name not in known:
        raise UsageError(
            f"there is no optimizer {name!r}",
            hint=f"one of {', '.join(sorted({*known, IMITATED[0]}))}, or a function of the parameters",
        )
    return known[name]


def state_of(optimizer: Any, named: Mapping[str, nn.Parameter]) -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor that an optimizer keeps from step to step, by the parameter's name."""
    kept = list(named.values())
    if isinstance(optimizer, MasterWeights):
        kept = optimizer.masters
        yield from zip(named, kept, strict=True)
        optimizer = optimizer.optimizer
    names = {id(param): name for name, param in zip(named, kept, strict=True)}
    for param, state in getattr(optimizer, "state", {}).items():
        for tensor in tensors_in(state):
            yield names.get(id(param), ""), tensor


def given_to(optimizer: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor among an optimizer's settings, such as a learning rate, which may be the caller's."""
    for group in getattr(optimizer, "param_groups", ()):
        for key, value in group.items():
            if key != "params":
                yield from ((key, tensor) for tensor in tensors_in(value))


class EightBitAdam(torch.optim.Optimizer):
    """Adam whose two moments are kept in eight bits: the memory it takes, with no arithmetic."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is not None and not self.state[param]:
                    self.state[param] = {"moments": [_packed_moment(param), _packed_moment(param)]}


def _packed_moment(param: torch.Tensor) -> tuple[torch.Tensor, ...]:
    if param.numel() < SMALLEST_PACKED:
        return (torch.zeros_like(param, dtype=torch.float32),)
    scales = torch.zeros(-(-param.numel() // BLOCK), dtype=torch.float32, device=param.device)
    return torch.zeros_like(param, dtype=torch.uint8), scales


class MasterWeights:
    """An optimizer that works on float32 copies of weights in a smaller type.

    A gradient is turned into float32 and given back before the next one is; the copies are there from the
    beginning, as the weights are.
    """

    def __init__(self, params: Sequence[nn.Parameter], make: Factory) -> None:
        self._params = params
        with torch.no_grad():
            self.masters: list[Any] = [
                param if param.dtype is torch.float32 else param.detach().float().requires_grad_()
                for param in params
            ]
        self.optimizer = make(self.masters)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The weights that it changes in the end."""
        return [{"params": list(self._params)}]

    def take_gradients(self) -> None:
        """Turn the weights' gradients into those of the copies."""
        for param, master in self._find_copied():
            if param.grad is not None:
                master.grad = param.grad.to(torch.float32)
                param.grad = None

    def gradients(self) -> Iterator[tuple[int, torch.Tensor]]:
        """Those of the copies, each with the place of its parameter."""
        for index, master in enumerate(self.masters):
            if master.grad is not None:
                yield index, master.grad

    def step(self) -> None:
        """Step, and round the copies to the weights."""
        self.optimizer.step()
        with torch.no_grad():
            for param, master in self._find_copied():
                master.grad = None
                param.copy_(master)

    def _find_copied(self) -> Iterator[tuple[Any, Any]]:
        pairs = zip(self._params, self.masters, strict=True)
        return (pair for pair in pairs if pair[0] is not pair[1])
