"""Which functions and classes a pickle names, where, how often, and what it does with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from modelglass.formats.pickles.objects import Global, Thing

DYNAMIC = "<dynamic>"


class Use:
    """One name, and how it is used."""

    __slots__ = ("as_class", "as_function", "first_call", "named", "offset", "path")

    def __init__(self, path: str, offset: int) -> None:
        self.path, self.offset = path, offset
        self.named = 0
        self.as_function = 0  # calls that may be of a function
        self.as_class = 0  # calls that can only make an object
        self.first_call: Thing | None = None

    @property
    def calls(self) -> int:
        return self.as_function + self.as_class


class Uses:
    """All names of one stream, in order."""

    def __init__(self) -> None:
        self._by_path: dict[str, Use] = {}

    def __iter__(self) -> Iterator[Use]:
        return iter(self._by_path.values())

    def named(self, each: Global) -> None:
        self._use(each.path, each.offset).named += 1

    def called(self, made: Thing, *, as_class: bool) -> None:
        path = made.path or _computed(made.function)
        use = self._by_path.get(path) or self._use(path, made.offset)
        if as_class:
            use.as_class += 1
        else:
            use.as_function += 1
        if use.first_call is None:
            use.first_call = made

    def called_again(self, path: str) -> None:
        """The same call once more, by a name that was called before."""
        self._by_path[path].as_function += 1

    def _use(self, path: str, offset: int) -> Use:
        use = self._by_path.get(path)
        if use is None:
            use = self._by_path[path] = Use(path, offset)
        return use


def _computed(function: Any) -> str:
    """What to call something that the file computes and then calls."""
    if type(function) is Thing:
        return f"{DYNAMIC} result of {function.path or DYNAMIC}"
    return f"{DYNAMIC} {type(function).__name__}"
