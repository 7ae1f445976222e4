"""Where along its layer each item stands: straight columns first, then each column between its neighbours.

Items whose lines can run straight down are bound into a column, the most telling lines first; columns then
move as one, each to the middle of what it is connected with, as far as its neighbours leave room.
"""

from __future__ import annotations

from bisect import bisect, bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import pairwise
from typing import TypeAlias

from modelglass.renderers.flow.layout.parts import Item, Link

_BESIDE_BOX, _BESIDE_LINE = 26.0, 16.0
_ROUNDS = 30
_PATIENCE = 250_000  # columns asked whether they are in the way, in all rounds
_LINE_TO_LINE, _BOX_TO_BOX, _BOX_TO_LINE = 8, 4, 1  # how much a part wants to be straight


@dataclass(slots=True, eq=False)
class _Column:
    """Items that stand in one line: each so far right of the column's own x."""

    shifts: dict[Item, float] = field(default_factory=dict)
    x: float = 0.0
    rank: int = 0  # no column has one of a lower rank on its right


def place(layers: Sequence[Sequence[Item]], parts: Sequence[Link]) -> None:
    """Give each item its x, the leftmost 0; within a layer none overlaps another."""
    columns = _columns(layers, _straight(layers, parts))
    column_of = {item: column for column in columns for item in column.shifts}
    _pack(layers, columns, column_of)
    _relax(layers, parts, columns, column_of)
    left = min((column.x + shift for column in columns for shift in column.shifts.values()), default=0.0)
    for column in columns:
        for item, shift in column.shifts.items():
            item.x = column.x + shift - left


def room_between(left: Item, right: Item) -> float:
    """How far apart two neighbours of a layer are."""
    return _BESIDE_LINE if left.passing or right.passing else _BESIDE_BOX


def _importance(part: Link) -> int:
    if part.target.enters or part.source.leaves:
        return _BOX_TO_BOX  # a group's gate is not a place for a kink
    lines = part.source.passing + part.target.passing
    return (_BOX_TO_BOX, _BOX_TO_LINE, _LINE_TO_LINE)[lines]


def _straight(layers: Sequence[Sequence[Item]], parts: Sequence[Link]) -> list[Link]:
    """The parts that are drawn straight: at most one into and out of each item, and none across another."""
    position = {item: index for layer in layers for index, item in enumerate(layer)}
    chosen: list[Link] = []
    taken_above: set[Item] = set()
    taken_below: set[Item] = set()
    lines: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for part in _most_telling_first(parts, position):
        ends = position[part.source], position[part.target]
        if part.source in taken_below or part.target in taken_above:
            continue
        beside = lines[part.source.layer]
        at = bisect(beside, ends)
        if any((a - ends[0]) * (b - ends[1]) <= 0 for a, b in beside[max(0, at - 1) : at + 1]):
            continue
        taken_below.add(part.source)
        taken_above.add(part.target)
        beside.insert(at, ends)
        chosen.append(part)
    return chosen


def _most_telling_first(parts: Sequence[Link], position: dict[Item, int]) -> list[Link]:
    """By importance; among equals, those in the middle of their fellows."""
    above: dict[Item, list[int]] = defaultdict(list)
    below: dict[Item, list[int]] = defaultdict(list)
    for part in parts:
        above[part.target].append(position[part.source])
        below[part.source].append(position[part.target])
    for fellows in (*above.values(), *below.values()):
        fellows.sort()

    def off_middle(fellows: list[int], own: int) -> float:
        return abs(bisect_left(fellows, own) - (len(fellows) - 1) / 2)

    def rank(part: Link) -> tuple[float, ...]:
        off = off_middle(below[part.source], position[part.target])
        return (-_importance(part), off + off_middle(above[part.target], position[part.source]))

    return sorted(parts, key=rank)


def _columns(layers: Sequence[Sequence[Item]], straight: Sequence[Link]) -> list[_Column]:
    down = {part.source: part for part in straight}
    inside: set[Item] = set()
    columns = []
    for layer in layers:
        for item in layer:
            if item in inside:
                continue
            column, shift = _Column(), 0.0
            column.shifts[item] = shift
            while item in down:
                part = down[item]
                shift += item.exit(part.net) - part.target.entry(part.net)
                item = part.target
                column.shifts[item] = shift
            inside |= column.shifts.keys()
            columns.append(column)
    return columns


def _neighbours(
    layers: Sequence[Sequence[Item]], column_of: dict[Item, _Column]
) -> dict[tuple[_Column, _Column], float]:
    """For each column and one to the right of it, how much larger the x of that one must be."""
    least: dict[tuple[_Column, _Column], float] = {}
    for layer in layers:
        for left, right in pairwise(layer):
            pair = column_of[left], column_of[right]
            room = left.width + room_between(left, right)
            distance = pair[0].shifts[left] + room - pair[1].shifts[right]
            least[pair] = max(least.get(pair, distance), distance)
    return least


