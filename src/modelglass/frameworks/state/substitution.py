"""Substitution: every tensor in a model is replaced for a while, and everything is put back exactly.

The user's module objects themselves run, so that patched methods, closures and hooks behave as they do in
real life; only their contents are exchanged. A log keeps what each dict, list, cell and object held before
the first change, and restores it whatever happened in between: attributes that the run sets, caches it
fills, generators it draws from, modules that change their class. What the code of the model can reach besides
(global variables, classes, defaults) is kept likewise, where only tensors of the model are exchanged.
"""

from __future__ import annotations

import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from gc import get_referents
from types import (
    BuiltinMethodType,
    CellType,
    FunctionType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
)
from typing import Any
from weakref import KeyedRef, ref

from modelglass.frameworks.state.builtin_objects import (
    ITERATORS,
    Witness,
    copy_iterator,
    keep_state,
    keeps_state,
)
from modelglass.frameworks.state.reach import Reach
from modelglass.undo import UndoLog

# The commonest values, which hold nothing.
_ATOMS = frozenset({int, float, bool, str, bytes, type(None), complex, range, slice})
_EMPTY: dict[Any, Any] = {}
_METHODS = frozenset({BuiltinMethodType, MethodType})
_VIEWS = frozenset({type(_EMPTY.keys()), type(_EMPTY.values()), type(_EMPTY.items())})
_LOOKED_INTO = 10_000  # items of a container that the code reaches, and the model does not hold

# Packages of the standard library whose objects are alive by themselves, or describe the process.
_ALIVE = frozenset(
    [
        "_thread",
        "threading",
        "multiprocessing",
        "concurrent",
        "asyncio",
        "_asyncio",
        "logging",
        "socket",
        "ssl",
        "subprocess",
        "selectors",
        "signal",
        "importlib",
        "_frozen_importlib",
        "_frozen_importlib_external",
        "zipimport",
        "io",
        "_io",
        "codecs",
        "tempfile",
        "sqlite3",
        "_sqlite3",
        "builtins",
        "abc",
        "typing",
        "inspect",
        "re",
        "functools",
        "operator",
        "decimal",
        "datetime",
        "ctypes",
        "mmap",
        "array",
        "ast",
        "dis",
        "tokenize",
        "traceback",
        "warnings",
        "weakref",
        "_weakref",
        "_collections_abc",
        "os",
        "posix",
        "nt",
        "sys",
        "gc",
        "contextvars",
        "_contextvars",
    ]
)
_PLAIN_OF_ALIVE = frozenset({"WeakKeyDictionary", "WeakValueDictionary", "WeakSet"})
_stdlib = frozenset(sys.stdlib_module_names)
_MISSING = object()


def _no_undo(value: Any) -> Callable[[], Any] | None:
    return None


def _no_look(function: FunctionType) -> None:
    pass


@dataclass(frozen=True, kw_only=True)
class Substitution:
    """What is exchanged in a framework's models, and which of its objects are looked into.

    `substitutes` are tried in order: the first whose type a value has makes the value's substitute.
    """

    package: str
    module: type
    substitutes: Mapping[type, Callable[[Any], Any]]
    # How to set a random generator of the framework's back, or None when the value is not a generator.
    generator: Callable[[Any], Callable[[], Any] | None] = field(default=_no_undo)
    entered: tuple[
        str, ...
    ] = ()  # beginnings of modules of the package whose objects hold tensors of the model
    # How to set back what a run gives to a tensor that is not exchanged, or None when there is nothing.
    staying: Callable[[Any], Callable[[], Any] | None] = field(default=_no_undo)
    builtins: Mapping[str, Any] = field(default_factory=dict)  # what takes their places in the model's code
    look_at: Callable[[FunctionType], None] = field(default=_no_look)  # at functions that the model reaches


def substitute_tensors(
    log: UndoLog, substitution: Substitution, *roots: Any, reach: bool = True
) -> tuple[tuple[Any, ...], Witness]:
    """The roots with every tensor replaced by its substitute; when the log is undone, all is as it was.

    A root that is a tensor or tuple comes back as a new object, everything else as itself. `reach`: what
    the code reaches is kept as well. The witness lists afterwards what moved and could not be put back.
    """
    substituter = _Substituter(substitution, log)
    replaced = tuple(substituter.substitute(root) for root in roots)
    if reach:
        substituter.keep_reached()
    return replaced, substituter.witness


