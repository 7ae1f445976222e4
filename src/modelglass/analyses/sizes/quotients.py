"""Rounded quotients of a size, `times·⌊(over·n + shift)/below⌋ + plus`, and which of them fit what was seen.

Strided layers one after the other are one such quotient, since ⌊(⌊(n+a)/b⌋ + c)/d⌋ = ⌊(n + a + b·c)/(b·d)⌋,
and so are windows, steps, padding to a multiple and scale factors. A fit is a quotient with every shift that
the values allow: `distinguishing` names the size that rules out half of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd

LARGEST_DIVISOR = 1024
LARGEST_TIMES = 64  # where the values that were seen have a larger common factor by chance
_ALTERNATIVES = 64  # fits with larger divisors that are looked at beside the simplest


@dataclass(frozen=True, slots=True)
class Quotient:
    """`⌊(over·n + shift)/below⌋`."""

    over: int
    shift: int
    below: int

    def value(self, size: int) -> int:
        return (self.over * size + self.shift) // self.below

    @property
    def bare(self) -> Quotient:
        """What its text alone, without what is to be added, stands for."""
        return replace(self, shift=0) if self.shift % self.below == 0 else self

    def text(self, name: str) -> tuple[str, int]:
        """The quotient as text, rounded up or without a shift where possible, and what to add to it."""
        top = name if self.over == 1 else f"{self.over}·{name}"
        if self.shift % self.below == 0:
            return f"⌊{top}/{self.below}⌋", self.shift // self.below
        if self.shift == self.below - 1:
            return f"⌈{top}/{self.below}⌉", 0
        return f"⌊({top}{self.shift:+})/{self.below}⌋", 0


@dataclass(frozen=True, slots=True)
class Fit:
    """`times` a quotient `plus` a number, with any shift from `least` to `most`."""

    times: int
    plus: int
    over: int
    below: int
    least: int
    most: int

    @property
    def quotient(self) -> Quotient:
        """The one with the simplest shift: none, else rounded up, else the smallest."""
        usual = [shift for shift in (0, self.below - 1) if self.least <= shift <= self.most]
        multiple = self.most - self.most % self.below
        usual += [multiple] if multiple >= self.least else []
        return Quotient(self.over, usual[0] if usual else min(self.least, self.most, key=abs), self.below)

    def value(self, size: int) -> int:
        return self.times * self.quotient.value(size) + self.plus

    def distinguishing(self, sizes: Callable[[int], Iterator[int]]) -> int | None:
        """The size, of as many as can tell, at which about half of the shifts give another value."""
        middle = (self.least + self.most + 1) / 2
        best: tuple[float, int] | None = None
        for size in sizes(2 * self.below) if self.least < self.most else ():
            turn = self.least + (-self.over * size - self.least) % self.below
            if self.least < turn <= self.most and (best is None or abs(turn - middle) < best[0]):
                best = abs(turn - middle), size
        return None if best is None else best[1]


def differing(fits: Sequence[Fit], sizes: Iterable[int]) -> int | None:
    """The size at which the most of the others give another value than the simplest."""
    first, *others = fits
    best: tuple[int, int] | None = None
    for size in sizes if others else ():
        value = first.value(size)
        differ = sum(fit.value(size) != value for fit in others)
        if differ > (0 if best is None else best[0]):
            best = differ, size
    return None if best is None else best[1]


def fits(values: Mapping[int, int], largest: int = LARGEST_DIVISOR) -> tuple[Fit, ...]:
    """The quotients that give all values, those with small divisors first; few of those beyond the first."""
    usual = next(iter(values.values()))
    common = gcd(*(value - usual for value in values.values()))
    times = (
        common,
        *(times for times in range(min(LARGEST_TIMES, common - 1), 0, -1) if common % times == 0),
    )
    return next((found for each in times if (found := _fits_of(values, each, largest))), ()) if common else ()


def _fits_of(values: Mapping[int, int], times: int, largest: int) -> tuple[Fit, ...]:
    plus = next(iter(values.values())) % times
    seen = sorted((size, (value - plus) // times) for size, value in values.items())
    largest = min(largest, seen[-1][0] - seen[0][0])  # of more, not one period was seen
    found: list[Fit] = []
    for below in range(2, largest + 1):
        if found and (below > max(2 * found[0].below, 16) or len(found) > _ALTERNATIVES):
            break
        for over in _slopes(seen, below):
            shifts = _shifts(seen, over, below)
            if shifts is not None:
                found.append(Fit(times, plus, over, below, *shifts))
    return tuple(found)


def _slopes(seen: list[tuple[int, int]], below: int) -> Iterator[int]:
    """What may be above the line: rounding moves each end by less than one."""
    (size, value), (size2, value2) = seen[0], seen[-1]
    middle, slack = below * (value2 - value), below - 1
    least = -((slack - middle) // (size2 - size))
    most = (middle + slack) // (size2 - size)
    return (over for over in range(max(least, 1), most + 1) if gcd(over, below) == 1)


def _shifts(seen: list[tuple[int, int]], over: int, below: int) -> tuple[int, int] | None:
    least, most = below * seen[0][1] - over * seen[0][0], below * seen[0][1] + below - 1 - over * seen[0][0]
    for size, value in seen:
        rest = below * value - over * size
        least, most = max(least, rest), min(most, rest + below - 1)
        if least > most:
            return None
    return least, most
