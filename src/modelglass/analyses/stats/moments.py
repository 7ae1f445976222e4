"""Moments of a set of numbers that merge without losing digits (Welford, Chan et al.)."""

from __future__ import annotations

from dataclasses import dataclass
from math import ldexp, sqrt

import numpy as np

from modelglass.analyses.stats.layouts import Array, Doubles


@dataclass(frozen=True)
class Moments:
    """How many numbers, their mean, and the sum `m2` of squared distances from it.

    The mean is `origin + offset`, kept apart because far from zero their sum would round off what tells two
    means from each other. All are in units of `2**exponent` (`m2` of its square): squares of doubles
    beyond 1e154 overflow and those below 1e-162 vanish.
    """

    number: int = 0
    origin: float = 0.0
    offset: float = 0.0
    m2: float = 0.0
    exponent: int = 0

    @classmethod
    def of(cls, values: Doubles, counts: Array) -> Moments:
        """Of finite values, each as often as its count says."""
        exponent = int(np.frexp(np.abs(values).max(initial=0.0))[1])
        nothing = np.zeros_like(values)
        return cls._of_groups(
            counts.astype(np.float64), np.ldexp(values, -exponent), nothing, nothing, exponent
        )

    @classmethod
    def of_blocks(cls, blocks: Doubles) -> Moments:
        """Of groups described by rows of number, origin, offset, m2, exponent."""
        number, origin, offset, m2, exponents = blocks[blocks[:, 0] > 0].T
        # Zeros are on any scale; taking theirs would push what is tiny out of range.
        nothing = (origin == 0) & (offset == 0) & (m2 == 0)
        exponent = int(exponents[~nothing].max(initial=exponents.min(initial=0)))
        down = (exponents - exponent).astype(np.int32)
        scaled = np.ldexp(origin, down), np.ldexp(offset, down), np.ldexp(m2, 2 * down)
        return cls._of_groups(number, *scaled, exponent)

    @classmethod
    def _of_groups(
        cls, number: Doubles, origin: Doubles, offset: Doubles, m2: Doubles, exponent: int
    ) -> Moments:
        total = int(number.sum())
        if not total:
            return cls()
        means = (origin - origin[0]) + offset
        center = _sum(number * means) / total
        distance = means - center
        return cls(total, float(origin[0]), center, _sum(m2 + number * distance * distance), exponent)

    def merge(self, other: Moments) -> Moments:
        """Of both sets together."""
        both = [(m.number, m.origin, m.offset, m.m2, m.exponent) for m in (self, other)]
        return Moments.of_blocks(np.array(both, dtype=np.float64))

    @property
    def mean(self) -> float:
        return self.origin + self.offset

    @property
    def average(self) -> float | None:
        return ldexp(self.mean, self.exponent) if self.number else None

    @property
    def deviation(self) -> float | None:
        """The unbiased standard deviation; one value has none."""
        return _to_double(sqrt(self.m2 / (self.number - 1)), self.exponent) if self.number > 1 else None

    @property
    def norm(self) -> float | None:
        """The root of the sum of squares."""
        return _to_double(sqrt(self.m2 + self.number * self.mean * self.mean), self.exponent)


def _sum(numbers: Doubles) -> float:
    """The sum, with more digits on the way where the machine has them."""
    return float(np.sum(numbers, dtype=np.longdouble))


def _to_double(value: float, exponent: int) -> float | None:
    """The value as a double, or None when it is too large for one."""
    try:
        return ldexp(value, exponent)
    except OverflowError:
        return None
