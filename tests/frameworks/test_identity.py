"""Tensors that are looked up by which they are, or have a class of their own, behave as in a real call."""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import pytest
import torch
from torch import nn

import modelglass as mg
from fingerprint import fingerprint


class Pair(tuple[Any, ...]):
    pass


def function_with(value: Any) -> Any:
    def function() -> None:
        pass

    function.value = value  # type: ignore[attr-defined]
    return function


LOOK_UPS: dict[str, tuple[Callable[[torch.Tensor], Any], Callable[[Any, torch.Tensor], bool]]] = {
    "set": (lambda w: {w}, lambda held, w: w in held),
    "frozenset": (lambda w: frozenset([w]), lambda held, w: w in held),
    "key": (lambda w: {"a": 1, w: 2}, lambda held, w: held.get(w) == 2 and list(held)[1] is w),
    "key in a tuple": (lambda w: {(w, 1): 2}, lambda held, w: (w, 1) in held),
    "weak reference": (weakref.ref, lambda held, w: held() is w),
    "weak values": (lambda w: weakref.WeakValueDictionary(w=w), lambda held, w: held["w"] is w),
    "weak set": (lambda w: weakref.WeakSet([w]), lambda held, w: any(each is w for each in held)),
    "default": (lambda w: lambda value=w: value, lambda held, w: held() is w),
    "keyword default": (lambda w: lambda *, value=w: value, lambda held, w: held() is w),
    "attribute of a class": (lambda w: type("Holder", (), {"value": w}), lambda held, w: held.value is w),
    "attribute of a function": (function_with, lambda held, w: held.value is w),
    "proxy": (lambda w: MappingProxyType({"w": w}), lambda held, w: held["w"] is w),
    "view of a dictionary": (lambda w: {"w": w}.values(), lambda held, w: next(iter(held)) is w),
    "tuple of its own": (lambda w: Pair([w, w]), lambda held, w: held[1] is w and type(held) is Pair),
    "factory": (lambda w: defaultdict(lambda: w), lambda held, w: held["w"] is w),
    "method": (lambda w: w.detach, lambda held, w: held.__self__ is w),
    "method in Python": (lambda w: w.register_hook, lambda held, w: held.__self__ is w),
    "optimizer": (
        lambda w: torch.optim.SGD([w]),
        lambda held, w: held.param_groups[0]["params"][0] is w,
    ),
}


class LooksUp(nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        make, self.has = LOOK_UPS[name]
        self.held = make(self.linear.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) if self.has(self.held, self.linear.weight) else torch.cat([x, x])


@pytest.mark.parametrize("run", ["fake", "real"])
@pytest.mark.parametrize("name", LOOK_UPS)
def test_a_tensor_is_found_where_it_is_held_by_identity(name: str, run: Any) -> None:
    model, x = LooksUp(name), torch.randn(2, 4)
    assert model(x).shape == (2, 4)
    before = fingerprint(model, x)
    report = mg.inspect(model, x, run=run)
    assert [value.shape for value in report.run.outputs] == [(2, 4)]
    assert report.run.mode == run
    assert fingerprint(model, x) == before
    assert model.has(model.held, model.linear.weight)


class Own(torch.Tensor):
    """A plain tensor with a method of its own, one that torch has too, and a property."""

    def double(self) -> Any:
        return self * 2

    @property
    def width(self) -> int:
        return 3


class Doubles(nn.Module):
    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, x: Any) -> Any:
        wide = (x @ self.weight).double()
        return wide[:, : x.width] if isinstance(x, Own) else wide


@pytest.mark.parametrize("trains", [False, True])
def test_a_tensor_of_a_class_of_its_own_keeps_its_methods(trains: bool) -> None:
    x = torch.randn(2, 4).as_subclass(Own)
    weight = torch.randn(4, 4).as_subclass(Own)
    model = Doubles(nn.Parameter(weight) if trains else weight)
    expected = model(x)
    before = fingerprint(model, x)
    report = mg.inspect(model, x, train=trains)
    assert [(value.shape, value.dtype) for value in report.run.outputs] == [((2, 3), "float32")]
    assert (tuple(expected.shape), expected.dtype) == ((2, 3), torch.float32)
    assert report.run.mode == "real"
    assert "real-run" in [note.code for note in report.notes]
    assert fingerprint(model, x) == before
