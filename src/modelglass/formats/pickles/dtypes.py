"""Types of numpy's arrays, as pickles describe them: numpy believes a description that reaches other memory.

It does not compare the flags of a type with what the type holds, nor where fields lie with its size, so that
loading takes numbers of the file for addresses, or reads and writes beyond an element.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from modelglass.formats.pickles.objects import Global, Pairs, Thing, as_text

MOST_LOOKED_AT = 1000  # types inside of one; numpy itself takes 32 dimensions, and few fields
_SIMPLE = re.compile(r"[<>|=]?([a-zA-Z?])([0-9]{0,9})")
_OBJECTS = frozenset(("numpy.object_", "builtins.object"))
_COUNTED = 0b11  # of the flags: items are counted, and pickled as a list


def is_type(made: Thing) -> bool:
    """Whether a call gives a type of numpy's."""
    return made.path == "numpy.dtype" or made.path.startswith("numpy.dtypes.")


def lie_of(made: Thing) -> str | None:
    """What is wrong with the state of a type, in a few words; None for what numpy writes itself."""
    state = made.state
    if type(state) is not tuple or not 8 <= len(state) <= 9:
        return None
    size, flags = state[5], state[7]
    if type(flags) is int and flags & _COUNTED != _COUNTED and _may_hold_objects(made):
        return "holds objects and declares that it does not: numbers of the file are taken for addresses"
    if type(size) is int and size < -1:
        return f"has {size:,} bytes"
    for inner, offset in _fields(state):
        needed = _size(inner)
        if type(size) is int and (offset < 0 or offset + (needed or 0) > max(size, 0)):
            return (
                f"has {size:,} bytes, and a field at byte {offset:,}: what lies beside it is taken for values"
            )
    return None


def _may_hold_objects(made: Thing) -> bool:
    waiting: list[Any] = [made]
    for _ in range(MOST_LOOKED_AT):
        if not waiting:
            return False
        value = waiting.pop()
        if not isinstance(value, Thing) or not is_type(value) or value.path == "numpy.dtypes.ObjectDType":
            return True
        described = value.first_argument
        if isinstance(described, (str, bytes)):
            found = _SIMPLE.fullmatch(as_text(described))
            if found is None or found[1] == "O":
                return True
        elif type(described) is Global:
            if described.path in _OBJECTS:
                return True
        elif described is not None:
            return True
        if type(value.state) is tuple and len(value.state) > 4:
            waiting += (inner for inner, _ in _fields(value.state))
            waiting += value.state[2][:1] if type(value.state[2]) is tuple else ()
    return True


def _fields(state: tuple[Any, ...]) -> Iterator[tuple[Any, int]]:
    """The types of the fields that a state has, and where each begins."""
    for _, field in state[4].items() if type(state[4]) is Pairs else ():
        if type(field) is tuple and len(field) > 1 and type(field[1]) is int:
            yield field[0], field[1]


def _size(made: Any) -> int | None:
    """The bytes of one element, where that is plain."""
    if not isinstance(made, Thing):
        return None
    state = made.state
    if type(state) is tuple and len(state) > 5 and type(state[5]) is int and state[5] > 0:
        return state[5]
    found = _SIMPLE.fullmatch(as_text(made.first_argument))
    return int(found[2]) * (4 if found[1] == "U" else 1) if found is not None and found[2] else None
