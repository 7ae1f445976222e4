"""Borrowing a model: every tensor in it is replaced for a while, and everything is put back exactly.

The user's module objects themselves run, so that patched methods, closures and hooks behave as they do in
real life; only their contents are exchanged. A journal keeps what each dict, list, cell and object held
before the first change, and restores it whatever happened in between: attributes that the run sets, caches
it fills, generators it draws from, modules that change their class.
"""

from __future__ import annotations

import random
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import CellType, FunctionType, MethodType
from typing import Any

Undo = Callable[[], Any]

# The commonest values, which hold nothing.
_ATOMS = frozenset({int, float, bool, str, bytes, type(None), type})
_EMPTY: dict[Any, Any] = {}

# Standard-library packages whose objects people keep state in. Objects of the others (locks, loggers, files,
# threads) and of frameworks and numpy themselves are left alone: they may be large, shared and alive.
_STATEFUL_STDLIB = frozenset({"types", "collections", "argparse", "dataclasses"})
_stdlib = frozenset(sys.stdlib_module_names)
_MISSING = object()


def _no_generator(value: Any) -> Undo | None:
    return None


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What is exchanged in a loan of one framework's model, and what of the framework is looked into.

    `substitutes` are tried in order: the first whose type a value has makes the value's stand-in.
    """

    package: str
    module: type
    substitutes: Mapping[type, Callable[[Any], Any]]
    # How to set a random generator of the framework's back, or None when the value is none.
    generator: Callable[[Any], Undo | None] = field(default=_no_generator)


@contextmanager
def borrowed(terms: Terms, *roots: Any) -> Iterator[tuple[Any, ...]]:
    """The roots with every tensor replaced by its substitute; afterwards all is as it was.

    A root that is a tensor or tuple comes back as a new object, everything else as itself.
    """
    journal = _Journal(terms)
    try:
        yield tuple(journal.replaced(root) for root in roots)
    finally:
        journal.restore()


class _Journal:
    """Replaces tensors wherever they are held, and remembers how to undo everything."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._substitutes: dict[int, Any] = {}
        self._originals: list[Any] = []  # keeps every id in use while the journal lives
        self._visited: set[int] = set()
        self._undo: list[Undo] = []
        self._dicts: list[tuple[dict[Any, Any], dict[Any, Any]]] = []  # by far the most, so kept bare
        self._pending: deque[Any] = deque()

    def replaced(self, root: Any) -> Any:
        """The root's stand-in, after everything reachable from it has been exchanged."""
        stand_in = self._stand_in(root)
        while self._pending:
            self._enter(self._pending.popleft())
        return stand_in

    def restore(self) -> None:
        """Undo all, the first trouble notwithstanding: half a model given back is the worst outcome."""
        undos: list[Undo] = [
            *self._undo,
            *(partial(_restore_dict, *pair) for pair in self._dicts),
        ]
        trouble: Exception | None = None
        for undo in reversed(undos):
            try:
                undo()
            except Exception as error:
                trouble = trouble or error
        if trouble is not None:
            raise trouble

    def _stand_in(self, value: Any) -> Any:
        """What to put in the value's place: a substitute for a tensor, the value itself for the rest."""
        cls = type(value)
        if cls in _ATOMS:
            return value
        if cls is dict or cls is OrderedDict:  # most of what a module holds, most of it empty
            self._visit(value)
            return value
        for kind, make in self._terms.substitutes.items():
            if isinstance(value, kind):
                return self._once(value, make)
        if type(value) is tuple or (isinstance(value, tuple) and hasattr(value, "_fields")):
            return self._tuple(value)
        if isinstance(value, partial):
            return self._partial(value)
        if self._holds_things(value):
            self._visit(value)
        return value

    def _visit(self, holder: Any) -> None:
        if id(holder) in self._visited:
            return
        self._visited.add(id(holder))
        if type(holder) in (dict, OrderedDict) and not holder:
            self._dicts.append((holder, _EMPTY))
        else:
            self._originals.append(holder)
            self._pending.append(holder)

    def _once(self, value: Any, make: Callable[[Any], Any]) -> Any:
        if id(value) not in self._substitutes:
            self._originals.append(value)
            stand_in = make(value)
            self._substitutes[id(value)] = stand_in
            self._substitutes[id(stand_in)] = stand_in
            self._originals.append(stand_in)
        return self._substitutes[id(value)]

    def _tuple(self, value: tuple[Any, ...]) -> tuple[Any, ...]:
        items = [self._stand_in(item) for item in value]
        if all(new is old for new, old in zip(items, value, strict=True)):
            return value
        rebuilt: tuple[Any, ...] = self._once(value, partial(_rebuilt, items=items))
        return rebuilt

    def _partial(self, value: partial[Any]) -> Any:
        parts = (value.func, value.args, tuple(value.keywords.items()))
        func, args, keywords = map(self._stand_in, parts)
        if func is value.func and args is value.args and keywords is parts[2]:
            return value
        return self._once(value, lambda original: type(original)(func, *args, **dict(keywords)))

    def _enter(self, holder: Any) -> None:
        """Exchange what one holder holds."""
        if isinstance(holder, dict):
            self._enter_dict(holder)
            if isinstance(holder, self._terms.module):  # which has attributes, too
                self._enter_object(holder)
        elif isinstance(holder, list):
            self._enter_list(holder)
        elif isinstance(holder, deque):
            self._enter_deque(holder)
        elif isinstance(holder, (set, bytearray)):
            self._undo.append(partial(_restore_members, holder, holder.copy()))
        elif isinstance(holder, FunctionType):
            for cell in holder.__closure__ or ():
                self._enter_cell(cell)
        elif isinstance(holder, MethodType):
            self._stand_in(holder.__self__)
        elif (restore := self._generator_state(holder)) is not None:
            self._undo.append(restore)
        else:
            self._enter_object(holder)

    def _enter_dict(self, holder: dict[Any, Any]) -> None:
        before = dict(holder)
        self._dicts.append((holder, before))
        for key, value in before.items():
            new = self._stand_in(value)
            if new is not value:
                # Past any __setitem__ of a subclass: this is a loan, not an assignment.
                dict.__setitem__(holder, key, new)

    def _enter_list(self, holder: list[Any]) -> None:
        before = list(holder)
        self._undo.append(partial(_restore_list, holder, before))
        for index, value in enumerate(before):
            new = self._stand_in(value)
            if new is not value:
                list.__setitem__(holder, index, new)

    def _enter_deque(self, holder: deque[Any]) -> None:
        before = tuple(holder)
        self._undo.append(partial(_restore_deque, holder, before))
        items = [self._stand_in(value) for value in before]
        if any(new is not old for new, old in zip(items, before, strict=True)):
            _restore_deque(holder, tuple(items))

    def _enter_cell(self, cell: CellType) -> None:
        if id(cell) in self._visited:
            return
        self._visited.add(id(cell))
        self._originals.append(cell)
        try:
            value = cell.cell_contents
        except ValueError:  # an empty cell: the variable is not bound yet
            return
        self._undo.append(partial(setattr, cell, "cell_contents", value))
        new = self._stand_in(value)
        if new is not value:
            cell.cell_contents = new

    def _enter_object(self, holder: Any) -> None:
        self._undo.append(partial(_restore_class, holder, type(holder)))
        if hasattr(holder, "__dict__"):
            self._stand_in(vars(holder))
        for name in _slots(type(holder)):
            value = getattr(holder, name, _MISSING)
            self._undo.append(partial(_restore_slot, holder, name, value))
            new = value if value is _MISSING else self._stand_in(value)
            if new is not value:
                object.__setattr__(holder, name, new)

    def _holds_things(self, value: Any) -> bool:
        inside = (dict, list, set, deque, bytearray, self._terms.module, FunctionType, MethodType)
        if isinstance(value, inside):
            return True
        if isinstance(value, type):
            return False
        cls = type(value)
        package = str(cls.__module__).partition(".")[0]
        if package in (self._terms.package, "numpy", "random"):
            return self._generator_state(value) is not None
        foreign = package not in _stdlib and package != "builtins"
        return (foreign or package in _STATEFUL_STDLIB) and (hasattr(value, "__dict__") or bool(_slots(cls)))

    def _generator_state(self, holder: Any) -> Undo | None:
        return self._terms.generator(holder) or _generator_state(holder)


