"""The sizes of one group: those that ran, those that failed, and others that may run."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from math import gcd

from modelglass.symbols.search import Group

LARGE = 2048  # a size beyond what is often a limit: of positions, of windows
STEPS = 24  # there are at least so many sizes above the usual one, if any
_SPREAD = 0.618  # fresh sizes are spread evenly, whatever their number


class Axis:
    """The sizes that a group can have: those `step` apart, as far as it is known."""

    def __init__(self, group: Group) -> None:
        self.usual = group.size
        self.step = 1
        self._ran = {group.size, *(size for size, _ in group.runs)}
        self._tried = set(self._ran)
        self.grows = max(self._ran) > group.size
        self._least, self._most = min(self._ran), max(self._ran)

    def note(self, size: int, *, ran: bool) -> None:
        self._tried.add(size)
        if ran:
            self._ran.add(size)
            self._least = min(self._least, size)

    def steps(self) -> Iterator[tuple[int, int]]:
        """Which steps may lie between sizes that run, the smallest first, and a size that shows it."""
        self.step = gcd(*(size - self.usual for size in self._ran))
        for step in range(1, self.step):
            size = self.usual + step if self.grows else self.usual - step
            if self.step % step == 0 and size > 1 and size not in self._tried:
                yield step, size

    def sizes(self, count: int) -> Iterator[int]:
        """Sizes that may run and were not tried, at most as many, those next to the usual one first."""
        up = range(self.usual + self.step, self._top + 1, self.step)
        down = range(self.usual - self.step, self._least - 1, -self.step)
        return islice((size for sizes in (up, down) for size in sizes if size not in self._tried), count)

    def far(self, count: int) -> Iterator[int]:
        """The same next to the largest that ran, where other slopes have led furthest away."""
        down = range(max(self._ran) - self.step, self._least - 1, -self.step)
        return islice((size for size in down if size not in self._tried), count)

    def with_another_rest(self, below: int) -> int | None:
        """A size that may run, and no size with the same rest when divided by `below` ran."""
        ran = {size % below for size in self._ran}
        return next((size for size in self.sizes(below) if size % below not in ran), None)

    def fresh(self) -> int | None:
        """A size that may run and was not tried, far from the last such one."""
        least = self._least + (self.usual - self._least) % self.step
        count = (self._top - least) // self.step + 1
        turns = (least + self.step * int(count * (turn * _SPREAD % 1)) for turn in range(1, 2 * count + 1))
        return next((size for size in turns if size not in self._tried), None)

    @property
    def small(self) -> int | None:
        """About half of the usual size."""
        size = self.usual - self.step * (self.usual // 2 // self.step)
        return size if size > 1 and size < self._least else None

    @property
    def large(self) -> int | None:
        """A size far beyond the usual one."""
        steps = max(15 * self.usual, LARGE - self.usual) // self.step
        return self.usual + self.step * (steps | 1) if self.grows else None

    @property
    def _top(self) -> int:
        return max(self._most, self.usual + STEPS * self.step) if self.grows else self._most
