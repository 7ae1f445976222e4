"""A difference of low rank, as a merged adapter leaves it, told from the noise of rounding."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from modelglass.analyses.diff.change import Change
from modelglass.analyses.diff.explained import Explained

if TYPE_CHECKING:
    from modelglass.analyses.diff.numbers import Array

_MOST = 96  # ranks that are looked for in a large matrix
_LARGE = 512  # the smaller side of a matrix whose singular values are not all computed
_MARGIN = 1.12  # above the largest singular value that noise has, which varies with the matrix
_MOST_NOISE = 9.0  # times the variance of rounding, that what is left may have
_WIDEST = 0.6  # of the smaller side; more is full rank


def explain(change: Change) -> Explained | None:
    """Few directions stand out of what rounding explains, and nothing else is left.

    Rows and columns are divided by the rounding noise in them, which leaves the rank as it is and makes the
    noise alike everywhere. Its largest singular value then follows from the size of the matrix.
    """
    rows = change.b.shape[0] if change.b.ndim > 1 else 1
    matrix = change.difference.reshape(rows, -1)
    if min(matrix.shape) < 4 or not matrix.any():
        return None
    variance = np.square(change.steps).reshape(rows, -1) / 12
    level = float(variance.mean())
    if level <= 0:
        return None
    by_row, by_column = variance.mean(axis=1), variance.mean(axis=0)
    white = matrix / np.sqrt(np.outer(by_row, by_column) / level)
    values, tail = _singular_values(white)
    rank, noise = _rank(values, tail, white.shape)
    if rank == 0 or rank > _WIDEST * min(white.shape) or noise > _MOST_NOISE:
        return None
    energy = float(np.sum(np.square(values[:rank])) / np.sum(np.square(white)))
    length = float(np.linalg.norm(change.a.astype(np.float64)))
    figures = {
        "rank": rank,
        "energy": energy,
        "relative_l2": float(np.linalg.norm(matrix)) / length if length else None,
    }
    return Explained("low-rank", figures, 0.98)


def _rank(values: Array, tail: float, shape: tuple[int, int]) -> tuple[int, float]:
    """The number of singular values that noise does not have, and the variance of what is left."""
    rows, columns = shape
    squares = np.square(values)
    for rank in range(values.size):
        left = tail + float(squares[rank:].sum())
        noise = left / ((rows - rank) * (columns - rank))
        edge = np.sqrt(noise) * (np.sqrt(rows - rank) + np.sqrt(columns - rank))
        if values[rank] <= _MARGIN * edge:
            return rank, noise
    return values.size, float("inf")


def _singular_values(matrix: Array) -> tuple[Array, float]:
    """The largest singular values, and the sum of the squares of the others."""
    if min(matrix.shape) <= _LARGE:
        return np.linalg.svd(matrix, compute_uv=False), 0.0
    rng = np.random.default_rng(0)
    basis = matrix @ rng.normal(size=(matrix.shape[1], _MOST))
    for _ in range(2):
        basis = matrix @ (matrix.T @ np.linalg.qr(basis)[0])
    basis = np.linalg.qr(basis)[0]
    small = basis.T @ matrix
    values = np.linalg.svd(small, compute_uv=False)
    return values, max(0.0, float(np.sum(np.square(matrix)) - np.sum(np.square(values))))
