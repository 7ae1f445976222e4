"""What a run with many equal blocks takes, from two runs with few of them, one more in the second.

A run is written as one line of events: each kernel, followed by the pieces of memory that it made. Where the
longer run has a stretch twice that the shorter one has once, that stretch is the middle block's part, and
each further block is one more copy of it. What an event refers to, the kernel at which memory is given back
and the number of a block in a name, is the same for all copies, or goes on from copy to copy, forwards or
backwards. The two runs tell which; nothing is assumed of what a block does. A run that cannot be written in
this way has no answer here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TypeAlias

from modelglass.report import Lifetimes, OptimizerStep, Step, Storage

TRIED = 1_000  # ways to lay one run over the other before giving up

_NO_STEPS = OptimizerStep(steps=(), storages=())
_COUNTED = ((0, 0), (1, 0), (0, 1), (1, -1))  # one of the first blocks, of the last; upwards, downwards
_Name: TypeAlias = tuple[str, int | None, str]  # a path: what is before the number of a block, it, the rest
_Names: TypeAlias = Callable[[str | None], _Name | None]
_Stretch: TypeAlias = tuple[int, int]  # its first place and its length
_Even: TypeAlias = tuple[int, int, int]  # with one copy; more with each further copy; more from copy to copy
_EvenName: TypeAlias = tuple[str, _Even | None, str]


def extrapolate(short: Lifetimes, long: Lifetimes, path: str, few: int, count: int) -> Lifetimes | None:
    """The run with `count` blocks in the list at `path`; None when the two runs do not determine it.

    The short run has a `few` of them, an odd number from 3 on, the long one has one more. In both, blocks are
    named by their place in the list, and the last one is that of the whole model.
    """
    if few < 3 or few % 2 == 0 or count <= few or _besides(short) != _besides(long):
        return None
    try:
        return _extrapolate(short, long, _names_in(path), few, count)
    except _IrregularError:
        return None


class _IrregularError(Exception):
    """The longer run is not the shorter one with stretches repeated, or what it refers to jumps."""


def _extrapolate(short: Lifetimes, long: Lifetimes, names: _Names, few: int, count: int) -> Lifetimes:
    run = _Extrapolation(_line(short, names), _line(long, names), few, count)
    if not run.has_running_blocks:
        raise _IrregularError
    tails = {}
    for name in short.tails:
        lines = _line(short, names, name), _line(long, names, name)
        tail = _Extrapolation(*lines, few, count, len(run.steps))
        short_ends = run.short.ends(short.tails[name].freed, tail.short)
        long_ends = run.long.ends(long.tails[name].freed, tail.long)
        freed = enumerate(run.ends(tail, short_ends, long_ends))
        tails[name] = OptimizerStep(
            steps=tail.steps,
            storages=tail.storages(),
            freed={index: step for index, step in freed if step is not None},
        )
    return replace(
        short,
        steps=run.steps,
        storages=run.storages(),
        forward_steps=short.forward_steps + (count - few) * (long.forward_steps - short.forward_steps),
        tails=tails,
    )


def _besides(run: Lifetimes) -> Lifetimes:
    """Everything of a run except its steps and storages."""
    return replace(run, steps=(), storages=(), forward_steps=0, tails=dict.fromkeys(run.tails, _NO_STEPS))


def _names_in(path: str) -> _Names:
    """How to find the number of a block of the list at `path` in the path of a module or tensor."""
    pattern = re.compile((re.escape(path) + r"\." if path else "") + r"(\d+)(?=\.|$)")

    @cache
    def name(text: str | None) -> _Name | None:
        if text is None:
            return None
        found = pattern.match(text)
        if found is None:
            return text, None, ""
        return text[: found.start(1)], int(found[1]), text[found.end(1) :]

    return name


@dataclass(slots=True)
class _Line:
    """The events of a run, or of what one optimizer does after it, in order.

    The event at place 0 is the beginning, for what ends before the first step.
    """

    first: int  # the number of its first step
    events: list[Step | Storage | None] = field(default_factory=lambda: [None])
    kinds: list[Hashable] = field(default_factory=lambda: [None])  # all of an event but numbers and ends
    names: list[tuple[_Name | None, ...]] = field(default_factory=lambda: [()])
    blocks: list[int | None] = field(default_factory=lambda: [None])  # to which a step or a tensor belongs
    steps: list[int] = field(default_factory=lambda: [0])  # places of the beginning and of all steps
    storages: list[int] = field(default_factory=list)  # places of them

    def place(self, step: int) -> int:
        """Where the step with that number is."""
        index = step - self.first + 1
        if not 0 <= index < len(self.steps):
            raise _IrregularError
        return self.steps[index]

    def own_ends(self) -> dict[int, int]:
        """By the place of a storage, the place where it ends."""
        events = self.events
        return {
            place: self.place(storage.died)
            for place in self.storages
            if isinstance(storage := events[place], Storage) and storage.died is not None
        }

    def ends(self, steps: Mapping[int, int], line: _Line) -> dict[int, int]:
        """By the place of a storage, the place in a line where it ends; given by its index, and by steps."""
        return {self.storages[index]: line.place(step) for index, step in steps.items()}


def _line(run: Lifetimes, names: _Names, optimizer: str | None = None) -> _Line:
    """The run's events, or those of the optimizer's part."""
    if optimizer is None:
        return _fill_line(_Line(0), run.steps, run.storages, names)
    tail = run.tails[optimizer]
    return _fill_line(_Line(len(run.steps)), tail.steps, tail.storages, names)


def _fill_line(line: _Line, steps: Sequence[Step], storages: Sequence[Storage], names: _Names) -> _Line:
    before = line.first - 1
    made = iter(storages)
    storage = next(made, None)
    for number in range(before, line.first + len(steps)):
        if number > before:
            _add_step(line, steps[number - line.first], names)
        while storage is not None and (before if storage.born is None else storage.born) == number:
            _add_storage(line, storage, names)
            storage = next(made, None)
    if storage is not None:
        raise _IrregularError  # not in the order in which they were made
    return line


def _add_step(line: _Line, step: Step, names: _Names) -> None:
    module = names(step.module)
    assert module is not None
    line.steps.append(len(line.events))
    line.events.append(step)
    line.kinds.append((step.op, step.phase, step.scratch_nbytes, _without_number(module)))
    line.names.append((module,))
    line.blocks.append(module[1])


def _add_storage(line: _Line, storage: Storage, names: _Names) -> None:
    # An input is named by its argument, which is a number as well.
    name = names(storage.name) if storage.category != "inputs" else (storage.name or "", None, "")
    saved_by = names(storage.saved_by)
    line.storages.append(len(line.events))
    line.events.append(storage)
    line.kinds.append(
        (
            storage.nbytes,
            storage.category,
            storage.shape,
            storage.dtype,
            _without_number(name),
            _without_number(saved_by),
        )
    )
    line.names.append((name, saved_by))
    line.blocks.append(name[1] if storage.born is None and name is not None else None)


def _without_number(name: _Name | None) -> Hashable:
    return name if name is None or name[1] is None else (name[0], name[2])


class _Extrapolation:
    """A line with as many blocks as are asked for."""

    def __init__(self, short: _Line, long: _Line, few: int, count: int, first: int = 0) -> None:
        self.short, self.long = short, long
        self._count, self._copies, self._first = count, count - few + 1, first
        self._stretches = _stretches(short, long, few // 2)
        self._moved, self._length = _moves(self._stretches, len(short.events))
        self._names = [tuple(self._even_names(place)) for place in range(len(short.events))]
        self._order = list(self._order_places())  # by place: the short line's place, and which copy of it
        self._numbers = list(self._number_steps())  # by place: the number of the step that it is
        self.steps = tuple(
            self._step(step, place, copy)
            for place, copy in self._order
            if isinstance(step := short.events[place], Step)
        )

    @property
    def has_running_blocks(self) -> bool:
        """Whether a step of a block is among what is repeated, and not its tensors alone."""
        return any(
            self._length[place] and isinstance(self.short.events[place], Step) and block is not None
            for place, block in enumerate(self.short.blocks)
        )

    def storages(self) -> tuple[Storage, ...]:
        """All its storages, from birth to end."""
        ends = iter(self.ends(self, self.short.own_ends(), self.long.own_ends()))
        born = self._first - 1
        made = []
        for (place, copy), number in zip(self._order, self._numbers, strict=True):
            storage = self.short.events[place]
            if isinstance(storage, Storage):
                made.append(self._storage(storage, place, copy, born, next(ends)))
            elif number is not None:
                born = number
        return tuple(made)

    def ends(
        self, into: _Extrapolation, short_ends: Mapping[int, int], long_ends: Mapping[int, int]
    ) -> list[int | None]:
        """By storage, the number of the step of a line at which it ends; None for never."""
        rules = {place: self._end_rule(place, into, short_ends, long_ends) for place in self.short.storages}
        found: list[int | None] = []
        for place, copy in self._order:
            if place in rules:
                rule = rules[place]
                found.append(None if rule is None else into.step_number(self._at(rule[0], copy), rule[1]))
        return found

    def step_number(self, place: int, kinds: frozenset[Hashable]) -> int:
        """The number of the step at a place, which has to be of one of these kinds."""
        number = self._numbers[place] if 0 <= place < len(self._numbers) else None
        if number is None or self.short.kinds[self._order[place][0]] not in kinds:
            raise _IrregularError
        return number

    def _end_rule(
        self, place: int, into: _Extrapolation, short_ends: Mapping[int, int], long_ends: Mapping[int, int]
    ) -> tuple[_Even, frozenset[Hashable]] | None:
        """How the end of a storage moves, and the steps it was seen at."""
        one, two = self._in_long(place)
        end, first, second = short_ends.get(place), long_ends.get(one), long_ends.get(two)
        if end is None and first is None and second is None:
            return None
        if end is None or first is None or second is None:
            raise _IrregularError
        kinds = frozenset((into.short.kinds[end], into.long.kinds[first], into.long.kinds[second]))
        return into.check_movement(_even(end, first, second)), kinds

    def check_movement(self, even: _Even) -> _Even:
        """A movement of places, when it is one of a fixed place, or one in step with the copies."""
        place, across, along = even
        allowed = {(self._moved[place], 0)}
        for start, length in self._stretches:
            if start - length <= place < start + 2 * length:
                moved = self._moved[start]
                allowed |= {(moved, 0), (moved, length), (moved + length, 0), (moved + length, -length)}
        if (across, along) not in allowed:
            raise _IrregularError
        return even

    def _even_names(self, place: int) -> Iterator[_EvenName | None]:
        one, two = self._in_long(place)
        for names in zip(self.short.names[place], self.long.names[one], self.long.names[two], strict=True):
            name, first, second = names
            if name is None or first is None or second is None:
                yield None  # of equal kinds, either none or all
            elif name[1] is None or first[1] is None or second[1] is None:
                yield name[0], None, name[2]
            else:
                even = _even(name[1], first[1], second[1])
                if even[1:] not in _COUNTED:
                    raise _IrregularError
                yield name[0], even, name[2]

    def _in_long(self, place: int) -> tuple[int, int]:
        """Where the long line has the event, and its second copy; the same when it has no other."""
        one = place + self._moved[place]
        return one, one + self._length[place]

    def _at(self, even: _Even, copy: int) -> int:
        value, across, along = even
        return value + across * (self._copies - 1) + along * copy

    def _order_places(self) -> Iterator[tuple[int, int]]:
        done = 0
        for start, length in self._stretches:
            yield from ((place, 0) for place in range(done, start))
            for copy in range(self._copies):
                yield from ((place, copy) for place in range(start, start + length))
            done = start + length
        yield from ((place, 0) for place in range(done, len(self.short.events)))

    def _number_steps(self) -> Iterator[int | None]:
        number = self._first - 1
        for place, _ in self._order:
            event = self.short.events[place]
            number += isinstance(event, Step)
            yield None if isinstance(event, Storage) else number

    def _step(self, step: Step, place: int, copy: int) -> Step:
        (module,) = self._names[place]
        if module is None or module[1] is None:
            return step
        return Step(
            op=step.op,
            module=self._text(module, copy) or "",
            phase=step.phase,
            scratch_nbytes=step.scratch_nbytes,
        )

    def _storage(self, storage: Storage, place: int, copy: int, born: int, died: int | None) -> Storage:
        name, saved_by = self._names[place]
        return Storage(
            nbytes=storage.nbytes,
            category=storage.category,
            born=None if storage.born is None else born,
            died=died,
            shape=storage.shape,
            dtype=storage.dtype,
            name=self._text(name, copy),
            saved_by=self._text(saved_by, copy),
        )

    def _text(self, name: _EvenName | None, copy: int) -> str | None:
        if name is None:
            return None
        before, even, after = name
        if even is None:
            return before
        number = self._at(even, copy)
        if not 0 <= number < self._count:
            raise _IrregularError
        return f"{before}{number}{after}"


def _even(value: int, first: int, second: int) -> _Even:
    """How something moves that is `value` with one copy; with two, `first` and `second` in them."""
    return value, first - value, second - first


def _moves(stretches: Sequence[_Stretch], size: int) -> tuple[list[int], list[int]]:
    """By place: how far one more copy moves the event there, and the length of the stretch it is in."""
    moved, lengths = [0] * size, [0] * size
    total = done = 0
    for start, length in (*stretches, (size, 0)):
        moved[done : start + length] = [total] * (start + length - done)
        lengths[start : start + length] = [length] * length
        total += length
        done = start + length
    return moved, lengths


def _stretches(short: _Line, long: _Line, block: int) -> list[_Stretch]:
    """The stretches of the short line that the long line has twice, those of that block where it shows."""
    inserted = _Overlay(short.kinds, long.kinds).find_inserted()
    found: list[_Stretch] = []
    done = 1  # the beginning is not repeated
    for end, length in inserted:
        if end - length < done:
            raise _IrregularError
        start = _start(short, end - length, length, done, block)
        found.append((start, length))
        done = start + length
    return found


def _start(line: _Line, start: int, length: int, least: int, block: int) -> int:
    """Where a block's stretch starts, when a stretch of that length can be repeated from `start` on.

    As the blocks around it are like it, so can those that start somewhat earlier.
    """
    lowest = start
    while lowest > least and line.kinds[lowest - 1] == line.kinds[lowest - 1 + length]:
        lowest -= 1
    own = (place for place in range(lowest, start + 1) if line.blocks[place] == block)
    return next(own, (lowest + start) // 2)


class _Overlay:
    """Lays a short line over a long one that has some of its stretches twice."""

    def __init__(self, short: Sequence[Hashable], long: Sequence[Hashable]) -> None:
        self._short, self._long = short, long
        self._tried = 0

    def find_inserted(self) -> list[_Stretch]:
        """The ends of the stretches that are there twice, as late as they can be, and their lengths."""
        found = self._rest(0, 0)
        if found is None:
            raise _IrregularError
        return found

    def _rest(self, at: int, ahead: int) -> list[_Stretch] | None:
        """Those from a place on, when the long line is that far ahead."""
        short, long = self._short, self._long
        self._tried += 1
        missing = len(long) - len(short) - ahead
        if missing < 0 or self._tried > TRIED:
            return None
        while at < len(short) and at + ahead < len(long) and short[at] == long[at + ahead]:
            at += 1
        if missing == 0:
            return [] if at == len(short) else None
        here = at + ahead
        for length in range(1, min(missing, here) + 1):
            if self._goes_on(at, here + length) and long[here : here + length] == long[here - length : here]:
                rest = self._rest(at, ahead + length)
                if rest is not None:
                    return [(at, length), *rest]
        return None

    def _goes_on(self, at: int, there: int) -> bool:
        if at == len(self._short) or there == len(self._long):
            return at == len(self._short) and there == len(self._long)
        return self._short[at] == self._long[there]
