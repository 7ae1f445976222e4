"""One number added to all."""

from __future__ import annotations

import numpy as np

from modelglass.analyses.diff.change import Change
from modelglass.analyses.diff.explained import Explained

_MOST_STEPS = 1.01
_ENOUGH = 0.6


def explain(change: Change) -> Explained | None:
    """b is a and a constant, but for rounding."""
    difference = change.difference
    middle = float(np.median(difference))
    if not middle or difference.size < 2:
        return None
    near = np.abs(difference - middle) <= _MOST_STEPS * change.steps
    middle = float(difference[near].mean()) if near.any() else middle
    slack = 4e-7 * abs(middle) + 1e-3 * change.steps
    fits = np.abs(difference - middle) <= _MOST_STEPS * change.steps + slack
    same = np.abs(difference) <= change.steps
    if np.mean(fits) < _ENOUGH or np.mean(fits) < np.mean(same) + 0.2:
        return None
    moved = change.a + middle
    rest = None if fits.all() else change.on(np.where(fits, change.b, moved))
    return Explained("offset", {"offset": middle}, 1.0 if rest is None else 0.95, rest=rest)
