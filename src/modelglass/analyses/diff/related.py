"""Whether two arrays of one shape have more in common than chance gives them."""

from __future__ import annotations

from math import prod, sqrt
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from modelglass.analyses.diff.numbers import Array

ENOUGH = 256  # elements below which a correlation says little
_SIGMAS = 8.0  # of the correlation of independent numbers
_LEAST = 0.1  # below which a correlation may be what training on the same data gives


def correlation(a: Array, b: Array) -> float | None:
    """How elements go together, beyond the means of rows and columns; None: one of them is all means.

    Models trained on the same data have means in common, and what is beyond is their own.
    """
    one, other = (_without_means(np.asarray(each, np.float64)) for each in (a, b))
    scale = float(np.sqrt(np.sum(one * one) * np.sum(other * other)))
    wholes = (float(np.sum(np.square(each, dtype=np.float64))) for each in (a, b))
    least = 1e-9 * sqrt(prod(wholes))
    return float(np.sum(one * other)) / scale if scale > least and np.isfinite(scale) else None


def _without_means(numbers: Array) -> Array:
    flat = numbers.reshape(numbers.shape[0], -1) if numbers.ndim > 1 else numbers.reshape(1, -1)
    flat = flat - flat.mean(axis=1, keepdims=True)
    if min(flat.shape) > 2:
        flat = flat - flat.mean(axis=0, keepdims=True)
    return np.asarray(flat)


def is_beyond_chance(found: float, numel: int) -> bool:
    """Whether independent arrays of so many elements would not correlate like that."""
    return numel >= ENOUGH and abs(found) > max(_LEAST, _SIGMAS / sqrt(numel))
