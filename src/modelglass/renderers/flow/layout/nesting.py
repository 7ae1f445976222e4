"""Groups in groups: each is laid out by itself and is then one box in the group around it.

A line that crosses the border of a group does so at a gate: one for each node that gives something in or
out. So no line runs through a box it has nothing to do with.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from modelglass.page.flow_words import self_repeating
from modelglass.renderers.flow.layout.parts import Item, Link, Place, Point, Route
from modelglass.renderers.flow.layout.scope import Arranged, arranged
from modelglass.report import Flow, FlowEdge, FlowNode

Size = tuple[float, float]

_PADDING = 16.0  # between a group's border and its content
_GATE = 8.0
_ABOVE_TITLE = 8.0
_BESIDE_TITLE = 14.0
_FOR_RETURNS = 12.0  # between the title and a line that comes back to a gate
_IN, _OUT = "in ", "out "  # before a node's id: the gates of what it gives


@dataclass(frozen=True, slots=True)
class Picture:
    """Where everything is: boxes and groups by id, titles of groups, and for each edge its line."""

    width: float
    height: float
    places: Mapping[str, Place]
    titles: Mapping[str, Place]
    routes: Sequence[tuple[FlowEdge, Route]]


def laid_out(flow: Flow, sizes: Mapping[str, Size], titles: Mapping[str, Size]) -> Picture:
    """The picture of a flow whose boxes and whose groups' titles have those sizes."""
    return _Layout(flow, sizes, titles).picture()


@dataclass(frozen=True, slots=True)
class _Inside:
    """A group's content, and where it and the title lie in the group's box."""

    items: Sequence[Item]
    arranged: Arranged
    dx: float
    dy: float
    title: Place


