"""Who holds an object: found by Python's garbage collector, made to let go, and named for people."""

from __future__ import annotations

import gc
import sys
from collections import deque
from types import CellType, FrameType, FunctionType, MemberDescriptorType, ModuleType
from typing import Any

_DEEP = 8  # containers around an object that are looked through


class Release:
    """Has whoever holds some objects let go of them.

    What cannot lose a part, such as a tuple, is itself let go of by whoever holds it. A cache of `functools`
    is emptied, which nobody notices; other places are named.
    """

    def __init__(self, unwanted: list[Any]) -> None:
        self.freed: list[str] = []  # places that held one
        self.kept: list[str] = []  # places that cannot let go
        self._seen: set[int] = set()
        self._let_go(unwanted, 0)

    def _let_go(self, unwanted: list[Any], depth: int) -> None:
        ids = set(map(id, unwanted))
        self._seen |= ids | {id(unwanted)}
        wholes: list[Any] = []
        for holder in gc.get_referrers(*unwanted):
            if id(holder) in self._seen or isinstance(holder, FrameType):
                continue
            if isinstance(holder, CellType) or depth == _DEEP:
                self.kept.append(name_of(holder))
            elif not self._is_emptied(holder, ids):
                wholes.append(holder)
        if wholes:
            self._let_go(wholes, depth + 1)

    def _is_emptied(self, holder: Any, ids: set[int]) -> bool:
        """Take what is unwanted out of a holder; False for one that cannot lose a part."""
        if isinstance(holder, dict):
            self._empty_dict(holder, ids)
        elif isinstance(holder, (list, deque)):
            kept = [item for item in holder if id(item) not in ids]
            holder.clear()
            holder.extend(kept)
            self.freed.append(name_of(holder))
        elif isinstance(holder, set):
            holder -= {item for item in holder if id(item) in ids}
            self.freed.append(name_of(holder))
        elif hasattr(holder, "cache_clear"):
            holder.cache_clear()
        else:
            return self._is_slot_emptied(holder, ids)
        return True

    def _empty_dict(self, holder: dict[Any, Any], ids: set[int]) -> None:
        owner = _owner_of(holder)
        for key in [key for key, value in holder.items() if id(value) in ids or id(key) in ids]:
            place = f"[{str(key)[:40]!r}]" if owner is None else f".{key}"
            self.freed.append(name_of(holder if owner is None else owner) + place)
            if isinstance(owner, type):
                type.__delattr__(owner, key)
            else:
                del holder[key]

    def _is_slot_emptied(self, holder: Any, ids: set[int]) -> bool:
        found = False
        attributes = getattr(holder, "__dict__", None)
        if type(attributes) is dict and any(id(value) in ids for value in attributes.values()):
            self._empty_dict(attributes, ids)
            found = True
        for base in type(holder).__mro__:
            for name, slot in vars(base).items():
                if not isinstance(slot, MemberDescriptorType) or "__slots__" not in vars(base):
                    continue
                if hasattr(holder, name) and id(slot.__get__(holder)) in ids:
                    slot.__delete__(holder)
                    self.freed.append(f"{name_of(holder)}.{name}")
                    found = True
        return found


def name_of(value: Any) -> str:
    """What people would call an object: a variable that has it, or its class."""
    if isinstance(value, ModuleType):
        return str(vars(value).get("__name__", "a module"))
    if isinstance(value, (type, FunctionType)):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, CellType):
        return "a variable that a function shares with one inside it"
    for holder in gc.get_referrers(value):
        owner = _owner_of(holder) if type(holder) is dict else None
        if owner is not None:
            return next(
                (f"{name_of_owner(owner)}.{key}" for key, each in holder.items() if each is value), ""
            )
        attributes = None if isinstance(holder, FrameType) else getattr(holder, "__dict__", None)
        for key, each in attributes.items() if type(attributes) is dict else ():
            if each is value:
                return f"{name_of_owner(holder)}.{key}"
    return f"a {type(value).__name__}"


def name_of_owner(owner: Any) -> str:
    """A module, class or function by its name, another object by its class."""
    if isinstance(owner, (ModuleType, type, FunctionType)):
        return name_of(owner)
    return type(owner).__qualname__


def _owner_of(attributes: dict[Any, Any]) -> Any:
    """The module, class, function or object whose attributes a dict holds; None for a dict of its own."""
    named = sys.modules.get(str(attributes.get("__name__", "")))
    if named is not None and vars(named) is attributes:
        return named
    for holder in gc.get_referrers(attributes):
        if isinstance(holder, type):
            if "__module__" in attributes and attributes["__module__"] == holder.__module__:
                return holder
        elif not isinstance(holder, FrameType) and getattr(holder, "__dict__", None) is attributes:
            return holder
    return None
