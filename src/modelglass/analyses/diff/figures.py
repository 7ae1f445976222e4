"""What distinguishes two arrays of numbers, as sums that can be added up over pieces."""

from __future__ import annotations

from dataclasses import dataclass
from math import log10, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

BLOCK = 1 << 16  # elements that stay in the processor's cache
RUN = 1 << 11  # elements that are few enough to be summed as short floats


@dataclass(slots=True)
class Figures:
    """Sums over pairs of finite numbers, and how many there are of the others."""

    numel: int = 0
    changed: int = 0
    a_a: float = 0.0
    b_b: float = 0.0
    a_b: float = 0.0
    d_d: float = 0.0
    max_abs: float = 0.0
    at: int | None = None  # an element
    nan_a: int = 0
    nan_b: int = 0
    inf_a: int = 0
    inf_b: int = 0

    def merge(self, later: Figures) -> None:
        """Add those of elements that follow."""
        if later.max_abs > self.max_abs or self.at is None:
            self.max_abs, self.at = later.max_abs, None if later.at is None else self.numel + later.at
        for name in ("numel", "changed", "a_a", "b_b", "a_b", "d_d", "nan_a", "nan_b", "inf_a", "inf_b"):
            setattr(self, name, getattr(self, name) + getattr(later, name))

    @property
    def relative_l2(self) -> float | None:
        """The length of the difference as a part of that of a."""
        if self.d_d == 0.0:
            return 0.0
        return sqrt(self.d_d / self.a_a) if self.a_a else None

    @property
    def cosine(self) -> float | None:
        """The cosine of the angle between both; None where one of them is zero."""
        if not self.a_a or not self.b_b:
            return None
        if self.d_d == 0.0:
            return 1.0
        return max(-1.0, min(1.0, self.a_b / (sqrt(self.a_a) * sqrt(self.b_b))))

    @property
    def snr_db(self) -> float | None:
        """How much stronger a is than the difference, in decibels."""
        return 10 * log10(self.a_a / self.d_d) if self.a_a and self.d_d else None


def measure(a: Array, b: Array, changed: Array | None = None) -> Figures:
    """The figures of two arrays of floats; `changed` marks elements whose bits differ, where known."""
    found = Figures()
    for start in range(0, a.size, BLOCK):
        piece = slice(start, start + BLOCK)
        found.merge(_of_block(a[piece], b[piece], None if changed is None else changed[piece]))
    return found


def _of_block(a: Array, b: Array, changed: Array | None) -> Figures:
    with np.errstate(all="ignore"):
        if a.dtype != b.dtype:
            a, b = a.astype(np.float64, copy=False), b.astype(np.float64, copy=False)
        marks = a != b if changed is None else changed
        difference = b - a
        sums = _products(a, b, difference)
        count = int(np.count_nonzero(marks))
        tame = all(np.isfinite(sums)) and not (count and _is_tiny(sums, a, b, difference))
        if not tame:
            return _carefully(a, b, changed)
        magnitudes = np.abs(difference, out=difference)
        at = int(np.argmax(magnitudes))
    largest = float(magnitudes[at])
    return _figures(a.size, count, sums, largest, at)


def _products(a: Array, b: Array, difference: Array) -> list[float]:
    pairs = ((a, a), (b, b), (a, b), (difference, difference))
    return [_product(x, y) for x, y in pairs]


def _product(x: Array, y: Array) -> float:
    """The sum of products, of short runs first: BLAS would start threads of its own in each of ours."""
    whole = x.size - x.size % RUN
    runs = np.einsum("ij,ij->i", x[:whole].reshape(-1, RUN), y[:whole].reshape(-1, RUN))
    return float(runs.sum(dtype=np.float64)) + float(np.einsum("i,i->", x[whole:], y[whole:]))


def _figures(numel: int, changed: int, sums: list[float], largest: float, at: int) -> Figures:
    a_a, b_b, a_b, d_d = sums
    found = Figures(numel=numel, changed=changed, a_a=a_a, b_b=b_b, a_b=a_b, d_d=d_d)
    found.max_abs, found.at = largest, at if largest else None
    return found


def _is_tiny(sums: list[float], *arrays: Array) -> bool:
    """Whether squares may have been too small for short floats."""
    squares = (sums[0], sums[1], sums[3])
    return any(
        square < 1e-25 and (square > 0 or each.any()) for square, each in zip(squares, arrays, strict=True)
    )


def _carefully(a: Array, b: Array, changed: Array | None) -> Figures:
    """The same with long floats, without what is not finite."""
    nan_a, nan_b = np.isnan(a), np.isnan(b)
    marks = (a != b) & ~(nan_a & nan_b) if changed is None else changed
    finite = np.isfinite(a) & np.isfinite(b)
    left, right = (np.where(finite, each, 0).astype(np.float64) for each in (a, b))
    difference = right - left
    magnitudes = np.abs(difference)
    at = int(np.argmax(magnitudes))
    count = int(np.count_nonzero(marks))
    sums = _products(left, right, difference)
    found = _figures(a.size, count, sums, float(magnitudes[at]), at)
    found.nan_a, found.nan_b = int(np.count_nonzero(nan_a)), int(np.count_nonzero(nan_b))
    found.inf_a, found.inf_b = (int(np.count_nonzero(np.isinf(each))) for each in (a, b))
    return found
