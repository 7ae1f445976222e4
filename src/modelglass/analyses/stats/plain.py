"""The inner loops in numpy: the same results, to the bit, as the compiled ones.

To that end both add in the same order. A block's values, less its first finite one (the pivot), are added
in `LANES` columns, which are then added by halves.
"""

from __future__ import annotations

from math import ldexp

import numpy as np

from modelglass.analyses.stats.layouts import Array

LANES = 128
BLOCK = 128 * LANES  # few enough to stay in a core's cache, and to keep differences from the pivot exact
# Values beyond 2**450 or below 2**-450 are scaled: their squares, summed over any tensor, would leave the
# range of a double.
FAR = 450
_SLICE = 1 << 18  # words counted at once: numpy makes a 64-bit copy of them


def count_words(words: Array, table: Array) -> None:
    """Add each word to its place in the table, which has two rows to be added up."""
    for start in range(0, words.size, _SLICE):
        counts = np.bincount(words[start : start + _SLICE], minlength=table.shape[1])
        table[0] += counts.astype(table.dtype)


def fold_floats(floats: Array, shift: int, table: Array, blocks: Array, extremes: Array) -> None:
    """Count words shortened by `shift` bits, and describe each block of floats.

    A row of `blocks` is what `Moments` says of a block's finite values: their number, the pivot, the distance
    of their mean from it, the sum of squared distances from the mean, the exponent by which these are scaled.
    `extremes` are the smallest and largest finite value.
    """
    words = floats.view(f"u{floats.itemsize}")
    for start in range(0, words.size, _SLICE):
        count_words((words[start : start + _SLICE] >> shift).astype(np.uint32), table)
    for index, begin in enumerate(range(0, floats.size, BLOCK)):
        _describe(floats[begin : begin + BLOCK], blocks[index], extremes)


def _describe(block: Array, row: Array, extremes: Array) -> None:
    finite = np.isfinite(block)
    number = int(np.count_nonzero(finite))
    row[:] = 0.0
    if number == 0:
        return
    pivot = block[int(np.argmax(finite))]
    values = block if number == block.size else np.where(finite, block, pivot)
    low, high = float(values.min()), float(values.max())
    extremes[0] = min(extremes[0], low)
    extremes[1] = max(extremes[1], high)
    exponent = _scale_exponent(max(abs(low), abs(high)))
    scale = ldexp(1.0, -exponent)
    padded = np.full(-(-block.size // LANES) * LANES, np.float64(pivot))
    padded[: block.size] = values
    distances = (padded * scale - np.float64(pivot) * scale).reshape(-1, LANES)
    total = _sum_lanes(distances.sum(axis=0))
    squares = _sum_lanes((distances * distances).sum(axis=0))
    row[0] = number
    row[1] = np.float64(pivot) * scale
    row[2] = total / number
    row[3] = max(0.0, squares - total * (total / number))
    row[4] = exponent


def _scale_exponent(largest: float) -> int:
    """The power of two to divide by so that squares neither overflow nor vanish; 0 for usual values."""
    if largest == 0.0 or 2.0**-FAR < largest < 2.0**FAR:
        return 0
    return int(max(np.frexp(largest)[1], -1000))


def _sum_lanes(lanes: Array) -> float:
    width = LANES // 2
    while width:
        lanes[:width] += lanes[width : 2 * width]
        width //= 2
    return float(lanes[0])
