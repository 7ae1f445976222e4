"""Names of inputs and outputs in lists: "cache.3.0" is the first thing in the fourth thing of "cache"."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache


def indices(name: str) -> list[int]:
    """Which parts of a name are places in a list; the first part is none."""
    return [at for at, part in enumerate(name.split(".")) if at and part.isdecimal()]


def without(name: str, places: Iterable[int]) -> str:
    """The name with stars at these of its parts: "cache.*.0"."""
    hidden = set(places)
    return ".".join("*" if at in hidden else part for at, part in enumerate(name.split(".")))


def mask_indices(name: str) -> str:
    """The name without any of its places in lists."""
    return without(name, indices(name))


def along(name: str, other: str) -> tuple[str, int] | None:
    """The list in which one name follows the other, and how far: in the same place of all other lists."""
    (mask, places, before), (other_mask, _, after) = _parse(name), _parse(other)
    if mask != other_mask:
        return None
    apart = [at for at in places if before[at] != after[at]]
    return (without(name, apart), int(after[apart[0]]) - int(before[apart[0]])) if len(apart) == 1 else None


@lru_cache(maxsize=4096)  # the same names are compared again and again
def _parse(name: str) -> tuple[str, list[int], list[str]]:
    return mask_indices(name), indices(name), name.split(".")


class ListStep:
    """Names that go from one repetition to the next: those of one list by as many places as each other."""

    def __init__(self) -> None:
        self._steps: dict[str, int] = {}

    def keeps(self, name: str, other: str) -> bool:
        """Whether a name may follow the other after all that were asked for before."""
        if name == other:
            return True
        step = along(name, other)
        return step is not None and self._steps.setdefault(*step) == step[1]


def by_list(names: Mapping[str, str], apart: set[str]) -> Iterator[tuple[str, list[str]]]:
    """Things by the list their names are in, names that are the same but for places in lists.

    Where they lie in lists of lists, the list is taken that brings most of those `apart` together with
    others, or else the one with most in it.
    """
    ways: list[tuple[int, int, dict[str, list[str]]]] = []
    for at in indices(next(iter(names.values()))):
        found: dict[str, list[str]] = {}
        for thing, name in names.items():
            found.setdefault(without(name, [at]), []).append(thing)
        together = sum(sum(each in apart for each in every) for every in found.values() if set(every) - apart)
        ways.append((together, max(map(len, found.values())), found))
    yield from max(ways, key=lambda way: way[:2])[2].items()
