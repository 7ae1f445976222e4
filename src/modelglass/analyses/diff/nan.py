"""Numbers that became none."""

from __future__ import annotations

import numpy as np

from modelglass.analyses.diff.change import Change
from modelglass.analyses.diff.explained import Explained


def explain(change: Change) -> Explained | None:
    """Elements that are NaN or infinite in b and finite in a."""
    lost = ~np.isfinite(change.b) & np.isfinite(change.a)
    if not lost.any():
        return None
    figures = {
        "nan": int(np.count_nonzero(np.isnan(change.b) & lost)),
        "inf": int(np.count_nonzero(np.isinf(change.b) & lost)),
    }
    kept = np.where(lost, change.a, change.b)
    return Explained("nan", figures, rest=None if lost.all() else change.on(change.a, kept))
