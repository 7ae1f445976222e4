"""Numbers that became none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from modelglass.analyses.diff.change import Change
from modelglass.analyses.diff.explained import Explained

if TYPE_CHECKING:
    from modelglass.analyses.diff.numbers import Array

_ENOUGH_ROWS = 0.5


def explain(change: Change) -> Explained | None:
    """Elements that are NaN or infinite in b and finite in a."""
    lost = ~np.isfinite(change.b) & np.isfinite(change.a)
    if not lost.any():
        return None
    figures = {
        "nan": int(np.count_nonzero(np.isnan(change.b) & lost)),
        "inf": int(np.count_nonzero(np.isinf(change.b) & lost)),
    }
    return Explained("nan", figures, rest=_without(change, lost))


def _without(change: Change, lost: Array) -> Change | None:
    """The rows of which nothing is lost; where hardly any are left, all but the lost elements."""
    if lost.all():
        return None
    rows = ~lost.reshape(lost.shape[0], -1).any(axis=1)
    if lost.ndim > 1 and np.mean(rows) >= _ENOUGH_ROWS:
        return change.on(change.a[rows], change.b[rows])
    return change.on(change.a, np.where(lost, change.a, change.b))
