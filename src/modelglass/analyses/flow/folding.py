"""Stretches of a call that do the same over and over: drawn once.

Each repetition does the same as the one before, reads from it what that one read from its predecessor, and
from elsewhere the very same. What repetitions give to others than the next one, all give alike.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from modelglass.analyses.flow.level import Level
from modelglass.analyses.flow.lists import ListStep, mask_indices
from modelglass.analyses.flow.relevance import Relevance
from modelglass.analyses.flow.trace import Trace

LONGEST = 16  # items in a repetition
PARALLEL = 5  # repetitions side by side, of modules that hold no others, from which on they are drawn once

# The item it comes from, -1 for outside; which of its tensors it is, and how that was handed on.
_Place = tuple[int, tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class _Input:
    name: str


@dataclass(frozen=True, slots=True, order=True)
class _Output:
    name: str
    family: str  # the name without its places in lists


# What a repetition gives to whom, each item counted from its first; with the outputs of a list by name.
_Given = dict[tuple[int, Hashable, Hashable], list[_Output]]


@dataclass(frozen=True, slots=True)
class Repetition:
    """`count` times `length` items from `first` on. `inner` are repetitions inside the first of them."""

    first: int
    length: int
    count: int
    inner: tuple[Repetition, ...] = ()

    def counterparts(self) -> list[tuple[int, int]]:
        """Each item after the first repetition, with its equal in the first."""
        return [
            (self.first + turn * self.length + offset, self.first + offset)
            for turn in range(1, self.count)
            for offset in range(self.length)
        ]


def find_repetitions(trace: Trace, relevance: Relevance, level: Level) -> tuple[Repetition, ...]:
    """The repetitions in a call, from left to right, the longest first."""
    return _Search(trace, relevance, level).within(0, len(level.items), LONGEST)


class _Search:
    def __init__(self, trace: Trace, relevance: Relevance, level: Level) -> None:
        self.trace, self.relevance, self.level = trace, relevance, level
        kinds: dict[Hashable, int] = {}
        self.kinds = [kinds.setdefault(item.kind, len(kinds)) for item in level.items]
        self.places = [tuple(self._place(number) for number in item.reads) for item in level.items]
        self.users = self._users()
        self.outputs = [
            {(name, user.family) for name, user in users if isinstance(user, _Output)} for users in self.users
        ]

    def within(self, start: int, stop: int, longest: int) -> tuple[Repetition, ...]:
        """The repetitions in a stretch, of so many items at most."""
        found = []
        at = start
        while at < stop:
            best = self._best(at, stop, longest)
            if best is None:
                at += 1
                continue
            first, length, count = best
            inner = self.within(first, first + length, length - 1) if length > 1 else ()
            found.append(Repetition(first=first, length=length, count=count, inner=inner))
            at = first + length * count
        return tuple(found)

    def _best(self, at: int, stop: int, longest: int) -> tuple[int, int, int] | None:
        best: tuple[int, int, int] | None = None
        for length in range(1, min(longest, (stop - at) // 2) + 1):
            if self.kinds[at] != self.kinds[at + length]:
                continue
            count = self._count(at, length, stop)
            if count > 1 and (best is None or length * count > best[1] * best[2]):
                best = at, length, count
        return best if best is None else self._begin_with_weights(*best, stop)

    def _begin_with_weights(self, at: int, length: int, count: int, stop: int) -> tuple[int, int, int]:
        """As many repetitions that begin with weights, if there are: people see them begin there."""
        for start in range(at, at + length):
            if self._has_weights(start) and self._count(start, length, stop) == count:
                return start, length, count
        return at, length, count

    def _has_weights(self, place: int) -> bool:
        return any(self.trace.tensors(op) for op in self.level.items[place].ops)

    def _count(self, at: int, length: int, stop: int) -> int:
        """How many repetitions there are of so many items from here on."""
        items = self.level.items[at : at + length]
        if all(item.call is None for item in items):
            return 1
        count = self._alike_in_a_row(at, length, stop)
        if count > 1 and not self._is_chained(at, length):
            held = all(item.call is None or item.call in self.trace.children for item in items)
            return count if count >= PARALLEL or (held and count > 2) else 1
        return count

    def _alike_in_a_row(self, at: int, length: int, stop: int) -> int:
        """Look twice as far each time, lest each of many that are not alike looks at all that follow."""
        count, limit = 1, 2
        while True:
            limit *= 2
            while count < limit and at + (count + 1) * length <= stop and self._continues(at, length, count):
                count += 1
            reached = count
            while count > 1 and (alike := self._count_alike(at, length, count)) < count:
                count = alike
            if count < limit or count < reached:
                return count

    def _continues(self, first: int, length: int, turn: int) -> bool:
        """Whether a repetition reads what the one before does; the second also gives what the first does."""
        start = first + turn * length
        since_before, since_first = ListStep(), ListStep()
        return all(
            self.kinds[place - length] == self.kinds[place]
            and (turn > 1 or self.outputs[place - length] <= self.outputs[place])
            and len(self.places[place - length]) == len(self.places[place])
            and all(
                _follows(before, here, since_before) and _follows(one, here, since_first)
                if _is_input(here)
                else self._alike(before, here, first, length, turn)
                for one, before, here in zip(
                    self.places[place - turn * length],
                    self.places[place - length],
                    self.places[place],
                    strict=True,
                )
            )
            for place in range(start, start + length)
        )

    def _alike(self, before: _Place, here: _Place, first: int, length: int, turn: int) -> bool:
        """Whether an item reads here what its equal read one repetition before."""
        if here[0] < first:
            return before == here or self._same_operator(before, here)
        if before[0] >= first:
            return here[0] - before[0] == length and before[1] == here[1]
        return turn == 1 and here[0] < first + length

    def _same_operator(self, before: _Place, here: _Place) -> bool:
        """Whether both are results of one operator that cuts something up, such as into time steps."""
        if before[0] != here[0] or before[0] < 0 or self.level.items[before[0]].call is not None:
            return False
        (one, *ways), (other, *others) = before[1], here[1]
        return bool(one[0] == other[0]) and ways == others

    def _is_chained(self, first: int, length: int) -> bool:
        second = range(first + length, first + 2 * length)
        return any(first <= maker < first + length for place in second for maker, _ in self.places[place])

    def _count_alike(self, first: int, length: int, count: int) -> int:
        """How many of the repetitions give alike; the last one may give more, and of many, less."""
        turns = [self._find_given(first, length, count, turn) for turn in range(count)]
        other = next((turn for turn in range(1, count - 1) if not _gives_alike(turns[0], turns[turn])), None)
        if other is not None:
            return other + 1
        return count if count > 2 or _gives_alike(turns[0], turns[-1], at_least=True) else 1

    def _find_given(self, first: int, length: int, count: int, turn: int) -> _Given:
        """What a repetition gives to others than repetitions."""
        start = first + turn * length
        given: _Given = {}
        for offset in range(length):
            for name, user in self.users[start + offset]:
                if isinstance(user, _Output):
                    given.setdefault((offset, name, user.family), []).append(user)
                elif not (isinstance(user, int) and first <= user < first + length * count):
                    given[offset, name, user] = []
        return given

    def _place(self, number: int) -> _Place:
        ways = []
        while number in self.level.passed:
            number, way = self.level.passed[number]
            ways.append(way)
        item = self.level.made_by.get(number)
        if item is not None:
            return item, (self.level.items[item].exports[number], *ways)
        return -1, (self._outside(number), *ways)

    def _outside(self, number: int) -> Hashable:
        maker = self.trace.made_by.get(number)
        if maker is None:
            return _Input(self.trace.inputs.get(number, ""))
        if not self.relevance.fed[maker] and number not in self.level.made_by:
            return "constant", bool(self.relevance.held.get(number))
        return "operator", maker

    def _users(self) -> list[set[tuple[Hashable, Hashable]]]:
        """Of each item, what it gives to whom: an item of this call, an operator elsewhere, an output."""
        users: list[set[tuple[Hashable, Hashable]]] = [set() for _ in self.level.items]
        for place, sources in enumerate(self.places):
            for maker, name in sources:
                if maker >= 0:
                    users[maker].add((name, place))
        for number in (*self.level.made_by, *self.level.passed):
            outside = self._outside_users(number)
            if outside:
                maker, name = self._place(number)
                if maker >= 0:
                    users[maker].update((name, user) for user in outside)
        return users

    def _outside_users(self, number: int) -> list[Hashable]:
        found: list[Hashable] = [
            _Output(name, mask_indices(name)) for name in self.trace.returned.get(number, ())
        ]
        first, stop = self.trace.span[self.level.call]
        readers = self.trace.readers.get(number, ())
        return found + [("operator", reader) for reader in readers if not first <= reader < stop]


def _is_input(place: _Place) -> bool:
    return place[0] < 0 and isinstance(place[1][0], _Input)


def _follows(before: _Place, here: _Place, pace: ListStep) -> bool:
    """Whether an input is read here that follows the one read before in a list, and is handed on alike."""
    if not _is_input(before) or before[1][1:] != here[1][1:]:
        return False
    return pace.keeps(before[1][0].name, here[1][0].name)


def _gives_alike(first: _Given, other: _Given, *, at_least: bool = False) -> bool:
    """Whether a repetition gives what the first one does, outputs in the next places of their lists."""
    if not (first.keys() <= other.keys() if at_least else first.keys() == other.keys()):
        return False
    pace = ListStep()
    return all(
        (len(names) <= len(others) if at_least else len(names) == len(others))
        and all(
            pace.keeps(one.name, two.name) for one, two in zip(sorted(names), sorted(others), strict=False)
        )
        for names, others in ((names, other[key]) for key, names in first.items())
    )
