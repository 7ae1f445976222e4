"""State that is not a tensor is as before an inspection, or one note names what moved."""

from __future__ import annotations

import array
import collections
import ctypes
import functools
import io
import itertools
import queue
import random
import threading
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import modelglass as mg


class Counting:
    def __init__(self) -> None:
        self.count = 0


class Slotted:
    __slots__ = ("__hidden", "count")

    def __init__(self) -> None:
        self.count = self.__hidden = 0

    def move(self) -> None:
        self.count += 1
        self.__hidden += 1

    def seen(self) -> Any:
        return self.count, self.__hidden


class Table(dict[str, int]):
    hits = 0


def _filled(made: Any) -> Any:
    for item in (1, 2, 3):
        made.put(item)
    return made


def _numbered() -> Callable[[], int]:
    number = 0

    def call() -> int:
        nonlocal number
        number += 1
        return number

    return call


def _count_up(value: Any) -> None:
    value.count += 1


# How to make it, how a forward pass moves it, and how to see where it is.
KINDS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], Callable[[Any], Any]]] = {
    "an iterator": (lambda: iter([1, 2, 3]), next, list),
    "an iterator backwards": (lambda: reversed([1, 2, 3]), next, list),
    "an iterator of a dictionary": (lambda: iter({1: 2, 3: 4}), next, list),
    "a count": (itertools.count, next, repr),
    "a cycle": (lambda: itertools.cycle([1, 2]), next, next),
    "an enumeration": (lambda: enumerate(iter("abc")), next, list),
    "iterators in step": (lambda: zip(iter([1, 2]), itertools.count(), strict=False), next, list),
    "a mapped iterator": (lambda: map(str, iter([1, 2])), next, list),
    "a chain": (lambda: itertools.chain([1, 2], [3]), next, list),
    "a queue": (
        lambda: _filled(queue.Queue()),
        lambda q: q.get(),
        lambda q: (list(q.queue), q.unfinished_tasks),
    ),
    "a priority queue": (lambda: _filled(queue.PriorityQueue()), lambda q: q.get(), lambda q: list(q.queue)),
    "an array": (lambda: np.zeros(3), lambda a: a.fill(1), lambda a: a.tolist()),
    "a part of an array": (lambda: np.zeros((4, 4))[::2, 1:], lambda a: a.fill(1), lambda a: a.tolist()),
    "an array of objects": (
        lambda: np.array([None, 1], dtype=object),
        lambda a: a.fill(3),
        lambda a: a.tolist(),
    ),
    "a generator of numpy": (lambda: np.random.PCG64(0), lambda g: g.random_raw(), lambda g: str(g.state)),
    "a random generator": (lambda: random.Random(1), lambda g: g.random(), lambda g: g.getstate()),
    "the system's generator": (random.SystemRandom, lambda g: g.random(), lambda g: None),
    "a plain array": (lambda: array.array("i", [1]), lambda a: a.append(2), list),
    "bytes": (lambda: bytearray(b"a"), lambda a: a.extend(b"b"), bytes),
    "a view of bytes": (lambda: memoryview(bytearray(b"ab")), lambda a: a.__setitem__(0, 9), bytes),
    "a number of C": (lambda: ctypes.c_int(1), lambda a: setattr(a, "value", 9), lambda a: a.value),
    "a text stream": (lambda: io.StringIO("a"), lambda s: s.write("bc"), lambda s: (s.getvalue(), s.tell())),
    "a byte stream": (lambda: io.BytesIO(b"a"), lambda s: s.write(b"bc"), lambda s: (s.getvalue(), s.tell())),
    "a deque": (lambda: collections.deque([1], maxlen=2), lambda d: d.extend([2, 3]), list),
    "an ordered dictionary": (
        lambda: collections.OrderedDict(a=1, b=2),
        lambda d: d.move_to_end("a"),
        lambda d: list(d.items()),
    ),
    "a counter": (lambda: collections.Counter("ab"), lambda d: d.update("a"), dict),
    "a dictionary with a default": (lambda: collections.defaultdict(list), lambda d: d["x"].append(1), dict),
    "a chain of dictionaries": (lambda: collections.ChainMap({}), lambda d: d.update(b=2), dict),
    "a dictionary with attributes": (Table, lambda d: setattr(d, "hits", 1), lambda d: d.hits),
    "an object": (Counting, _count_up, lambda o: o.count),
    "an object's attributes": (Counting, lambda o: setattr(o, "__dict__", {"count": 5}), lambda o: o.count),
    "slots": (Slotted, lambda o: o.move(), lambda o: o.seen()),
    "a namespace": (lambda: types.SimpleNamespace(count=0), _count_up, lambda o: o.count),
    "an event": (threading.Event, lambda e: e.set(), lambda e: e.is_set()),
    "a semaphore": (lambda: threading.Semaphore(2), lambda s: s.acquire(), lambda s: s._value),
    "a thread's own": (threading.local, lambda o: setattr(o, "count", 1), vars),
    "an attribute of a tensor": (lambda: torch.ones(2), lambda t: setattr(t, "tag", 1), vars),
    "a view of a dictionary": (lambda: types.MappingProxyType({"a": [1]}), lambda m: m["a"].append(1), str),
    "a keyword of a partial": (
        lambda: functools.partial(max, default=[1]),
        lambda p: p.keywords["default"].append(1),
        lambda p: p.keywords,
    ),
    "a closure": (_numbered, lambda f: f(), lambda f: f()),
}
CANNOT: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "a generator": (lambda: (number for number in [1, 2, 3]), next),
    "a generator that counts": (lambda: (number for number in itertools.count()), next),
    "a simple queue": (lambda: _filled(queue.SimpleQueue()), lambda q: q.get()),
    "a stream that is closed": (lambda: io.StringIO("a"), lambda s: s.close()),
    "a map over a generator": (lambda: map(str, (number for number in [1, 2])), next),
}
PLACES = ("model", "table", "class", "object")
TABLE: dict[str, Any] = {}
OBJECT = types.SimpleNamespace()


def _held(place: str, model: nn.Module) -> Any:
    if place == "model":
        return model.kept
    return TABLE["kept"] if place == "table" else OBJECT.kept if place == "object" else type(model).shared[0]


def _model(place: str, value: Any, move: Callable[[Any], Any]) -> nn.Module:
    class Moving(nn.Module):
        shared = (value,) if place == "class" else ()

        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            move(_held(place, self))
            return self.linear(x)

    model = Moving()
    if place == "model":
        model.kept = value
    TABLE["kept"] = OBJECT.kept = value
    return model


@pytest.mark.parametrize("run", ["fake", "real"])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", KINDS)
def test_what_moves_is_put_back(kind: str, place: str, run: Any) -> None:
    make, move, look = KINDS[kind]
    value = make()
    model = _model(place, value, move)
    report = mg.inspect(model, torch.ones(1, 2), run=run)
    assert report.run.failure is None
    assert "state-moved" not in [note.code for note in report.notes]
    assert _held(place, model) is value
    assert look(value) == look(make())


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", CANNOT)
def test_what_cannot_be_put_back_is_named(kind: str, place: str) -> None:
    make, move = CANNOT[kind]
    report = mg.inspect(_model(place, make(), move), torch.ones(1, 2))
    notes = [note for note in report.notes if note.code == "state-moved"]
    assert len(notes) == 1
    assert notes[0].where


def test_what_did_not_move_is_not_named() -> None:
    model = _model("model", [make() for make, _ in CANNOT.values()], lambda held: None)
    assert "state-moved" not in [note.code for note in mg.inspect(model, torch.ones(1, 2)).notes]
