"""What a run puts elsewhere than into the model is taken out again; the next real call has real tensors."""

from __future__ import annotations

import contextvars
import functools
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from enum import Enum
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

import modelglass as mg
from models import Apply

TABLE: dict[str, Any] = {}
SEVERAL: list[Any] = []
ONE: Any = None
BY_THREAD = threading.local()
BY_CONTEXT: contextvars.ContextVar[Any] = contextvars.ContextVar("mask", default=None)
BY_MODULE: Any = weakref.WeakKeyDictionary()
ELSEWHERE = ModuleType("elsewhere")


class Holder:
    table: dict[str, Any] = {}  # noqa: RUF012
    mask: Any = None


class Slotted:
    __slots__ = ("mask",)


class Member(Enum):
    FIRST = 1


SLOTTED = Slotted()
OUTSIDE = nn.Linear(4, 4)
WITH_GRADIENT = {"scale": nn.Parameter(torch.ones(4))}


def _once(table: dict[str, Any], size: int) -> torch.Tensor:
    return table.setdefault("mask", torch.ones(size))


@functools.lru_cache
def _cached(size: int) -> torch.Tensor:
    return torch.ones(size)


@functools.cache
def _cached_forever(size: int) -> tuple[torch.Tensor, ...]:
    return (torch.ones(size),)


def _defaulting(size: int, table: dict[str, Any] = {}) -> torch.Tensor:  # noqa: B006
    return _once(table, size)


def _by_keyword(size: int, *, table: dict[str, Any] = {}) -> torch.Tensor:  # noqa: B006
    return _once(table, size)


def _remembering() -> Callable[[int], torch.Tensor]:
    mask = None

    def of(size: int) -> torch.Tensor:
        nonlocal mask
        mask = torch.ones(size) if mask is None else mask
        return mask

    return of


REMEMBERING = _remembering()


def _attribute(holder: Any, size: int) -> torch.Tensor:
    if getattr(holder, "mask", None) is None:
        holder.mask = torch.ones(size)
    return holder.mask


def _global(size: int) -> torch.Tensor:
    global ONE
    ONE = torch.ones(size) if ONE is None else ONE
    return ONE


def _in_list(size: int) -> torch.Tensor:
    if not SEVERAL:
        SEVERAL.append((torch.ones(size),))
    return SEVERAL[0][0]


def _in_context(size: int) -> torch.Tensor:
    if BY_CONTEXT.get() is None:
        BY_CONTEXT.set(torch.ones(size))
    return BY_CONTEXT.get()


def _imported(size: int) -> torch.Tensor:
    import elsewhere

    return _attribute(elsewhere, size)


def _put_together(size: int) -> torch.Tensor:
    return _once(vars(sys.modules["else" + "where"]).setdefault("ta" + "ble", {}), size)


