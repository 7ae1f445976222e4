"""The same numbers along an axis in another order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from modelglass.analyses.diff.change import Change
from modelglass.analyses.diff.explained import Explained
from modelglass.analyses.diff.numbers import rounded
from modelglass.analyses.diff.related import ENOUGH, correlation, is_beyond_chance

if TYPE_CHECKING:
    from modelglass.analyses.diff.numbers import Array

_MOST = 4096  # slices along an axis of which each is compared with each
_MIX = np.uint64(0x9E3779B97F4A7C15)
_LIKE = 0.5  # what slices that belong together have in common, beyond means


def explain(change: Change) -> Explained | None:
    """Slices of a in another order: exactly, or so much alike that there is no doubt."""
    if change.share < 1 or change.a.shape != change.b.shape:
        return None
    a = rounded(change.a, change.dtype_b).astype(change.b.dtype)
    order = _exact(a, change.b)
    if order is not None and _moves(order):
        return _explained(change, order)
    found = correlation(change.a, change.b) if change.b.size >= ENOUGH else 1.0
    if found is None or abs(found) > _LIKE or change.b.ndim < 2:
        return None
    likest = _likest(change.a, change.b)
    return None if likest is None else _explained(change, likest, 0.99)


def _moves(order: dict[int, Array]) -> bool:
    return any((indices != np.arange(indices.size)).any() for indices in order.values())


def _explained(change: Change, order: dict[int, Array], confidence: float = 1.0) -> Explained:
    a, moved = change.a, 0
    for axis, indices in order.items():
        a = np.take(a, indices, axis=axis)
        moved += int(np.count_nonzero(indices != np.arange(indices.size)))
    axes = [axis for axis in order if change.a.ndim > 1] or [0]
    rest = change.on(a)
    reached = np.array_equal(rounded(a, change.dtype_b).astype(change.b.dtype), change.b)
    figures = {"axes": axes, "moved": moved}
    return Explained("permuted", figures, confidence, rest=None if reached else rest)


def _exact(a: Array, b: Array) -> dict[int, Array] | None:
    """By axis, which slice of a each slice of b is."""
    words = _words(a), _words(b)
    for axis in range(min(a.ndim, 3)):
        order = _sorted_alike(*(_keys(each, axis, ordered=True) for each in words))
        if order is not None:
            return {axis: order} if np.array_equal(np.take(a, order, axis=axis), b) else None
    if a.ndim != 2:
        return None
    orders = {axis: _sorted_alike(*(_keys(each, axis, ordered=False) for each in words)) for axis in (0, 1)}
    both = {axis: order for axis, order in orders.items() if order is not None}
    if len(both) < 2 or not np.array_equal(a[both[0]][:, both[1]], b):
        return None
    return both


def _words(numbers: Array) -> Array:
    bits = np.ascontiguousarray(numbers + 0.0)  # one zero only
    return bits.view(np.uint64 if bits.itemsize == 8 else np.uint32).astype(np.uint64) * _MIX


def _keys(words: Array, axis: int, *, ordered: bool) -> Array:
    """A number for each slice, the same for the same numbers, in the same order if it matters."""
    slices = np.moveaxis(words, axis, 0).reshape(words.shape[axis], -1)
    mixed = slices ^ (slices >> np.uint64(29))
    if ordered:
        places = np.arange(1, 2 * slices.shape[1], 2, dtype=np.uint64) * _MIX
        mixed = mixed * places
    else:
        mixed = mixed * _MIX
    return np.asarray((mixed ^ (mixed >> np.uint64(32))).sum(axis=1, dtype=np.uint64))


def _sorted_alike(one: Array, other: Array) -> Array | None:
    """Which of the first each of the others is, where they are the same in another order."""
    first, second = np.argsort(one, kind="stable"), np.argsort(other, kind="stable")
    if not np.array_equal(one[first], other[second]):
        return None
    order = np.empty(one.size, np.int64)
    order[second] = first
    return order


def _likest(a: Array, b: Array) -> dict[int, Array] | None:
    for axis in range(min(a.ndim, 2)):
        one, other = (_normed(np.moveaxis(each, axis, 0)) for each in (a, b))
        if not 1 < one.shape[0] <= _MOST or one.shape[1] < 16:
            continue
        likeness = np.abs(other @ one.T)
        order = np.argmax(likeness, axis=1)
        found = float(np.mean(likeness[np.arange(order.size), order]))
        is_order = np.unique(order).size == order.size and (order != np.arange(order.size)).any()
        if is_order and found > _LIKE and is_beyond_chance(found, one.size):
            return {axis: order}
    return None


def _normed(slices: Array) -> Array:
    flat = np.asarray(slices, np.float64).reshape(slices.shape[0], -1)
    flat = flat - flat.mean(axis=0, keepdims=True)
    lengths = np.linalg.norm(flat, axis=1, keepdims=True)
    return np.asarray(flat / np.where(lengths > 0, lengths, 1))
