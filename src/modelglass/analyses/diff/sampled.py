"""Explanations of tensors that are too large to be looked at as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from modelglass.analyses.diff import recipe
from modelglass.analyses.diff.change import MOST_WHOLE, load
from modelglass.analyses.diff.explained import Explained
from modelglass.analyses.diff.related import correlation

if TYPE_CHECKING:
    from modelglass.analyses.diff.change import Change
    from modelglass.analyses.diff.stream import Streamed

_FEW = 0.05  # of the elements
_LIKE = 0.5  # correlation above which elements are where they were
_MOST_IN_ALL = 1 << 24  # elements of tensors that are looked at as a whole


class Budget:
    """How many more elements may be looked at, of tensors whose elements may have changed places."""

    def __init__(self) -> None:
        self._left = _MOST_IN_ALL

    def take(self, numel: int) -> bool:
        """Whether a tensor of that size may be looked at as a whole."""
        fits = numel <= min(MOST_WHOLE, self._left)
        self._left -= numel if fits else 0
        return fits


def explain_sampled(each: Streamed, change: Change, budget: Budget) -> list[Explained]:
    """What explains a change of which only blocks of rows are at hand, and the figures of all of it."""
    figures = each.figures
    assert figures is not None
    if not figures.b_b and figures.a_a:
        return [Explained("zeroed", {"elements": figures.numel})]
    lost = figures.nan_b - figures.nan_a, figures.inf_b - figures.inf_a
    found = [Explained("nan", {"nan": lost[0], "inf": lost[1]})] if max(lost) > 0 else []
    if found and figures.changed <= sum(lost):
        return found
    if change.dtype_a == change.dtype_b and figures.changed - sum(lost) <= _FEW * figures.numel:
        counted = {"elements": figures.changed - sum(lost), "max_abs": figures.max_abs}
        if np.array_equal(change.a, change.b) or recipe.is_sparse(change):
            return [*found, Explained("sparse", counted, 0.95)]
    like = correlation(change.a, change.b)
    if each.a is not None and each.b is not None and abs(like or 0.0) < _LIKE and budget.take(figures.numel):
        whole = load(each.a, each.b, change.stored_a, change.stored_b, most=MOST_WHOLE)
        return recipe.explain(whole)
    rest = [other for other in recipe.explain(change) if other.kind != "nan"]
    return [*found, *rest]
