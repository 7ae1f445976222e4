"""Rows that became columns in a square matrix, whose shape does not tell."""

from __future__ import annotations

import numpy as np

from modelglass.analyses.diff.change import Change
from modelglass.analyses.diff.explained import Explained
from modelglass.analyses.diff.related import correlation, is_beyond_chance


def explain(change: Change) -> Explained | None:
    """b has much in common with a turned around, and less with a as it is."""
    a, b = change.a, change.b
    if a.ndim < 2 or a.shape != b.shape or change.share < 1 or a.shape[-1] != a.shape[-2]:
        return None
    turned = np.swapaxes(a, -1, -2)
    straight, across = correlation(a, b), correlation(turned, b)
    if across is None or not is_beyond_chance(across, a.size) or across <= abs(straight or 0.0) + 0.1:
        return None
    return Explained("transposed", {"axes": [a.ndim - 2, a.ndim - 1]}, rest=change.on(turned))