def _rebuilt(original: tuple[Any, ...], items: list[Any]) -> tuple[Any, ...]:
    """A tuple of the same class with other items and the same attributes; one held twice stays one."""
    rebuilt = tuple.__new__(type(original), items)
    if hasattr(original, "__dict__"):
        vars(rebuilt).update(vars(original))
    return rebuilt


def _slots(cls: type) -> list[str]:
    return [
        name
        for base in cls.__mro__
        for name in _as_names(base.__dict__.get("__slots__", ()))
        if name not in ("__dict__", "__weakref__")
    ]


def _as_names(slots: Any) -> tuple[str, ...]:
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _generator_state(holder: Any) -> Undo | None:
    """How to set one of Python's or numpy's random generators back, or None when it is none."""
    if isinstance(holder, random.Random):
        return partial(holder.setstate, holder.getstate())
    if not type(holder).__module__.startswith("numpy.random"):
        return None
    if hasattr(holder, "bit_generator"):
        return partial(setattr, holder.bit_generator, "state", holder.bit_generator.state)
    return partial(holder.set_state, holder.get_state()) if hasattr(holder, "get_state") else None


def _restore_class(holder: Any, cls: type) -> None:
    if type(holder) is not cls:
        holder.__class__ = cls


def _restore_slot(holder: Any, name: str, value: Any) -> None:
    now = getattr(holder, name, _MISSING)
    if now is value:
        return
    if value is _MISSING:
        object.__delattr__(holder, name)
    else:
        object.__setattr__(holder, name, value)


def _restore_dict(holder: dict[Any, Any], before: dict[Any, Any]) -> None:
    if not holder and not before:
        return
    same = len(holder) == len(before) and all(
        k1 is k2 and holder[k1] is before[k2] for k1, k2 in zip(holder, before, strict=True)
    )
    if not same:
        # Past the methods of a subclass, except for OrderedDict's own, which keep its order.
        base = OrderedDict if isinstance(holder, OrderedDict) else dict
        base.clear(holder)
        for key, value in before.items():
            base.__setitem__(holder, key, value)


def _restore_list(holder: list[Any], before: list[Any]) -> None:
    if len(holder) != len(before) or any(a is not b for a, b in zip(holder, before, strict=True)):
        list.__setitem__(holder, slice(None), before)


def _restore_deque(holder: deque[Any], before: tuple[Any, ...]) -> None:
    deque.clear(holder)
    deque.extend(holder, before)


def _restore_members(holder: set[Any] | bytearray, before: set[Any] | bytearray) -> None:
    """Members of a set are hashed by identity or value; a tensor among them is compared by neither here."""
    if isinstance(holder, bytearray):
        holder[:] = before
    elif {id(item) for item in holder} != {id(item) for item in before}:
        holder.clear()
        holder.update(before)