class _Substituter:
    """Replaces tensors wherever they are held, and records how to undo everything."""

    def __init__(self, substitution: Substitution, log: UndoLog) -> None:
        self._substitution = substitution
        self._record = log.record
        self._substitutes: dict[int, Any] = {}
        self._originals: list[Any] = []  # keeps every id in use while the substituter lives
        self._visited: set[int] = set()
        self._pending: deque[Any] = deque()
        self._exchanges = True  # False: tensors stay, what changes is put back
        self._classes: dict[type, None] = {}
        self._functions: dict[int, FunctionType] = {}
        self._tensors = tuple(substitution.substitutes)
        self._inside = (
            dict,
            list,
            set,
            deque,
            bytearray,
            MappingProxyType,
            substitution.module,
            FunctionType,
        )
        self.witness = Witness()
        log.record(lambda: self._originals)  # so that it lives as long as the log

    def substitute(self, root: Any) -> Any:
        """The root's substitute, after everything reachable from it has been exchanged."""
        replacement = self._replace(root)
        self._enter_pending()
        return replacement

    def keep_reached(self) -> None:
        """Keep what the code of all that was entered can reach."""
        self._exchanges = False
        reach = Reach(
            self._substitution.package,
            self._record,
            self._replace,
            builtins=self._substitution.builtins,
            look_at=self._substitution.look_at,
        )
        while self._classes or self._functions:
            classes, self._classes = self._classes, {}
            functions, self._functions = self._functions, {}
            for cls in classes:
                reach.enter_class(cls)
            for function in functions.values():
                reach.enter_function(function)
            self._enter_pending()

    def _enter_pending(self) -> None:
        while self._pending:
            self._enter(self._pending.popleft())

    def _replace(self, value: Any) -> Any:
        """What to put in the value's place: a substitute for a tensor, the value itself for the rest."""
        cls = type(value)
        if cls in _ATOMS:
            return value
        if cls is dict or cls is OrderedDict:  # most of what a module holds, most of it empty
            self._visit(value)
            return value
        if isinstance(value, self._tensors):
            return self._tensor(value)
        if isinstance(value, tuple):
            return self._tuple(value)
        if cls in _METHODS and isinstance(value.__self__, self._tensors):
            return self._method(value)
        if isinstance(value, partial):
            return self._partial(value)
        if cls in ITERATORS:
            return self._iterator(value)
        if cls is frozenset:
            return self._frozenset(value)
        if cls in _VIEWS:
            self._replace(value.mapping)
        if isinstance(value, ref):
            return self._reference(value)
        if self._holds_things(value):
            self._visit(value)
        return value

    def _visit(self, holder: Any) -> None:
        if id(holder) in self._visited:
            return
        self._visited.add(id(holder))
        if type(holder) in (dict, OrderedDict) and not holder:
            self._record(_restore_dict, holder, _EMPTY)
        else:
            self._originals.append(holder)
            self._pending.append(holder)

    def _once(self, value: Any, make: Callable[[Any], Any]) -> Any:
        if id(value) not in self._substitutes:
            self._originals.append(value)
            replacement = make(value)
            self._substitutes[id(value)] = replacement
            self._substitutes[id(replacement)] = replacement
            self._originals.append(replacement)
        return self._substitutes[id(value)]

    def _tensor(self, value: Any) -> Any:
        if id(value) in self._substitutes:
            return self._substitutes[id(value)]
        if not self._exchanges:
            attributes = getattr(value, "__dict__", None)
            if attributes is not None:
                restore = None if id(attributes) in self._visited else self._substitution.staying(value)
                if restore is not None:
                    self._record(restore)
                self._visit(attributes)
            return value
        make = next(make for kind, make in self._substitution.substitutes.items() if isinstance(value, kind))
        replacement = self._once(value, make)
        attributes = getattr(value, "__dict__", None)
        if attributes and not isinstance(value, self._substitution.module):
            for extra in attributes.values():  # the substitute also has them
                self._replace(extra)
        return replacement

    def _tuple(self, value: tuple[Any, ...]) -> tuple[Any, ...]:
        items = [self._replace(item) for item in value]
        if all(new is old for new, old in zip(items, value, strict=True)):
            return value
        rebuilt: tuple[Any, ...] = self._once(value, partial(_rebuild_tuple, items=items))
        return rebuilt

    def _frozenset(self, value: frozenset[Any]) -> frozenset[Any]:
        items = [self._replace(item) for item in value]
        if all(new is old for new, old in zip(items, value, strict=True)):
            return value
        exchanged: frozenset[Any] = self._once(value, lambda original: frozenset(items))
        return exchanged

    def _reference(self, value: ref[Any]) -> ref[Any]:
        """A weak reference to the substitute, which lives as long as the log."""
        target = value()
        if not isinstance(target, self._tensors):
            return value
        new = self._replace(target)
        if new is target:
            return value
        key = (None, value.key) if isinstance(value, KeyedRef) else ()
        reference: ref[Any] = self._once(value, lambda original: type(original)(new, *key))
        return reference

    def _key(self, key: Any) -> Any:
        """What to look up in the key's place: tensors are found by which they are."""
        return self._replace(key) if isinstance(key, (tuple, frozenset, ref, *self._tensors)) else key

    def _method(self, value: Any) -> Any:
        """The same method of the substitute: `self.clear = self.buffer.zero_`."""
        owner = self._replace(value.__self__)
        if owner is value.__self__:
            return value
        if type(value) is MethodType:
            return self._once(value, lambda original: MethodType(original.__func__, owner))
        return self._once(value, lambda original: getattr(owner, original.__name__))

    def _partial(self, value: partial[Any]) -> Any:
        self._replace(value.keywords)
        parts = (value.func, value.args, tuple(value.keywords.items()))
        func, args, keywords = map(self._replace, parts)
        if func is value.func and args is value.args and keywords is parts[2]:
            return value
        return self._once(value, lambda original: type(original)(func, *args, **dict(keywords)))

    def _iterator(self, value: Any) -> Any:
        """A copy to go on with: one that was advanced cannot be set back."""
        if id(value) not in self._substitutes:
            copied = copy_iterator(value, self._tuple)
            if copied is None:
                self.witness.watch(value)
                copied = value
            self._once(value, lambda original: copied)
        return self._substitutes[id(value)]

    def _enter(self, holder: Any) -> None:
        """Exchange what one holder holds."""
        if isinstance(holder, dict):
            self._enter_dict(holder)
        elif isinstance(holder, list):
            self._enter_list(holder)
        elif isinstance(holder, deque):
            self._enter_deque(holder)
        elif isinstance(holder, (set, bytearray)):
            self._record(_restore_members, holder, holder.copy())
            if isinstance(holder, set):
                self._enter_set(holder)
        elif isinstance(holder, MappingProxyType):
            for behind in get_referents(holder):  # what it shows
                self._replace(behind)
        elif isinstance(holder, FunctionType):
            self._functions.setdefault(id(holder), holder)
            for cell in holder.__closure__ or ():
                self._enter_cell(cell)
            return
        elif isinstance(holder, MethodType):
            self._replace(holder.__self__)
            self._replace(holder.__func__)
            return
        elif (restore := self._substitution.generator(holder)) is not None:
            self._record(restore)
            return
        elif keeps_state(holder):
            keep_state(holder, self._record, self.witness, self._replace)
            return
        if isinstance(holder, defaultdict):
            self._enter_factory(holder)
        if type(holder) not in _BARE:
            self._enter_object(holder)

    def _enter_factory(self, holder: defaultdict[Any, Any]) -> None:
        """Exchange what makes the values of keys that are not there."""
        before = holder.default_factory
        self._record(setattr, holder, "default_factory", before)
        holder.default_factory = self._replace(before)

    def _enter_dict(self, holder: dict[Any, Any]) -> None:
        before = dict(_items(holder))
        self._record(_restore_dict, holder, before)
        if not self._exchanges and len(before) > _LOOKED_INTO:
            return
        has_new_keys = False
        for key, value in before.items():
            if type(key) not in _ATOMS:
                has_new_keys = has_new_keys or self._key(key) is not key
            new = self._replace(value)
            if new is not value:
                # Past any __setitem__ of a subclass: this is a substitution, not an assignment.
                dict.__setitem__(holder, key, new)

        if has_new_keys:
            items = [(self._key(key), value) for key, value in _items(holder)]
            _restore_dict(holder, dict(items))

    def _enter_set(self, holder: set[Any]) -> None:
        if not self._exchanges and len(holder) > _LOOKED_INTO:
            return
        before = tuple(set.__iter__(holder))
        items = [self._replace(item) for item in before]
        if any(new is not old for new, old in zip(items, before, strict=True)):
            set.clear(holder)
            set.update(holder, items)

    def _enter_list(self, holder: list[Any]) -> None:
        before = list.copy(holder)
        self._record(_restore_list, holder, before)
        if not self._exchanges and len(before) > _LOOKED_INTO:
            return
        for index, value in enumerate(before):
            new = self._replace(value)
            if new is not value:
                list.__setitem__(holder, index, new)

    def _enter_deque(self, holder: deque[Any]) -> None:
        before = tuple(deque.__iter__(holder))
        self._record(_restore_deque, holder, before)
        items = [self._replace(value) for value in before]
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
            self._record(_empty_cell, cell)
            return
        self._record(setattr, cell, "cell_contents", value)
        new = self._replace(value)
        if new is not value:
            cell.cell_contents = new

    def _enter_object(self, holder: Any) -> None:
        cls = type(holder)
        self._classes.setdefault(cls)
        self._record(_restore_class, holder, cls)
        attributes = getattr(holder, "__dict__", None)
        if type(attributes) is dict:
            self._record(_restore_namespace, holder, attributes)
            self._visit(attributes)
        for slot in _slots(cls):
            value = _slot_value(slot, holder)
            self._record(_restore_slot, slot, holder, value)
            new = value if value is _MISSING else self._replace(value)
            if new is not value:
                slot.__set__(holder, new)

    def _holds_things(self, value: Any) -> bool:
        if isinstance(value, (*self._inside, MethodType)):
            return True
        if isinstance(value, type):
            self._classes.setdefault(value)
            return False
        if keeps_state(value):
            return True
        cls = type(value)
        package = str(cls.__module__).partition(".")[0]
        if package in (self._substitution.package, "numpy", "modelglass") and not str(
            cls.__module__
        ).startswith(self._substitution.entered):
            return self._substitution.generator(value) is not None
        if package in _ALIVE and cls.__name__ not in _PLAIN_OF_ALIVE:
            return False
        return hasattr(value, "__dict__") or bool(_slots(cls))


