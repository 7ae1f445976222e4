"""Which functions and classes a pickle names, where, how often, and what it does with them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from modelglass.formats.pickles.objects import Blob, Elements, Global, Pairs, Persistent, Thing

DYNAMIC = "<dynamic>"
KEPT_CALLS = 4  # of each name, whose arguments are shown
MOST_LOOKED_AT = 1_000_000  # values in arguments of one stream; what has more counts as telling


class Use:
    """One name, and how it is used."""

    __slots__ = (
        "as_class", "as_function", "called_with", "changed", "first_calls", "harmless", "made_with", "module",
        "name", "named", "offset", "told",
    )  # fmt: skip

    def __init__(self, module: str, name: str, offset: int) -> None:
        self.module, self.name, self.offset = module, name, offset
        self.named = 0
        self.as_function = 0  # calls that may be of a function
        self.as_class = 0  # calls that can only make an object
        self.called_with = 0  # of the first, those that hand over more than numbers
        self.made_with = 0  # of the second
        self.told = False  # whether one of these hands over text that can be more than a word
        self.harmless = 0  # calls that are not counted, because their arguments make them so
        self.first_calls: list[Thing] = []
        self.changed: int | None = None  # where the file first sets the state or items of what is named

    @property
    def calls(self) -> int:
        return self.as_function + self.as_class

    @property
    def path(self) -> str:
        return f"{self.module}.{self.name}" if self.name else self.module


class Uses:
    """All names of one stream, in order.

    A name with dots is a way through attributes: `a` and `b.c` are not the same as `a.b` and `c`.
    """

    def __init__(self) -> None:
        self._by_name: dict[str | tuple[str, str], Use] = {}
        self._left = MOST_LOOKED_AT

    def __iter__(self) -> Iterator[Use]:
        return iter(self._by_name.values())

    def named(self, each: Global) -> None:
        self._use(each).named += 1

    def called(self, made: Thing, *, as_class: bool) -> None:
        function = made.function
        use = self._use(function) if type(function) is Global else self._computed(function, made.offset)
        with_more = not (_only_numbers(made.args) and _only_numbers(_named(made.kwargs)))
        if as_class:
            use.as_class += 1
            use.made_with += with_more
            use.told = use.told or (with_more and self._tells(made))
        else:
            use.as_function += 1
            use.called_with += with_more
        if len(use.first_calls) < KEPT_CALLS:
            use.first_calls.append(made)

    def _tells(self, made: Thing) -> bool:
        """Whether what is handed over has text that could be code, a path or a place; words are not."""
        if made.kwargs is not None and type(made.kwargs) is not Pairs:
            return True  # it is not known what would be handed over
        waiting, seen = [made.args, _named(made.kwargs)], set[int]()
        while waiting and self._left:
            value = waiting.pop()
            self._left -= 1
            if type(value) is str:
                if _WORDS.fullmatch(value) is None:
                    return True
            elif isinstance(value, (bytes, Blob, Persistent)):
                return True
            elif type(value) not in _NUMBERS and id(value) not in seen:
                seen.add(id(value))
                waiting += _held(value)
        return not self._left

    def harmless(self, made: Thing) -> None:
        """A call of something that can do much, and with these arguments does not."""
        self._use(made.function).harmless += 1

    def called_again(self, path: str, times: int) -> None:
        """The same call so many times more, by a name without dots that was called before."""
        self._by_name[path].as_function += times

    def changed(self, each: Global, offset: int) -> None:
        """The file sets the state or items of what it names."""
        use = self._use(each)
        use.changed = offset if use.changed is None else use.changed

    def _use(self, each: Global) -> Use:
        key = (each.module, each.name) if "." in each.name else each.path
        use = self._by_name.get(key)
        if use is None:
            use = self._by_name[key] = Use(each.module, each.name, each.offset)
        return use

    def _computed(self, function: Any, offset: int) -> Use:
        """Something that the file computes and then calls."""
        what = type(function).__name__.lower()
        if isinstance(function, Thing):
            what = f"result of {function.path or DYNAMIC}"
        key = (DYNAMIC, what)
        use = self._by_name.get(key)
        if use is None:
            use = self._by_name[key] = Use(f"{DYNAMIC} {what}", "", offset)
        return use


def _only_numbers(args: Any) -> bool:
    """Whether a call hands over nothing with which a command, a file or other code could be named."""
    return type(args) is tuple and all(type(arg) in _NUMBERS for arg in args)


def _named(kwargs: Any) -> tuple[Any, ...]:
    """The values of named arguments; whatever else stands in their place is one."""
    return () if kwargs is None else tuple(kwargs.flat[1::2]) if type(kwargs) is Pairs else (kwargs,)


def _held(value: Any) -> tuple[Any, ...]:
    """What a value was made of."""
    if isinstance(value, Thing):
        return value.args, _named(value.kwargs), value.pairs, value.listed
    if type(value) is Pairs:
        return tuple(value.flat)
    items = value.items if isinstance(value, Elements) else value
    return tuple(items) if isinstance(items, (list, tuple)) else ()


_NUMBERS = (int, float, bool, type(None))
# Nothing is called, looked up or found by these.
_WORDS = re.compile(r"[\w \-+,:;!?]{0,200}")
