"""The shortest honest explanation of a changed tensor: the first that fits wins, and may leave a rest."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from modelglass.analyses.diff import (
    cast,
    drift,
    low_rank,
    nan,
    offset,
    permuted,
    pruned,
    quantized,
    scaled,
    transposed,
    zeroed,
)
from modelglass.analyses.diff.change import Change
from modelglass.analyses.diff.explained import Explained
from modelglass.analyses.diff.numbers import rounded

EXPLANATIONS: tuple[Callable[[Change], Explained | None], ...] = (
    cast.explain,
    nan.explain,
    zeroed.explain,
    transposed.explain,
    permuted.explain,
    quantized.explain,
    scaled.explain,
    offset.explain,
    pruned.explain,
    pruned.explain_sparse,
    low_rank.explain,
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
        if explained.rest is None or _is_settled(explained.rest):
            break
        change = explained.rest
    return found


def is_sparse(change: Change) -> bool:
    """Whether a few elements changed, by more than rounding does."""
    return pruned.explain_sparse(change) is not None


def _is_settled(change: Change) -> bool:
    """Whether nothing is left to explain, but for the rounding of a cast."""
    if np.array_equal(change.a, change.b, equal_nan=True):
        return True
    if not cast.is_cast(change):
        return False
    with np.errstate(invalid="ignore"):
        return bool((np.abs(rounded(change.a, change.dtype_b) - change.b) <= change.steps).all())
