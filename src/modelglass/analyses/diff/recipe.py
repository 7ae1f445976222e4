"""The shortest honest explanation of a changed tensor: the first that fits wins, and may leave a rest."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from modelglass.analyses.diff import cast, drift, nan, zeroed
from modelglass.analyses.diff.change import Change
from modelglass.analyses.diff.explained import Explained

EXPLANATIONS: tuple[Callable[[Change], Explained | None], ...] = (
    nan.explain,
    zeroed.explain,
    cast.explain,
    drift.explain,
)


def explain(change: Change) -> list[Explained]:
    """The operations that make b of a, in the order in which they were done."""
    found: list[Explained] = []
    for each in EXPLANATIONS:
        explained = each(change)
        if explained is None:
            continue
        found.append(explained._replace(rest=None))
        if explained.rest is None or np.array_equal(explained.rest.a, explained.rest.b, equal_nan=True):
            break
        change = explained.rest
    return found
