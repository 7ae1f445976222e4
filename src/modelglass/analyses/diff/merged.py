"""A weighted sum of several models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from modelglass.analyses.diff.change import Change
from modelglass.analyses.diff.explained import Explained

if TYPE_CHECKING:
    from modelglass.analyses.diff.numbers import Array

_MOST_STEPS = 1.5  # root of the mean square, of what is left, in steps of rounding
_ONE = 2e-3  # by how far weights may miss a sum of 1


def explain(change: Change, others: Sequence[Array]) -> Explained | None:
    """b is a sum of a and others, but for rounding; the weights, and which way of merging has such ones."""
    arrays = [change.a, *others]
    if any(each.shape != change.b.shape for each in others):
        return None
    basis = np.stack([each.reshape(-1).astype(np.float64) for each in arrays])
    wanted = change.b.reshape(-1).astype(np.float64)
    gram = basis @ basis.T
    if np.linalg.matrix_rank(gram / max(float(gram.max()), 1e-300), tol=1e-12) < len(arrays):
        return None
    weights = np.linalg.solve(gram, basis @ wanted)
    left = (wanted - weights @ basis) / np.maximum(change.steps.reshape(-1), 1e-300)
    if np.sqrt(np.mean(np.square(left))) > _MOST_STEPS or np.abs(weights[1:]).max() < _ONE:
        return None
    figures = {"weights": [float(each) for each in weights], "method": _method(weights, gram)}
    return Explained("merged", figures, 0.99)


def _method(weights: Array, gram: Array) -> str:
    if abs(float(weights.sum()) - 1) < _ONE:
        return "linear" if weights.min() > -_ONE else "task arithmetic"
    if weights.size == 2:
        cosine = gram[0, 1] / np.sqrt(gram[0, 0] * gram[1, 1])
        angle = float(np.arccos(np.clip(cosine, -1, 1)))
        share = np.linspace(0, 1, 2001)
        arcs = np.stack([np.sin((1 - share) * angle), np.sin(share * angle)]) / np.sin(angle)
        if np.abs(arcs - weights[:, None]).max(axis=0).min() < 2 * _ONE:
            return "SLERP"
    return "weighted sum"
