"""Layers: each item below everything that leads to it, and long lines cut into a part for each layer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence

from modelglass.renderers.flow.layout.parts import Item, Link

_LINE = 6.0  # the room that a passing line takes


def layered(
    items: Sequence[Item], links: Sequence[Link], top: Collection[Item], bottom: Collection[Item]
) -> None:
    """Give each item its layer: `top` comes first and `bottom` last, each in a layer of its own.

    Items are in an order in which every link leads forward.
    """
    inward, outward = defaultdict(list), defaultdict(list)
    for link in links:
        inward[link.target].append(link.source)
        outward[link.source].append(link.target)
    first, top, bottom = 1 if top else 0, set(top), set(bottom)
    for item in items:
        item.layer = 0 if item in top else max((source.layer + 1 for source in inward[item]), default=first)
    for item in reversed(items):  # what comes from nowhere stands right above its reader
        if not inward[item] and item not in top and outward[item]:
            item.layer = min(target.layer for target in outward[item]) - 1
    last = max((item.layer for item in items if item not in bottom), default=0) + 1
    for item in bottom:
        item.layer = last


def cut(links: Sequence[Link]) -> tuple[list[Item], list[Link]]:
    """Items where lines pass a layer, and the links from layer to layer; a net's lines run as one."""
    ways: dict[tuple[str, Item], list[Item]] = {}
    passing: list[Item] = []
    parts: dict[tuple[str, Item, Item], Link] = {}
    for link in links:
        way = ways.setdefault((link.net, link.source), [link.source])
        for layer in range(way[-1].layer + 1, link.target.layer):
            through = Item("", _LINE, 0.0, passing=True, layer=layer)
            parts[link.net, way[-1], through] = Link(link.net, way[-1], through)
            passing.append(through)
            way.append(through)
        before = way[link.target.layer - link.source.layer - 1]
        parts.setdefault((link.net, before, link.target), Link(link.net, before, link.target))
    return passing, list(parts.values())
