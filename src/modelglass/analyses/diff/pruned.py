"""Elements that became zero, and the few that changed where most did not."""

from __future__ import annotations

import numpy as np

from modelglass.analyses.diff.change import Change
from modelglass.analyses.diff.explained import Explained

_LEAST = 0.01  # of the elements; fewer zeros are single changes
_FEW = 0.05  # of the elements
_BEYOND_ROUNDING = 2.0  # steps


def explain(change: Change) -> Explained | None:
    """Elements of a that are zero in b, as many as a pruning makes."""
    lost = (change.b == 0) & (np.abs(change.a) > change.steps)
    count = int(np.count_nonzero(lost))
    if count < 2 or count < _LEAST * lost.size:
        return None
    figures = {"elements": round(count / change.share), "sparsity": float(np.mean(change.b == 0))}
    return Explained("pruned", figures, rest=change.on(np.where(lost, 0, change.a)))


def explain_sparse(change: Change) -> Explained | None:
    """A few elements that changed by more than rounding does, while all others are as they were."""
    apart = np.abs(change.difference)
    changed = apart > change.steps * (0.0 if change.dtype_a == change.dtype_b else 1.0)
    count = int(np.count_nonzero(changed))
    if not count or count > max(1, _FEW * changed.size):
        return None
    beyond = apart[changed] > _BEYOND_ROUNDING * change.steps[changed]
    if count > 1e-3 * changed.size and np.mean(beyond) < 0.5:
        return None  # what rounding left of a small change of all
    figures = {"elements": round(count / change.share), "max_abs": float(apart.max())}
    return Explained("sparse", figures)