WAYS: dict[str, Callable[[nn.Module, int], torch.Tensor]] = {
    "a dictionary": lambda model, size: _once(TABLE, size),
    "a list": lambda model, size: _in_list(size),
    "a global variable": lambda model, size: _global(size),
    "a cache": lambda model, size: _cached(size),
    "a cache without a bound": lambda model, size: _cached_forever(size)[0],
    "a dictionary of a class": lambda model, size: _once(Holder.table, size),
    "an attribute of a class": lambda model, size: _attribute(Holder, size),
    "the model's class": lambda model, size: _attribute(type(model), size),
    "a default": lambda model, size: _defaulting(size),
    "a default by keyword": lambda model, size: _by_keyword(size),
    "a function's attribute": lambda model, size: _attribute(_defaulting, size),
    "a closure": lambda model, size: REMEMBERING(size),
    "a thread's own": lambda model, size: _attribute(BY_THREAD, size),
    "a context's own": lambda model, size: _in_context(size),
    "a weak dictionary": lambda model, size: BY_MODULE.setdefault(model, torch.ones(size)),
    "a member of an enumeration": lambda model, size: _attribute(Member.FIRST, size),
    "a slot": lambda model, size: _attribute(SLOTTED, size),
    "another module": lambda model, size: _imported(size),
    "torch": lambda model, size: _attribute(torch, size),
    "a class of torch": lambda model, size: _attribute(nn.Linear, size),
    "a name put together": lambda model, size: _put_together(size),
}
ENTRIES: dict[str, Callable[[nn.Module, torch.Tensor], Any]] = {
    "fake": mg.inspect,
    "train": lambda model, x: mg.inspect(model, x, train=True),
    "symbols": lambda model, x: mg.inspect(model, x, symbols=True),
    "summary": lambda model, x: mg.summary(model, x, verbose=0).report,
    "dump": lambda model, x: mg.dump_model_info(model, plot_distributions=False).report,
}


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    global ONE, REMEMBERING
    sys.modules["elsewhere"] = ELSEWHERE
    yield
    sys.modules.pop("elsewhere")
    ONE, REMEMBERING = None, _remembering()
    for name in ("mask", "table", "kept"):
        vars(ELSEWHERE).pop(name, None)
    for table in (TABLE, Holder.table, BY_MODULE, vars(BY_THREAD), _defaulting.__defaults__[0]):
        table.clear()
    _by_keyword.__kwdefaults__["table"].clear()
    SEVERAL.clear()
    for holder in (_defaulting, Member.FIRST, torch, nn.Linear, SLOTTED):
        if hasattr(holder, "mask"):
            del holder.mask
    Holder.mask = None
    _cached.cache_clear()
    _cached_forever.cache_clear()


def _model(way: str) -> nn.Module:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x) * WAYS[way](self, 4)

    return Masked()


@pytest.mark.slow
@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("way", WAYS)
def test_the_next_real_call_has_real_tensors(way: str, entry: str) -> None:
    model, x = _model(way), torch.randn(2, 4)
    report = ENTRIES[entry](model, x)
    assert report.run.failure is None
    assert type(model(x)) is torch.Tensor


@pytest.mark.slow
@pytest.mark.parametrize("way", ["torch", "a class of torch"])
def test_a_place_that_nobody_names_is_told(way: str) -> None:
    report = mg.inspect(_model(way), torch.randn(2, 4))
    notes = [note for note in report.notes if note.code == "left-behind"]
    assert len(notes) == 1
    assert any("mask" in place for place in notes[0].where)


def test_a_value_that_was_replaced_is_put_back() -> None:
    before = TABLE["mask"] = torch.ones(2)

    class Growing(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if TABLE["mask"].shape[0] != x.shape[1]:
                TABLE["mask"] = torch.ones(x.shape[1])
            return x * TABLE["mask"]

    assert not [note for note in mg.inspect(Growing(), torch.ones(1, 4)).notes if note.severity == "warning"]
    assert TABLE["mask"] is before


@pytest.mark.parametrize(
    "run",
    [lambda x: [x + 1][5], lambda x: x @ torch.ones(3, 3), lambda x: (x + 1).item()],
    ids=["index", "shapes", "values"],
)
def test_a_run_that_fails_leaves_nothing_behind_either(run: Any) -> None:
    """Where nothing has values, the fake run has the last word, and its error would hold its frames."""
    report = mg.inspect(Apply(lambda self, x: run(x)), torch.ones(2, device="meta"), on_failure="report")
    assert report.run.failure is not None
    assert "left-behind" not in [note.code for note in report.notes]


@pytest.mark.parametrize("run", ["fake", "real"])
def test_gradients_of_parameters_outside_the_model_are_put_back(run: Any) -> None:
    scale = WITH_GRADIENT["scale"]
    gradient = scale.grad = torch.ones(4)
    model = Apply(lambda self, x: OUTSIDE(self.layer(x)) * WITH_GRADIENT["scale"], layer=nn.Linear(4, 4))
    report = mg.inspect(model, torch.rand(2, 4), train=True, run=run)
    assert report.notes == ()
    assert (OUTSIDE.weight.grad, OUTSIDE.bias.grad) == (None, None)
    assert scale.grad is gradient
    assert gradient.tolist() == [1, 1, 1, 1]
