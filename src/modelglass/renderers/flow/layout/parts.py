"""What a layout is made of: items in layers, nets between them, points of lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Place:
    """A rectangle: its left upper corner, and its size."""

    x: float
    y: float
    width: float
    height: float

    def moved(self, dx: float, dy: float) -> Place:
        return Place(self.x + dx, self.y + dy, self.width, self.height)


@dataclass(frozen=True, slots=True)
class Point:
    """A corner of a line; `bent` if the way there leaves and arrives upright, as a curve."""

    x: float
    y: float
    bent: bool = False

    def moved(self, dx: float, dy: float) -> Point:
        return Point(self.x + dx, self.y + dy, self.bent)


Route: TypeAlias = tuple[Point, ...]


@dataclass(slots=True, eq=False)
class Item:
    """What takes room in a layer: a box, a group, a gate of the group around it, or a line that passes."""

    id: str
    width: float
    height: float
    enters: Mapping[str, float] = field(default_factory=dict)  # of a group, where each net goes in …
    leaves: Mapping[str, float] = field(default_factory=dict)  # … and comes out, from the left
    passing: bool = False
    layer: int = 0
    x: float = 0.0
    y: float = 0.0

    def entry(self, net: str) -> float:
        return self.enters.get(net, self.width / 2)

    def exit(self, net: str) -> float:
        return self.leaves.get(net, self.width / 2)


@dataclass(frozen=True, slots=True, eq=False)
class Link:
    """One net, which is all that one node gives, on its way from an item to another."""

    net: str
    source: Item
    target: Item
