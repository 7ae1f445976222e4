"""A tensor of which nothing is left."""

from __future__ import annotations

from modelglass.analyses.diff.change import Change
from modelglass.analyses.diff.explained import Explained


def explain(change: Change) -> Explained | None:
    """All of b is zero, and a is not."""
    if change.share < 1 or change.b.any() or not change.a.any():
        return None
    return Explained("zeroed", {"elements": int(change.b.size)})
