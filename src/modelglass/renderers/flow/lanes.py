"""Lines from each node down to those that read it, in as few columns as there are values under way.

A node is a row. What it makes runs down in a lane until its last reader; a reader takes over a lane that
ends at it, so that a chain is one straight line and a residual branches off and comes back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

PASSING, NOTHING, ACROSS = "│", " ", "─"


@dataclass(frozen=True, slots=True)
class Row:
    """The characters of a node's row, one for each lane and each gap between two, and of a row below it."""

    cells: str
    below: str
    drawn: frozenset[str]  # the sources whose lines end or branch here


@dataclass(slots=True)
class _Span:
    """Where a value's line begins and ends."""

    begin: int
    end: int


def rows(order: Sequence[str], sources: Mapping[str, Sequence[str]], marks: str, most: int) -> list[Row]:
    """A row for each node: `marks` has a character for each, and `most` is how many lanes there may be.

    Values that would need more lanes have no line; who reads them must name them.
    """
    spans = _spans(order, sources)
    _thin_out(spans, most)
    lanes: list[str | None] = []
    made = []
    for index, node in enumerate(order):
        read = [source for source in sources.get(node, ()) if source in spans and spans[source].begin < index]
        ends = {source for source in read if spans[source].end == index}
        inward = {lanes.index(source) for source in read}
        ending = {lanes.index(source) for source in ends}
        own = min(ending) if ending else _free(lanes, min(inward, default=0))
        cells = _cells(lanes, own, inward, ending, marks[index])
        for lane in ending:
            lanes[lane] = None
        lanes[own] = node if node in spans else None
        made.append(Row(cells, _passing(lanes), frozenset(read)))
        while lanes and lanes[-1] is None:
            lanes.pop()
    return made


def _spans(order: Sequence[str], sources: Mapping[str, Sequence[str]]) -> dict[str, _Span]:
    """From each node to its last reader further down."""
    place = {node: index for index, node in enumerate(order)}
    spans: dict[str, _Span] = {}
    for node in order:
        for source in sources.get(node, ()):
            if place[source] < place[node]:
                span = spans.setdefault(source, _Span(place[source], place[node]))
                span.end = max(span.end, place[node])
    return dict(sorted(spans.items(), key=lambda item: item[1].begin))


def _thin_out(spans: dict[str, _Span], most: int) -> None:
    """Drop the longest lines where too many run side by side; one lane is left for a node's mark."""
    under_way: list[str] = []
    for source, span in list(spans.items()):
        under_way = [other for other in under_way if spans[other].end > span.begin]
        under_way.append(source)
        if len(under_way) >= most:
            longest = max(under_way, key=lambda other: spans[other].end - spans[other].begin)
            under_way.remove(longest)
            del spans[longest]


def _free(lanes: list[str | None], beside: int) -> int:
    """An empty lane, if there is one to the right of `beside`; else a new one."""
    empty = [lane for lane, source in enumerate(lanes) if source is None]
    if not empty:
        lanes.append(None)
        return len(lanes) - 1
    return next((lane for lane in empty if lane >= beside), empty[0])


def _cells(lanes: Sequence[str | None], own: int, inward: set[int], ending: set[int], mark: str) -> str:
    first, last = min({own, *inward}), max({own, *inward})
    cells = []
    for lane, source in enumerate(lanes):
        if lane == own:
            cells.append(mark)
        elif lane in inward:
            cells.append(_joint(lane in ending, lane == first, lane == last))
        elif source is not None:
            cells.append(PASSING)
        else:
            cells.append(ACROSS if first < lane < last else NOTHING)
        cells.append(ACROSS if first <= lane < last else NOTHING)
    return "".join(cells)


def _joint(ends: bool, first: bool, last: bool) -> str:
    if first:
        return "╰" if ends else "├"
    if last:
        return "╯" if ends else "┤"
    return "┴" if ends else "┼"


def _passing(lanes: Sequence[str | None]) -> str:
    return "".join(NOTHING * 2 if source is None else PASSING + NOTHING for source in lanes)
