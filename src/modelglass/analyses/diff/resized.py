"""Rows or columns that were added or taken away, and matrices that were turned around."""

from __future__ import annotations

from dataclasses import replace

from modelglass.analyses.diff.explained import Explained
from modelglass.analyses.diff.turned import cropped, turned
from modelglass.report import Values


def fitted(a: Values, b: Values) -> tuple[Values, Values, Explained | None]:
    """What two tensors of unequal shapes have in common, and what made the shapes differ."""
    if a.numel == b.numel and a.shape != b.shape[::-1]:
        return replace(a, shape=b.shape), b, None  # the same elements, in rows of another length
    if len(a.shape) != len(b.shape) or not a.shape:
        return a, b, None
    if len(a.shape) == 2 and a.shape == b.shape[::-1]:
        return turned(a, (1, 0)), b, Explained("transposed", {"axes": [0, 1]})
    common = tuple(min(sizes) for sizes in zip(a.shape, b.shape, strict=True))
    grown = [axis for axis, size in enumerate(b.shape) if size > a.shape[axis]]
    shrunk = [axis for axis, size in enumerate(b.shape) if size < a.shape[axis]]
    if not all(common) or (grown and shrunk):
        return a, b, None
    axis = (grown or shrunk)[0]
    figures = {"axis": axis, "from": a.shape[axis], "to": b.shape[axis]}
    figures["elements"] = abs(b.shape[axis] - a.shape[axis])
    kind = "extended" if grown else "truncated"
    return cropped(a, common), cropped(b, common), Explained(kind, figures)