def _pack(layers: Sequence[Sequence[Item]], columns: list[_Column], column_of: dict[Item, _Column]) -> None:
    """Every column as far left as it can be; the columns themselves are sorted so that this was possible."""
    least = _neighbours(layers, column_of)
    waiting: dict[_Column, int] = defaultdict(int)
    rights: dict[_Column, list[tuple[_Column, float]]] = defaultdict(list)
    for (left, right), distance in least.items():
        waiting[right] += 1
        rights[left].append((right, distance))
    ready = [column for column in columns if not waiting[column]]
    for column in ready:
        for right, distance in rights[column]:
            right.x = max(right.x, column.x + distance)
            waiting[right] -= 1
            if not waiting[right]:
                ready.append(right)
    columns[:] = ready
    for rank, column in enumerate(columns):
        column.rank = rank


def _relax(
    layers: Sequence[Sequence[Item]],
    parts: Sequence[Link],
    columns: Sequence[_Column],
    column_of: dict[Item, _Column],
) -> None:
    """Move each column to where it is pulled, pushing others aside where that shortens lines in all.

    In a large picture that ends when patience does: what is gained then is little.
    """
    sides: _Sides = {True: defaultdict(list), False: defaultdict(list)}
    for (left, right), distance in _neighbours(layers, column_of).items():
        sides[True][left].append((right, distance))
        sides[False][right].append((left, -distance))
    pulls = _pulls(parts, column_of)
    patience = _PATIENCE
    for turn in range(_ROUNDS):
        moved = 0.0
        for column in columns if turn % 2 else reversed(columns):
            if pulls[column] and patience > 0:
                by, asked = _move(column, sides, pulls)
                moved, patience = moved + by, patience - asked
        if patience <= 0 or (turn > 1 and moved < 0.5):
            break


# On the right (True) and the left of each column: others, and how far from it they must at least be.
_Sides: TypeAlias = dict[bool, dict[_Column, list[tuple[_Column, float]]]]
_Pulls: TypeAlias = dict[_Column, list[tuple[_Column, float, int]]]


def _move(column: _Column, sides: _Sides, pulls: _Pulls) -> tuple[float, int]:
    """Move one column as far as helps; how far that was, and how many columns were asked."""
    before = column.x
    wanted = _middle([(other.x + by, weight) for other, by, weight in pulls[column]])
    if abs(wanted - before) < 0.01:
        return 0.0, len(pulls[column])
    pushed = _pushed(column, wanted, sides)
    asked = sum(len(sides[wanted > before][each]) + len(pulls[each]) for each in pushed)
    if len(pushed) > 1 and _length(pushed, pulls) >= _length({each: each.x for each in pushed}, pulls):
        limits = [other.x - by for other, by in sides[wanted > before][column]]
        free = min(limits) if wanted > before else max(limits)
        pushed = {column: min(wanted, free) if wanted > before else max(wanted, free)}
    for each, x in pushed.items():
        each.x = x
    return abs(column.x - before), asked


def _pushed(column: _Column, x: float, sides: _Sides) -> dict[_Column, float]:
    """Where columns stand after one has moved there and has pushed those in its way."""
    rightward = x > column.x
    sign = 1 if rightward else -1
    pushed, waiting = {column: x}, [(sign * column.rank, column)]
    while waiting:
        _, pushing = heappop(waiting)  # all that could push it further have been here before
        for other, by in sides[rightward][pushing]:
            limit = pushed[pushing] + by
            if sign * (limit - pushed.get(other, other.x)) > 1e-6:
                if other not in pushed:
                    heappush(waiting, (sign * other.rank, other))
                pushed[other] = limit
    return pushed


def _length(places: dict[_Column, float], pulls: _Pulls) -> float:
    """How far the lines of these columns go sideways, more telling ones counted more."""
    return sum(
        weight * abs(places.get(other, other.x) + by - x)
        for column, x in places.items()
        for other, by, weight in pulls[column]
    )


def _pulls(parts: Sequence[Link], column_of: dict[Item, _Column]) -> _Pulls:
    """For each column, the others it is connected with: where it would stand for a straight line."""
    pulls: _Pulls = defaultdict(list)
    for part in parts:
        upper, lower = column_of[part.source], column_of[part.target]
        if upper is lower:
            continue
        by = upper.shifts[part.source] + part.source.exit(part.net)
        by -= lower.shifts[part.target] + part.target.entry(part.net)
        weight = _importance(part)
        pulls[lower].append((upper, by, weight))
        pulls[upper].append((lower, -by, weight))
    return pulls


def _middle(wishes: list[tuple[float, int]]) -> float:
    """The weighted median; between two equal halves, their middle."""
    wishes.sort()
    half = sum(weight for _, weight in wishes) / 2
    passed = 0
    for index, (wish, weight) in enumerate(wishes):
        passed += weight
        if passed == half:
            return (wish + wishes[index + 1][0]) / 2
        if passed > half:
            return wish
    return wishes[-1][0]
