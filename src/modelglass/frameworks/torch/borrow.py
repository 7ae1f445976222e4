"""Borrowing a model: every tensor in it is replaced for a while, and everything is put back exactly.

The user's module objects themselves run, so that patched methods, closures and hooks behave as they do in
real life; only their contents are exchanged. A journal keeps what each dict, list and object held before the
first change, and restores it whatever happened in between: attributes that `forward` sets, caches it
fills, modules that change their class.
"""

from __future__ import annotations

import random
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import nn

Substitute = Callable[[torch.Tensor], torch.Tensor]

# The commonest values, which hold nothing.
_ATOMS = frozenset({int, float, bool, str, bytes, type(None), type})

_EMPTY: dict[Any, Any] = {}

# Objects from these packages hold no model state that a forward pass changes, and may be large.
_OPAQUE = frozenset(sys.stdlib_module_names) | {"torch", "numpy", "builtins"}


@contextmanager
def borrowed(substitute: Substitute, *roots: Any) -> Iterator[tuple[Any, ...]]:
    """The roots with every tensor replaced by its substitute; afterwards all is as it was.

    A root that is a tensor or tuple comes back as a new object, everything else as itself.
    """
    journal = _Journal(substitute)
    try:
        yield tuple(journal.replaced(root) for root in roots)
    finally:
        journal.restore()


@contextmanager
def untouched_process() -> Iterator[None]:
    """Random states, gradient mode, default type, device and thread count are the same afterwards."""
    generators = [torch.default_generator]
    if torch.cuda.is_initialized():
        generators += torch.cuda.default_generators
    states = [generator.get_state() for generator in generators]
    numpy = sys.modules.get("numpy")  # nobody's numpy state changes if nobody loaded it
    numpy_state = None if numpy is None else numpy.random.get_state()
    python_state = random.getstate()
    grad, dtype, threads = (
        torch.is_grad_enabled(),
        torch.get_default_dtype(),
        torch.get_num_threads(),
    )
    deterministic = torch.are_deterministic_algorithms_enabled()
    try:
        yield
    finally:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)
        if numpy is not None:
            numpy.random.set_state(numpy_state)
        random.setstate(python_state)
        torch.set_grad_enabled(grad)
        if torch.get_default_dtype() != dtype:
            torch.set_default_dtype(dtype)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        if torch.are_deterministic_algorithms_enabled() != deterministic:
            torch.use_deterministic_algorithms(deterministic)


class _Journal:
    """Replaces tensors wherever they are held, and remembers how to undo everything."""

    def __init__(self, substitute: Substitute) -> None:
        self._substitute = substitute
        self._substitutes: dict[int, Any] = {}
        self._originals: list[Any] = []  # keeps every id in use while the journal lives
        self._visited: set[int] = set()
        self._undo: list[Callable[[], Any]] = []
        self._dicts: list[tuple[dict[Any, Any], dict[Any, Any]]] = []  # by far the most, so kept bare
        self._pending: deque[Any] = deque()

    def replaced(self, root: Any) -> Any:
        """The root's stand-in, after everything reachable from it has been exchanged."""
        stand_in = self._stand_in(root)
        while self._pending:
            self._enter(self._pending.popleft())
        return stand_in

    def restore(self) -> None:
        for undo in reversed(self._undo):
            undo()
        for holder, before in reversed(self._dicts):
            _restore_dict(holder, before)

    def _stand_in(self, value: Any) -> Any:
        """What to put in the value's place: a substitute for a tensor, the value itself for the rest."""
        if type(value) in _ATOMS:
            return value
        if isinstance(value, torch.Tensor):
            return self._once(value, self._substitute)
        if isinstance(value, torch.jit.ScriptModule):
            return self._once(value, _script_copy)  # its tensors live outside Python
        if type(value) is tuple or (isinstance(value, tuple) and hasattr(value, "_fields")):
            return self._tuple(value)
        if _holds_things(value) and id(value) not in self._visited:
            self._visited.add(id(value))
            if isinstance(value, dict) and not value:
                self._dicts.append((value, _EMPTY))  # every module has a dozen of these
            else:
                self._originals.append(value)
                self._pending.append(value)
        return value

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
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)

    def _enter(self, holder: Any) -> None:
        """Exchange what one holder holds."""
        if isinstance(holder, dict):
            self._enter_dict(holder)
        elif isinstance(holder, list):
            self._enter_list(holder)
        elif isinstance(holder, (set, deque)):
            for item in holder:
                self._stand_in(item)
            self._remember_members(holder)
        elif isinstance(holder, torch.Generator):
            self._undo.append(partial(holder.set_state, holder.get_state()))
        elif isinstance(holder, FunctionType):
            for cell in holder.__closure__ or ():
                if _is_filled(cell):
                    self._stand_in(cell.cell_contents)
        elif isinstance(holder, MethodType):
            self._stand_in(holder.__self__)
        elif isinstance(holder, partial):
            self._stand_in((holder.func, holder.args, holder.keywords))
        else:
            self._undo.append(partial(_restore_class, holder, type(holder)))
            self._stand_in(vars(holder))

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
        holder[:] = [self._stand_in(value) for value in before]

    def _remember_members(self, holder: set[Any] | deque[Any]) -> None:
        before = holder.copy()

        def undo() -> None:
            if holder != before:
                holder.clear()
                holder.update(before) if isinstance(holder, set) else holder.extend(before)

        self._undo.append(undo)


def _script_copy(module: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
    """A copy of its own: copied with gradients on, it would backpropagate into the original."""
    with torch.no_grad():
        copy = deepcopy(module)
    for original, copied in zip(module.parameters(), copy.parameters(), strict=True):
        copied.requires_grad_(original.requires_grad)
    return copy


def _holds_things(value: Any) -> bool:
    if isinstance(
        value,
        (dict, list, set, deque, nn.Module, torch.Generator, FunctionType, MethodType, partial),
    ):
        return True
    package = type(value).__module__.partition(".")[0]
    return hasattr(value, "__dict__") and not isinstance(value, type) and package not in _OPAQUE


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:  # an empty cell: the variable is not bound yet
        return False
    return True


def _restore_class(holder: Any, cls: type) -> None:
    if type(holder) is not cls:
        holder.__class__ = cls


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
        holder[:] = before