def _rebuild_tuple(original: tuple[Any, ...], items: list[Any]) -> tuple[Any, ...]:
    """A tuple of the same class with other items and the same attributes; one held twice stays one."""
    kind: Any = type(original)
    if hasattr(kind, "n_sequence_fields"):  # made in C, where they are checked
        made: tuple[Any, ...] = kind(items)
        return made
    rebuilt: tuple[Any, ...] = tuple.__new__(kind, items)
    if hasattr(original, "__dict__"):
        vars(rebuilt).update(vars(original))
    return rebuilt


# Containers of exactly these types have no attributes.
_BARE = frozenset({dict, OrderedDict, list, deque, set, bytearray, MappingProxyType})


def _slots(cls: type) -> list[MemberDescriptorType]:
    """What a class keeps outside a `__dict__`, by descriptors that no method of the user's stands before."""
    return [
        value
        for base in cls.__mro__
        if "__slots__" in vars(base)
        for value in vars(base).values()
        if isinstance(value, MemberDescriptorType)
    ]


def _slot_value(slot: MemberDescriptorType, holder: Any) -> Any:
    try:
        return slot.__get__(holder)
    except AttributeError:
        return _MISSING


def _restore_class(holder: Any, cls: type) -> None:
    if type(holder) is not cls:
        object.__setattr__(holder, "__class__", cls)


