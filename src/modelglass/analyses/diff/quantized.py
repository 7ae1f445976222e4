"""Few levels: what a quantization made of numbers, and whether its error is no more than it must be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from modelglass.analyses.diff.change import Change
from modelglass.analyses.diff.explained import Explained
from modelglass.analyses.diff.numbers import rounded
from modelglass.analyses.diff.related import correlation
from modelglass.report.dtypes import bits_of

if TYPE_CHECKING:
    from modelglass.analyses.diff.numbers import Array

_LEAST_LIKE = 0.8  # correlation below which levels are not those of a
_GROUPS = (0, 128, 64, 32)  # elements of a row that share a scale; 0: all
_BITS = (2, 3, 4, 5, 6, 8)
_BLOCK = 32
_PROBED = 4  # rows that are looked at first
_FLOATS = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}
_MOST_ERROR = 3.0  # times what the levels make necessary


def explain(change: Change) -> Explained | None:
    """b is packed, or of a narrow type, or stands on the levels of a grid that a does not have."""
    if change.stored_a and change.stored_a == change.stored_b:
        return None
    found = _format(change)
    if found is None:
        return None
    name, bits = found
    like = correlation(change.a, change.b)
    if like is not None and like < _LEAST_LIKE:
        return None
    error = _relative(change.difference, change.a)
    figures: dict[str, object] = {"format": name, "bits": bits, "relative_l2": error}
    ratio = _error_ratio(change)
    if ratio is not None:
        figures |= {"error_ratio": ratio, "more_than_needed": ratio > _MOST_ERROR}
    return Explained("quantized", figures, 0.99)


def _relative(difference: Array, a: Array) -> float | None:
    length = float(np.linalg.norm(a.astype(np.float64)))
    return float(np.linalg.norm(difference)) / length if length else None


def _format(change: Change) -> tuple[str, float | None] | None:
    if change.stored_b:
        return change.stored_b, None
    bits = bits_of(change.dtype_b)
    if change.dtype_a != change.dtype_b and bits is not None and bits <= 8:
        return change.dtype_b, float(bits)
    return next(_grids(change), None)


def _grids(change: Change) -> Iterator[tuple[str, float]]:
    """The grids that the numbers of b stand on, and those of a do not."""
    if change.b.ndim < 2 or min(change.b.shape) < 2:
        return
    a, b = (each.reshape(each.shape[0], -1).astype(np.float64) for each in (change.a, change.b))
    steps = change.steps.reshape(b.shape)
    for name, largest in _FLOATS.items():
        for axis in (None, 1):
            scale = np.abs(b).max(axis=axis, keepdims=True) / largest
            for each in (1.0, np.where(scale > 0, scale, 1)):
                if _has_levels(b, name, each, steps) and not _has_levels(a, name, each, steps):
                    yield f"{name}, as {change.dtype_b}", 8.0
                    return
    few = slice(_PROBED)
    for bits in _BITS:
        for group in _GROUPS:
            probed = _on_grid(b[few], steps[few], bits, group)
            if probed and _on_grid(b, steps, bits, group) and not _on_grid(a, steps, bits, group):
                about = f"groups of {group}" if group else "a scale for each row or tensor"
                yield f"{bits}-bit integers, {about}, as {change.dtype_b}", float(bits)
                return


def _has_levels(numbers: Array, name: str, scale: Array | float, slack: Array) -> bool:
    """Whether all numbers are those of a narrow type, times a scale; a few are looked at first."""
    for some in (slice(_PROBED), slice(None)):
        of_some = scale[some] if isinstance(scale, np.ndarray) and len(scale) > 1 else scale
        if not _is_on(numbers[some], rounded(numbers[some] / of_some, name) * of_some, slack[some]):
            return False
    return True


def _on_grid(numbers: Array, steps: Array, bits: int, group: int) -> bool:
    """Whether all numbers are whole multiples of a step that follows from the largest of them."""
    if (group and numbers.shape[1] % group) or group == numbers.shape[1]:
        return False
    if not group and numbers.shape[1] < 8:
        return False
    shape = (-1, group) if group else numbers.shape
    values, slack = numbers.reshape(shape), steps.reshape(shape)
    largest = np.abs(values).max(axis=1, keepdims=True)
    low, high = values.min(axis=1, keepdims=True), values.max(axis=1, keepdims=True)
    half = 2 ** (bits - 1)
    whole = np.abs(values).max()
    scales = (
        (largest / (half - 1), 0.0),
        (largest / half, 0.0),
        ((high - low) / (2 * half - 1), low),
        (np.full_like(largest, whole / (half - 1)), 0.0),
        (np.full_like(largest, whole / half), 0.0),
    )
    return any(_is_multiple(values, scale, origin, slack) for scale, origin in scales if np.any(scale > 0))


def _is_multiple(values: Array, scale: Array, origin: Array | float, slack: Array) -> bool:
    safe = np.where(scale > 0, scale, 1)
    near = np.rint((values - origin) / safe) * safe + origin
    return bool(np.mean(safe) > 4 * np.mean(slack)) and _is_on(values, near, slack)


def _is_on(values: Array, near: Array, slack: Array) -> bool:
    fits = np.abs(values - near) <= 1.5 * slack + 1e-6 * np.abs(values)
    return bool(np.mean(fits) > 0.99)


def _error_ratio(change: Change) -> float | None:
    """How large the error is beside the one of numbers that were rounded to the nearest level.

    Levels are as far apart as the nearest two different numbers of a block are.
    """
    if "float" in change.dtype_b and (bits_of(change.dtype_b) or 0) <= 8:
        return _ratio(change.difference, change.steps)
    flat = change.b.reshape(-1).astype(np.float64)
    blocks = flat[: flat.size // _BLOCK * _BLOCK].reshape(-1, _BLOCK)
    if not blocks.size:
        return None
    gaps = np.diff(np.sort(blocks, axis=1), axis=1)
    span = np.ptp(blocks, axis=1)
    gaps = np.where(gaps > 1e-5 * span[:, None], gaps, np.inf)
    step = gaps.min(axis=1)
    known = np.isfinite(step)
    if not known.any():
        return None
    error = change.difference.reshape(-1)[: blocks.size].reshape(blocks.shape)[known]
    return _ratio(error, step[known])


def _ratio(error: Array, steps: Array) -> float | None:
    """The error beside that of rounding in such steps."""
    needed = float(np.sqrt(np.mean(np.square(steps)) / 12))
    return float(np.sqrt(np.mean(np.square(error)))) / needed if needed else None
