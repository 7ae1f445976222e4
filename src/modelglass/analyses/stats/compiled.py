"""The inner loops compiled by numba, once, and kept in its cache; they let other threads run meanwhile.

They do what `plain` does, in the same order. Extremes are found on the bits, which compare as integers:
that is several times faster than comparing floats, and finds NaN and infinities along the way.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ldexp
from typing import Any

import numba
import numpy as np

from modelglass.analyses.stats.layouts import Array
from modelglass.analyses.stats.plain import BLOCK, FAR, LANES

_ONE = np.uint32(1)

if getattr(numba.config, "DISABLE_JIT", False):  # as Python these loops would take for ever
    raise ImportError("numba is set not to compile")


def _compile(function: Callable[..., Any]) -> Any:
    try:
        return numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:  # no folder that numba could keep its cache in
        return numba.njit(nogil=True)(function)


def count_words(words: Array, table: Array) -> None:
    """Add each word to its place in the table, which has two rows to be added up."""
    whole = words.size * words.itemsize // 8 * 8 // words.itemsize
    if words[:whole].ctypes.data % 8:
        whole = 0
    if words.itemsize == 2:
        _count_shorts(words[:whole].view(np.uint64), table)
    else:
        _count_bytes(words[:whole].view(np.uint64), table)
    _count_one_by_one(words[whole:], table)


def fold_floats(floats: Array, shift: int, table: Array, blocks: Array, extremes: Array) -> None:
    """Count words shortened by `shift` bits, and describe each block of floats, as `plain` does."""
    bits, signed = floats.view(f"u{floats.itemsize}"), floats.view(f"i{floats.itemsize}")
    infinity = np.array([np.inf], floats.dtype).view(bits.dtype)[0]
    _fold(floats, bits, signed, bits.dtype.type(shift), infinity, table, blocks, extremes)


# The table has two rows, because adding to the same place twice in a row has to wait for the first addition.


@_compile
def _count_shorts(fours: Array, table: Array) -> None:
    mask = np.uint64(0xFFFF)
    for four in fours:
        table[0, four & mask] += _ONE
        table[1, (four >> np.uint64(16)) & mask] += _ONE
        table[0, (four >> np.uint64(32)) & mask] += _ONE
        table[1, four >> np.uint64(48)] += _ONE


@_compile
def _count_bytes(eights: Array, table: Array) -> None:
    mask = np.uint64(0xFF)
    for eight in eights:
        for place in range(0, 64, 16):
            table[0, (eight >> np.uint64(place)) & mask] += _ONE
            table[1, (eight >> np.uint64(place + 8)) & mask] += _ONE


@_compile
def _count_one_by_one(words: Array, table: Array) -> None:
    for word in words:
        table[0, word] += _ONE


@_compile
def _fold(
    floats: Array,
    bits: Array,
    signed: Array,
    shift: Any,
    infinity: Any,
    table: Array,
    blocks: Array,
    extremes: Array,
) -> None:
    sums, squares = np.zeros(LANES), np.zeros(LANES)
    patched = np.empty(BLOCK, floats.dtype)
    found = np.empty(2, bits.dtype)
    low_and_high = found.view(floats.dtype)
    for index in range(blocks.shape[0]):
        begin = index * BLOCK
        block = floats[begin : begin + BLOCK]
        words = bits[begin : begin + BLOCK]
        _count_shortened(words, shift, table)
        _find_extremes(words, signed[begin : begin + BLOCK], found)
        number, first = block.size, 0
        if found[0] & infinity == infinity or found[1] & infinity == infinity:
            number, first = _patch(block, patched)
            block = patched[: block.size]
            _find_extremes(block.view(bits.dtype), block.view(signed.dtype), found)
        blocks[index, :] = 0.0
        if number:
            low, high = np.float64(low_and_high[0]), np.float64(low_and_high[1])
            extremes[0] = min(extremes[0], low)
            extremes[1] = max(extremes[1], high)
            exponent = _scale_exponent(max(abs(low), abs(high)))
            _describe(block, np.float64(block[first]), exponent, number, sums, squares, blocks[index])


@_compile
def _count_shortened(words: Array, shift: Any, table: Array) -> None:
    half = words.size // 2
    for i in range(half):
        table[0, words[2 * i] >> shift] += _ONE
        table[1, words[2 * i + 1] >> shift] += _ONE
    if words.size % 2:
        table[0, words[-1] >> shift] += _ONE


@_compile
def _find_extremes(words: Array, signed: Array, found: Array) -> None:
    """The bits of the smallest and of the largest value; `signed` are the same words as signed integers.

    As unsigned numbers, the bits of floats rise from 0 to the largest float and then, from the sign bit on,
    once more from -0 to the smallest. NaN and infinities lie beyond all others on their side.
    """
    lowest, highest = words[0], words[0]
    smallest, largest = signed[0], signed[0]
    for i in range(words.size):
        lowest = min(lowest, words[i])
        highest = max(highest, words[i])
        largest = max(largest, signed[i])
        smallest = min(smallest, signed[i])
    found[:] = lowest  # the smallest positive, or the least negative
    if smallest < 0:
        found[0] = highest
    if largest >= 0:
        found[1] = largest


@_compile
def _patch(block: Array, patched: Array) -> tuple[int, int]:
    """Put the first finite value in the place of all that is not finite."""
    number, first = 0, -1
    for i in range(block.size):
        if np.isfinite(block[i]):
            number += 1
            if first < 0:
                first = i
    for i in range(block.size):
        patched[i] = block[i] if np.isfinite(block[i]) else block[max(first, 0)]
    return number, first


@_compile
def _scale_exponent(largest: float) -> int:
    if largest == 0.0 or 2.0**-FAR < largest < 2.0**FAR:
        return 0
    exponent = 0
    while largest >= 1.0:
        largest *= 0.5
        exponent += 1
    while largest < 0.5:
        largest *= 2.0
        exponent -= 1
    return max(exponent, -1000)


@_compile
def _describe(
    block: Array, pivot: float, exponent: int, number: int, sums: Array, squares: Array, row: Array
) -> None:
    scale = ldexp(1.0, -exponent)
    origin = pivot * scale
    sums[:] = 0.0
    squares[:] = 0.0
    whole = block.size - block.size % LANES
    for begin in range(0, whole, LANES):
        _add_lanes(block[begin : begin + LANES], scale, origin, sums, squares)
    for lane in range(block.size - whole):
        distance = np.float64(block[whole + lane]) * scale - origin
        sums[lane] += distance
        squares[lane] += distance * distance
    total, square = _sum_lanes(sums), _sum_lanes(squares)
    row[0] = number
    row[1] = origin
    row[2] = total / number
    row[3] = max(0.0, square - total * (total / number))
    row[4] = exponent


@_compile
def _add_lanes(values: Array, scale: float, origin: float, sums: Array, squares: Array) -> None:
    for lane in range(LANES):
        distance = np.float64(values[lane]) * scale - origin
        sums[lane] += distance
        squares[lane] += distance * distance


@_compile
def _sum_lanes(lanes: Array) -> Any:
    width = LANES // 2
    while width:
        for lane in range(width):
            lanes[lane] += lanes[lane + width]
        width //= 2
    return lanes[0]
