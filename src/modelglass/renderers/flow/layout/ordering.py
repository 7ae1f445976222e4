"""The order within each layer, so that few lines cross."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Sequence

from modelglass.renderers.flow.layout.parts import Item, Link

_SWEEPS = 24
_PATIENCE = 4  # sweeps without anything gained

Layers = list[list[Item]]


def ordered(layers: Layers, parts: Sequence[Link]) -> Layers:
    """The layers, each sorted by where its neighbours' lines come from, down and up while it helps."""
    between: dict[int, list[Link]] = defaultdict(list)
    for part in parts:
        between[part.source.layer].append(part)
    best, fewest, idle = layers, _crossings(layers, between), 0
    current = [list(layer) for layer in layers]
    for sweep in range(_SWEEPS):
        if fewest == 0 or idle > _PATIENCE:
            break
        current = _swept(current, between, down=sweep % 2 == 0)
        crossings = _crossings(current, between)
        idle += 1
        if crossings < fewest:
            best, fewest, idle = [list(layer) for layer in current], crossings, 0
    return best


def _swept(layers: Layers, between: dict[int, list[Link]], *, down: bool) -> Layers:
    indices = range(1, len(layers)) if down else range(len(layers) - 2, -1, -1)
    for index in indices:
        fixed = index - 1 if down else index + 1
        place = {item: position for position, item in enumerate(layers[fixed])}
        pulls: dict[Item, list[float]] = defaultdict(list)
        for part in between[min(index, fixed)]:
            near, far = (part.target, part.source) if down else (part.source, part.target)
            gate = far.exit(part.net) if down else far.entry(part.net)
            pulls[near].append(place[far] + gate / max(far.width, 1.0))
        layers[index] = _sort(layers[index], pulls)
    return layers


def _sort(layer: list[Item], pulls: dict[Item, list[float]]) -> list[Item]:
    """By the mean of its pulls; what nothing pulls keeps its place."""
    pulled = iter(
        sorted(
            (item for item in layer if item in pulls), key=lambda item: sum(pulls[item]) / len(pulls[item])
        )
    )
    return [next(pulled) if item in pulls else item for item in layer]


def _crossings(layers: Layers, between: dict[int, list[Link]]) -> int:
    total = 0
    for index in range(len(layers) - 1):
        upper = {item: position for position, item in enumerate(layers[index])}
        lower = {item: position for position, item in enumerate(layers[index + 1])}
        ends = sorted(
            (
                (upper[part.source], part.source.exit(part.net)),
                (lower[part.target], part.target.entry(part.net)),
            )
            for part in between[index]
        )
        seen: list[tuple[int, float]] = []
        for _, end in ends:
            total += len(seen) - bisect_right(seen, end)
            insort(seen, end)
    return total
