"""Mean and spread of a set of numbers, in a form that merges without losing digits."""

from __future__ import annotations

from dataclasses import dataclass
from math import fsum, ldexp, sqrt

import numpy as np

from modelglass.analyses.stats.layouts import Array, Doubles


@dataclass(frozen=True)
class Moments:
    """`mean`, and the sum `m2` of squared distances from it, in units of `2**exponent` and its square.

    Squares of doubles beyond 1e154 overflow and those below 1e-162 vanish; the exponent keeps both in range.
    """

    number: int = 0
    mean: float = 0.0
    m2: float = 0.0
    exponent: int = 0

    @classmethod
    def of(cls, values: Doubles, counts: Array) -> Moments:
        """Of finite values, each as often as its count says."""
        largest = float(np.abs(values).max(initial=0.0))
        exponent = int(np.frexp(largest)[1])
        scaled = np.ldexp(values, -exponent)
        weights = counts.astype(np.float64)
        return cls._of_groups(weights, scaled, np.zeros_like(scaled), exponent)

    @classmethod
    def of_blocks(cls, blocks: Doubles) -> Moments:
        """Of blocks described by rows of number, mean, m2, exponent."""
        blocks = blocks[blocks[:, 0] > 0]
        if not len(blocks):
            return cls()
        number, mean, m2, exponents = blocks.T
        exponent = int(exponents.max())
        down = (exponents - exponent).astype(np.int32)
        return cls._of_groups(number, np.ldexp(mean, down), np.ldexp(m2, 2 * down), exponent)

    @classmethod
    def _of_groups(cls, number: Doubles, mean: Doubles, m2: Doubles, exponent: int) -> Moments:
        total = int(number.sum())
        if not total:
            return cls()
        center = fsum((number * mean).tolist()) / total
        distance = mean - center
        return cls(total, center, fsum((m2 + number * distance * distance).tolist()), exponent)

    def merged(self, other: Moments) -> Moments:
        """Of both sets together."""
        rows = [(part.number, part.mean, part.m2, part.exponent) for part in (self, other)]
        return Moments.of_blocks(np.array(rows, dtype=np.float64))

    @property
    def average(self) -> float | None:
        return ldexp(self.mean, self.exponent) if self.number else None

    @property
    def deviation(self) -> float | None:
        """The unbiased standard deviation; one value has none."""
        return _held(sqrt(self.m2 / (self.number - 1)), self.exponent) if self.number > 1 else None

    @property
    def norm(self) -> float | None:
        """The root of the sum of squares."""
        return _held(sqrt(self.m2 + self.number * self.mean * self.mean), self.exponent)


def _held(value: float, exponent: int) -> float | None:
    """The value as a double, or None when it is too large for one."""
    try:
        return ldexp(value, exponent)
    except OverflowError:
        return None
