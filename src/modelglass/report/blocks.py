"""Blocks that are equal: which modules of a list are one and the same, but for their weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from modelglass.report.model import Json

if TYPE_CHECKING:
    from modelglass.report.model import Module


@dataclass(frozen=True, slots=True, kw_only=True)
class Varying:
    """A setting in which equal blocks differ: a rate, or their own number or name. One value for each block.

    `part` is the path inside of the block, empty for the block itself.
    """

    part: str
    setting: str
    values: tuple[Json, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualBlocks:
    """Modules of one list that do the same work on the same shapes, in the list's order.

    What is equal inside of them is listed for the first of them alone.
    """

    paths: tuple[str, ...]
    varying: tuple[Varying, ...] = ()

    def __post_init__(self) -> None:
        if len(self.paths) < 2:
            raise ValueError("a block is equal to another one")
        if any(len(each.values) != len(self.paths) for each in self.varying):
            raise ValueError("each block has a value of what varies")


def representatives(modules: Iterable[Module], groups: Iterable[EqualBlocks]) -> Mapping[str, str]:
    """By path, the module that stands for it and its equals: the same part of the first of equal blocks."""
    first = {path: group.paths[0] for group in groups for path in group.paths}
    found = {"": ""}
    for module in modules:  # a module comes before what it contains
        if module.path:
            holder, _, name = module.path.rpartition(".")
            holder = found.get(holder, holder)
            path = f"{holder}.{name}" if holder else name
            found[module.path] = first.get(path, path)
    return found