def _restore_namespace(holder: Any, attributes: dict[str, Any]) -> None:
    if getattr(holder, "__dict__", None) is not attributes:
        object.__setattr__(holder, "__dict__", attributes)


def _restore_slot(slot: MemberDescriptorType, holder: Any, value: Any) -> None:
    now = _slot_value(slot, holder)
    if now is value:
        return
    if value is _MISSING:
        slot.__delete__(holder)
    else:
        slot.__set__(holder, value)


def _empty_cell(cell: CellType) -> None:
    try:
        del cell.cell_contents
    except ValueError:  # it is empty
        return


def _items(holder: dict[Any, Any]) -> Any:
    """What a dict holds, in its order, past the methods of a subclass of the user's."""
    return OrderedDict.items(holder) if isinstance(holder, OrderedDict) else dict.items(holder)


def _restore_dict(holder: dict[Any, Any], before: dict[Any, Any]) -> None:
    if not dict.__len__(holder) and not before:
        return
    items = _items(holder)
    same = len(items) == len(before) and all(
        k1 is k2 and v1 is v2 for (k1, v1), (k2, v2) in zip(items, before.items(), strict=True)
    )
    if not same:
        # Past the methods of a subclass, except for OrderedDict's own, which keep its order.
        base = OrderedDict if isinstance(holder, OrderedDict) else dict
        base.clear(holder)
        for key, value in before.items():
            base.__setitem__(holder, key, value)


def _restore_list(holder: list[Any], before: list[Any]) -> None:
    if list.__len__(holder) != len(before) or any(
        a is not b for a, b in zip(list.__iter__(holder), before, strict=True)
    ):
        list.__setitem__(holder, slice(None), before)


def _restore_deque(holder: deque[Any], before: tuple[Any, ...]) -> None:
    deque.clear(holder)
    deque.extend(holder, before)


def _restore_members(holder: set[Any] | bytearray, before: set[Any] | bytearray) -> None:
    """Members of a set are hashed by identity or value; a tensor among them is compared by neither here."""
    if isinstance(holder, bytearray):
        holder[:] = before
    elif set(map(id, set.copy(holder))) != set(map(id, before)):
        set.clear(holder)
        set.update(holder, before)
