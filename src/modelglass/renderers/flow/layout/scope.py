"""One group's inside: its items in layers, and the ways of its lines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from modelglass.renderers.flow.layout.layering import cut, layered
from modelglass.renderers.flow.layout.ordering import ordered
from modelglass.renderers.flow.layout.parts import Item, Link, Point, Route
from modelglass.renderers.flow.layout.placing import place

_GAP, _LARGEST_GAP = 30.0, 90.0  # between layers; a line that goes far sideways needs a larger one
_STEEPNESS = 0.16
_BESIDE = 12.0  # between two arrows into one box
_CHANNEL = 16.0  # for a line that goes back up, at the right
_LEVEL = 40.0  # boxes that differ less in height are centred, others stand at the top


@dataclass(frozen=True, slots=True)
class Arranged:
    """Items that have their place, and for each net and target the way there, and the ways back up."""

    width: float
    height: float
    routes: Mapping[tuple[str, str], Route]
    returns: Mapping[tuple[str, str], Route]


def arranged(
    items: Sequence[Item],
    links: Sequence[Link],
    back: Sequence[Link] = (),
    *,
    top: Collection[Item] = (),
    bottom: Collection[Item] = (),
) -> Arranged:
    """Place the items, links leading down, and `back` up again along the right side."""
    layered(items, links, top, bottom)
    passing, parts = cut(links)
    layers: list[list[Item]] = [[] for _ in range(1 + max((item.layer for item in items), default=0))]
    for item in (*items, *passing):
        layers[item.layer].append(item)
    layers = ordered(layers, parts)
    place(layers, parts)
    tops, bottoms = _stack(layers, parts, _GAP / 2 if back and not top else 0.0)
    width = max((item.x + item.width for layer in layers for item in layer), default=0.0)
    ways = _Ways(links, parts, tops, bottoms)
    returns = ways.back(back, width)
    channels = len({link.net for link in back})
    height = bottoms[-1] + (_GAP / 2 if back and not bottom else 0.0)
    return Arranged(width + channels * _CHANNEL, height, ways.down(), returns)


def _stack(
    layers: Sequence[Sequence[Item]], parts: Sequence[Link], y: float
) -> tuple[list[float], list[float]]:
    """Give each item its y, from that one on; the upper and lower border of each layer."""
    sideways: dict[int, float] = defaultdict(float)
    for part in parts:
        dx = abs(part.source.x + part.source.exit(part.net) - part.target.x - part.target.entry(part.net))
        sideways[part.source.layer] = max(sideways[part.source.layer], dx)
    tops, bottoms = [], []
    for index, layer in enumerate(layers):
        height = max((item.height for item in layer), default=0.0)
        for item in layer:
            spare = height - item.height
            item.y = y + (spare / 2 if spare < _LEVEL else 0.0)
        tops.append(y)
        bottoms.append(y + height)
        y += height + min(_LARGEST_GAP, max(_GAP, _STEEPNESS * sideways[index]))
    return tops, bottoms


class _Ways:
    """The ways of lines between items that have their place."""

    def __init__(
        self, links: Sequence[Link], parts: Sequence[Link], tops: Sequence[float], bottoms: Sequence[float]
    ) -> None:
        self._links, self._tops, self._bottoms = links, tops, bottoms
        self._into: dict[tuple[str, Item], Item] = {}
        for part in parts:
            self._into.setdefault((part.net, part.target), part.source)
        self._arrivals = self._spread(parts)
        self._trails: dict[tuple[str, Item], Route] = {}

    def down(self) -> dict[tuple[str, str], Route]:
        return {(link.net, link.target.id): self._route(link) for link in self._links}

    def _route(self, link: Link) -> Route:
        points = list(self._trail(link))
        arrival = link.target.x + self._arrivals[link.net, link.target]
        _go(points, Point(arrival, self._tops[link.target.layer], bent=True))
        _go(points, Point(arrival, link.target.y))
        return tuple(points)

    def _trail(self, link: Link) -> Route:
        """The way to the gap above the target, which all lines of a net have in common as far as they go."""
        last = self._into[link.net, link.target]
        passed: list[Item] = []
        item = last
        while (link.net, item) not in self._trails:
            passed.append(item)
            if item is link.source:
                break
            item = self._into[link.net, item]
        points = list(self._trails.get((link.net, item), ()))
        for through in reversed(passed):
            x = through.x + through.exit(link.net)
            if through is link.source:
                points.append(Point(x, through.y + through.height))
            else:
                _go(points, Point(x, self._tops[through.layer], bent=True))
            _go(points, Point(x, self._bottoms[through.layer]))
            self._trails[link.net, through] = tuple(points)
        return self._trails[link.net, last]

    def _spread(self, parts: Sequence[Link]) -> dict[tuple[str, Item], float]:
        """Where each net goes into each item: beside the straight one, in the order in which they come."""
        into: dict[Item, list[Link]] = defaultdict(list)
        for part in parts:
            into[part.target].append(part)
        arrivals = {}
        for item, inward in into.items():
            inward.sort(key=lambda part: part.source.x + part.source.exit(part.net))
            straight = next((i for i, part in enumerate(inward) if _is_straight(part)), (len(inward) - 1) / 2)
            step = min(_BESIDE, (item.width - 16) / max(len(inward), 1))
            for index, part in enumerate(inward):
                beside = 0.0 if part.net in item.enters or item.passing else (index - straight) * step
                arrivals[part.net, item] = item.entry(part.net) + beside
        return arrivals

    def back(self, links: Sequence[Link], width: float) -> dict[tuple[str, str], Route]:
        """Down into the gap below the source, right, up, and into the target from the gap above it."""
        channels: dict[str, float] = {}
        routes = {}
        for link in links:
            right = channels.setdefault(link.net, width + _CHANNEL * (len(channels) + 1))
            x = link.source.x + link.source.exit(link.net)
            low = self._bottoms[link.source.layer] + _GAP / 3
            to = link.target.x + link.target.entry(link.net)
            high = self._tops[link.target.layer] - _GAP / 3
            corners = (
                (x, link.source.y + link.source.height),
                (x, low),
                (right, low),
                (right, high),
                (to, high),
            )
            routes[link.net, link.target.id] = (*(Point(*at) for at in corners), Point(to, link.target.y))
        return routes


def _is_straight(part: Link) -> bool:
    dx = part.source.x + part.source.exit(part.net) - part.target.x - part.target.entry(part.net)
    return abs(dx) < 0.5


def _go(points: list[Point], to: Point) -> None:
    """Go on to a point; what lies between on one upright line is not a corner."""
    if len(points) > 1 and points[-2].x == points[-1].x == to.x:
        points.pop()
    points.append(to)