class _Layout:
    def __init__(self, flow: Flow, sizes: Mapping[str, Size], titles: Mapping[str, Size]) -> None:
        self._flow, self._sizes, self._titles = flow, sizes, titles
        self._group = {node.id: node.group for node in flow.nodes}
        self._order = {node.id: index for index, node in enumerate(flow.nodes)}
        self._children: dict[str | None, list[FlowNode]] = defaultdict(list)
        for node in flow.nodes:
            self._children[node.group].append(node)
        self._readers = _readers(flow)
        self._sources: dict[str, list[str]] = defaultdict(list)  # of each node, whom it reads
        for (source, carried), readers in self._readers.items():
            for reader in () if carried else readers:
                self._sources[reader].append(source)
        looped = self_repeating(flow)
        self._hops = {
            edge: list(self._hops_of(edge))
            for edge in flow.edges
            if edge.source != edge.target or edge.source not in looped
        }
        self._by_scope: dict[str | None, list[_Hop]] = defaultdict(list)
        for hops in self._hops.values():
            for hop in hops:
                self._by_scope[hop.scope].append(hop)
        self._insides: dict[str | None, _Inside] = {}

    def picture(self) -> Picture:
        self._lay(None)
        places: dict[str, Place] = {}
        titles: dict[str, Place] = {}
        origins: dict[str | None, tuple[float, float]] = {}
        self._collect(None, 0.0, 0.0, places, titles, origins)
        inside = self._insides[None]
        routes = [(edge, self._route(edge, origins)) for edge in self._flow.edges if edge in self._hops]
        return Picture(inside.arranged.width, inside.arranged.height, places, titles, routes)

    def _hops_of(self, edge: FlowEdge) -> Iterator[_Hop]:
        """The parts of an edge, one in each group that it passes through."""
        outward, inward = self._around(edge.source), self._around(edge.target)
        common = next(group for group in outward if group in set(inward))
        child = edge.source
        for group in outward[: outward.index(common)]:
            yield _Hop(group, edge.source, child, _OUT + edge.source)
            child = group  # type: ignore[assignment]
        down = inward[: inward.index(common)]
        gate = self._gate_for(edge, common)
        if gate is not None:
            yield _Hop(common, edge.source, child, gate, upward=True)
            return
        target = down[-1] if down else edge.target
        assert target is not None
        upward = edge.carried or self._order[child] >= self._order[target]
        yield _Hop(common, edge.source, child, target, upward)
        for index in range(len(down) - 1, -1, -1):
            lower = down[index - 1] if index else edge.target
            assert lower is not None
            yield _Hop(down[index], edge.source, _IN + edge.source, lower)

    def _gate_for(self, edge: FlowEdge, group: str | None) -> str | None:
        """Where what is carried comes in again: at a gate whose lines lead to all that read it."""
        if not edge.carried or group is None:
            return None
        wanted = self._readers[edge.source, True]
        if not all(group in self._around(reader) for reader in wanted):
            return None
        for source in self._sources[edge.target]:
            if wanted <= self._readers[source, False] and group not in self._around(source):
                return _IN + source
        return None

    def _around(self, id: str) -> list[str | None]:
        """The groups around a node, the innermost first, at last none."""
        groups = [self._group[id]]
        while groups[-1] is not None:
            groups.append(self._group[groups[-1]])
        return groups

    def _lay(self, group: str | None) -> Item:
        """Lay out what is in a group; the item that it is outside."""
        items = {node.id: self._item(node) for node in self._children[group]}
        hops = self._by_scope[group]
        gates = {
            end: Item(end, _GATE, 0.0) for hop in hops for end in (hop.source, hop.target) if end not in items
        }
        top = [gate for id, gate in gates.items() if id.startswith(_IN)]
        bottom = [gate for id, gate in gates.items() if id.startswith(_OUT)]
        known = {**items, **gates}
        links = {
            (hop.net, hop.source, hop.target, hop.upward): Link(hop.net, known[hop.source], known[hop.target])
            for hop in hops
        }
        down = [link for key, link in links.items() if not key[3]]
        back = [link for key, link in links.items() if key[3]]
        everything = [*top, *items.values(), *bottom]
        done = arranged(everything, down, back, top=top, bottom=bottom)
        if group is None:
            self._insides[None] = _Inside(everything, done, 0.0, 0.0, Place(0, 0, 0, 0))
            return Item("", done.width, done.height)
        return self._box(group, everything, done, top, bottom)

    def _item(self, node: FlowNode) -> Item:
        if node.kind == "group":
            return self._lay(node.id)
        width, height = self._sizes[node.id]
        return Item(node.id, width, height)

    def _box(
        self, group: str, items: Sequence[Item], done: Arranged, top: Sequence[Item], bottom: Sequence[Item]
    ) -> Item:
        """The group's box: its title beside the lines that come in from above."""
        title_width, title_height = self._titles[group]
        lines = sorted(gate.x + _GATE / 2 for gate in top)
        needed = title_width + _BESIDE_TITLE
        dx, width, title_x = _PADDING, done.width + 2 * _PADDING, _PADDING
        if lines:
            at_left = max(0.0, needed + _PADDING - lines[0] - dx)  # what the box must grow by
            at_right = max(0.0, lines[-1] + dx + needed + _PADDING - width)
            width += min(at_left, at_right)
            if at_left <= at_right:
                dx += at_left
            else:
                title_x = width - _PADDING - title_width
        width = max(width, title_width + 2 * _PADDING)
        dy = _ABOVE_TITLE + title_height
        dy += _FOR_RETURNS if any(target.startswith(_IN) for _, target in done.returns) else 0.0
        dy += 0.0 if top else _PADDING / 2
        height = dy + done.height + (0.0 if bottom else _PADDING)
        title = Place(title_x, _ABOVE_TITLE, title_width, title_height)
        self._insides[group] = _Inside(items, done, dx, dy, title)
        enters = {gate.id.removeprefix(_IN): gate.x + _GATE / 2 + dx for gate in top}
        leaves = {gate.id.removeprefix(_OUT): gate.x + _GATE / 2 + dx for gate in bottom}
        return Item(group, width, height, enters, leaves)

    def _collect(
        self,
        group: str | None,
        x: float,
        y: float,
        places: dict[str, Place],
        titles: dict[str, Place],
        origins: dict[str | None, tuple[float, float]],
    ) -> None:
        """Positions in the whole picture, of a group at that point."""
        inside = self._insides[group]
        if group is not None:
            titles[group] = inside.title.moved(x, y)
        origins[group] = x + inside.dx, y + inside.dy
        for item in inside.items:
            if item.id in self._group:
                place = Place(item.x, item.y, item.width, item.height).moved(*origins[group])
                places[item.id] = place
                if item.id in self._insides:
                    self._collect(item.id, place.x, place.y, places, titles, origins)

    def _route(self, edge: FlowEdge, origins: Mapping[str | None, tuple[float, float]]) -> Route:
        points: list[Point] = []
        for hop in self._hops[edge]:
            done = self._insides[hop.scope].arranged
            ways = done.returns if hop.upward else done.routes
            dx, dy = origins[hop.scope]
            points += (point.moved(dx, dy) for point in ways[hop.net, hop.target])
        return tuple(points)


def _readers(flow: Flow) -> dict[tuple[str, bool], set[str]]:
    """For each node, who reads it; and who reads it in the next repetition."""
    readers: dict[tuple[str, bool], set[str]] = defaultdict(set)
    for edge in flow.edges:
        readers[edge.source, edge.carried].add(edge.target)
    return readers


@dataclass(frozen=True, slots=True)
class _Hop:
    """The part of an edge in one group: from one of its items or gates to another."""

    scope: str | None
    net: str
    source: str
    target: str
    upward: bool = False  # it goes back to an earlier item
