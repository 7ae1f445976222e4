"""One factor, or one for each row or column."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from modelglass.analyses.diff.change import Change
from modelglass.analyses.diff.explained import Explained

if TYPE_CHECKING:
    from modelglass.analyses.diff.numbers import Array

_MOST_STEPS = 1.01  # of rounding, by which a product may miss
_ENOUGH = 0.6  # of the elements must have been scaled; what happened to the others is a matter of its own


def explain(change: Change) -> Explained | None:
    """b is a product of a, but for rounding."""
    a, b = change.a.astype(np.float64), change.b.astype(np.float64)
    for axis in (None, *range(min(a.ndim, 2) if a.ndim > 1 else 0)):
        factors = _factors(a, b, axis)
        if factors is None:
            continue
        product = a * factors
        fits = np.abs(product - b) <= _MOST_STEPS * change.steps + 4e-7 * np.abs(b)
        weighs = (a != 0) & (np.abs(b) > 8 * np.finfo(np.float32).tiny)
        share = float(np.count_nonzero(fits & weighs)) / max(1, int(np.count_nonzero(weighs)))
        if share < _ENOUGH or not _is_better(change, weighs, share):
            continue
        figures: dict[str, object] = {"factor": float(np.median(factors))}
        if axis is not None:
            figures |= {"axis": axis, "least": float(factors.min()), "most": float(factors.max())}
        rest = None if fits.all() else change.on(np.where(fits, b, product))
        return Explained("scaled", figures, 1.0 if rest is None else 0.95, rest=rest)
    return None


def _is_better(change: Change, weighs: Array, share: float) -> bool:
    """Whether the factors fit more elements than no factors do."""
    same = (np.abs(change.difference) <= change.steps) & weighs
    return bool(share > np.count_nonzero(same) / np.count_nonzero(weighs) + 0.2)


def _factors(a: Array, b: Array, axis: int | None) -> Array | None:
    """The factors, in a shape that multiplies a; from the elements that are largest and least rounded."""
    if axis is None:
        one, other = a.reshape(1, -1), b.reshape(1, -1)
    else:
        one, other = (np.moveaxis(each, axis, 0).reshape(each.shape[axis], -1) for each in (a, b))
    if one.shape[1] < 2:
        return None
    weights = np.abs(one)
    with np.errstate(all="ignore"):
        ratios = np.where((one != 0) & (other != 0), other / one, np.nan)
        large = weights >= np.quantile(weights, 0.5, axis=1, keepdims=True)
        ratios[~large] = np.nan
        if np.isnan(ratios).all(axis=1).any():
            return None
        middle = np.nanmedian(ratios, axis=1, keepdims=True)
        near = large & (np.abs(ratios - middle) <= 0.02 * np.abs(middle))
        factors = np.sum(one * other * near, axis=1) / np.maximum(np.sum(one * one * near, axis=1), 1e-300)
    if not np.isfinite(factors).all() or not factors.any() or np.ptp(np.append(factors, 1.0)) < 1e-6:
        return None
    if axis is None:
        return np.asarray(factors.reshape((1,) * a.ndim))
    return np.asarray(factors.reshape([-1 if place == axis else 1 for place in range(a.ndim)]))
