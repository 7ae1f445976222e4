"""What is drawn: the calls that are open, what is in them, and what stands for what."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

from modelglass.analyses.flow.call_signatures import CallSignatures
from modelglass.analyses.flow.folding import Repetition, find_repetitions
from modelglass.analyses.flow.level import Item, Level, level
from modelglass.analyses.flow.relevance import Relevance
from modelglass.analyses.flow.trace import Trace


@dataclass(slots=True)
class DrawnItem:
    """An item in a picture, or a repetition of several when it has `parts`. `items` are all it stands for."""

    items: list[Item]
    count: int = 1
    parts: list[DrawnItem] = field(default_factory=list)

    @property
    def call(self) -> int | None:
        """The call that is drawn, if it is one and not operators or several items."""
        return None if self.parts else self.items[0].call


@dataclass(slots=True)
class OpenedCall:
    """A call that has been looked into."""

    level: Level
    repeats: tuple[Repetition, ...]
    drawn: list[DrawnItem]


class DrawnCalls:
    """Calls are opened one by one; the root is open from the start."""

    def __init__(self, trace: Trace, relevance: Relevance, same: CallSignatures) -> None:
        self.trace, self.relevance, self.same = trace, relevance, same
        self.open: dict[int, OpenedCall] = {}
        self.passed: dict[int, tuple[int, Hashable]] = {}
        self._shown: dict[int, int] = {}  # operators of further repetitions: those drawn for them
        self._own: dict[int, list[int]] = {}
        for at, call in enumerate(trace.call):
            self._own.setdefault(call, []).append(at)
        self._looked: dict[int, OpenedCall] = {}
        self.look_inside(trace.root)

    def look(self, call: int) -> OpenedCall:
        """What would be drawn if the call were open."""
        if call not in self._looked:
            found = level(self.trace, self.relevance, self.same, call, self._own.get(call, []))
            folded = find_repetitions(self.trace, self.relevance, found)
            drawn = _draw_items(found, folded, 0, len(found.items))
            self._looked[call] = OpenedCall(level=found, repeats=folded, drawn=drawn)
        return self._looked[call]

    def look_inside(self, call: int) -> None:
        """Open a call."""
        looked = self.look(call)
        self.open[call] = looked
        self.passed.update(looked.level.passed)
        for repeat in every(looked.repeats):
            for later, first in repeat.counterparts():
                pair = looked.level.items[later].ops, looked.level.items[first].ops
                self._shown.update(zip(*pair, strict=True))

    def can_open(self, call: int) -> bool:
        """Whether modules are at work inside it: what has none is a leaf."""
        return bool(self.trace.children.get(call))

    def leaves(self, call: int) -> Iterator[tuple[DrawnItem, int]]:
        """What is drawn in an open call, and in the open ones inside it, and how many each stands for."""
        yield from self._leaves(self.open[call].drawn, 1)

    def _leaves(self, drawn: list[DrawnItem], times: int) -> Iterator[tuple[DrawnItem, int]]:
        for each in drawn:
            if each.parts:
                yield from self._leaves(each.parts, times * each.count)
            elif each.call in self.open:
                yield from self._leaves(self.open[each.call].drawn, times * each.count)
            else:
                yield each, times * each.count

    def drawn_for(self, op: int) -> int:
        """The operator that is drawn for one of a further repetition."""
        while op in self._shown:
            op = self._shown[op]
        return op

    def source(self, number: int) -> int:
        """The number that is drawn for one: before it was only handed on, in the repetition that is drawn."""
        while True:
            maker = self.trace.made_by.get(number)
            if maker is not None and maker in self._shown:
                index = self.trace.writes[maker].index(number)
                number = self.trace.writes[self.drawn_for(maker)][index]
            if number not in self.passed:
                return number
            number = self.passed[number][0]


def every(found: tuple[Repetition, ...]) -> Iterator[Repetition]:
    """Repetitions with those inside them, the outer ones first."""
    for repeat in found:
        yield repeat
        yield from every(repeat.inner)


def _draw_items(level: Level, folded: tuple[Repetition, ...], start: int, stop: int) -> list[DrawnItem]:
    drawn = []
    at = start
    for repeat in folded:
        drawn += [DrawnItem(items=[item]) for item in level.items[at : repeat.first]]
        end = repeat.first + repeat.length * repeat.count
        items = level.items[repeat.first : end]
        parts: list[DrawnItem] = []
        if repeat.length > 1:
            parts = _draw_items(level, repeat.inner, repeat.first, repeat.first + repeat.length)
        drawn.append(DrawnItem(items=items, count=repeat.count, parts=parts))
        at = end
    return drawn + [DrawnItem(items=[item]) for item in level.items[at:stop]]
