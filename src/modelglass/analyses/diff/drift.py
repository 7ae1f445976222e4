"""What nothing simpler explains: all numbers moved, from where they were or to somewhere else."""

from __future__ import annotations

import numpy as np

from modelglass.analyses.diff.change import Change
from modelglass.analyses.diff.explained import Explained
from modelglass.analyses.diff.related import ENOUGH, correlation, is_beyond_chance

_NEAR = 0.5  # of a's length, within which numbers that hardly vary have only drifted


def explain(change: Change) -> Explained:
    """Fine-tuned, where the new numbers still tell of the old ones; else made anew."""
    found = correlation(change.a, change.b)
    length = float(np.linalg.norm(change.a.astype(np.float64)))
    drift = float(np.linalg.norm(change.difference)) / length if length else None
    figures = {"relative_l2": drift, "correlation": found}
    if found is not None and change.b.size >= ENOUGH:
        related = is_beyond_chance(found, change.b.size)
        return Explained("fine-tuned" if related else "reinitialised", figures, 0.99)
    near = drift is not None and drift < _NEAR
    return Explained("fine-tuned" if near else "reinitialised", figures, 0.6)
