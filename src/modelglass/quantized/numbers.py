"""The arithmetic of weights that were quantized in groups, a bounded number of them at a time."""

from __future__ import annotations

from functools import cache
from math import gcd
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from modelglass.report import Values

if TYPE_CHECKING:
    from modelglass.quantized import Parts

Array = NDArray[Any]
Floats = NDArray[np.float32]

PIECE = 1 << 18  # weights that are computed at once
LARGEST = np.float32(448 * 6)  # the largest product of an e4m3 and an e2m1: what a global scale stands for


def read(parts: Parts, start: int, stop: int) -> Array:
    """The weights from `start` to `stop`, in row-major order; only their groups are read."""
    found = np.empty(stop - start, np.float32)
    group, step = parts.group, PIECE // parts.group
    end = -(-stop // group)
    for first in range(start // group, end, step):
        last = min(first + step, end)
        low, high = max(start, first * group), min(stop, last * group)
        numbers = _numbers(parts, first, last)
        found[low - start : high - start] = numbers[low - first * group : high - first * group]
    return found


def _numbers(parts: Parts, first: int, last: int) -> Floats:
    """The weights of some groups, one after the other."""
    bits = parts.scheme.bits
    words = bits * parts.group // 32  # a group ends where a word does, at every width
    fields = _fields(parts.weight.read(words * first, words * last), bits)
    elements = parts.scheme.elements
    numbers: Floats = fields.astype(np.float32) if elements == "integers" else _TABLES[elements]()[fields]
    groups = numbers.reshape(-1, parts.group)
    with np.errstate(invalid="ignore", over="ignore"):  # scales may be infinite or no number
        groups *= _scales(parts, first, last)[:, None]
        if parts.biases is not None:
            groups += _floats(parts.biases, first, last)[:, None]
    return numbers


def _fields(words: Array, bits: int) -> Array:
    """Numbers of so many bits, one after the other from the lowest bit of the first word on."""
    raw: Array = np.ascontiguousarray(words).view(np.uint32).astype("<u4", copy=False).view(np.uint8)
    if bits == 8:
        return raw
    run = bits // gcd(bits, 8)  # bytes after which a number ends where a byte does
    width = {1: 1, 3: 4, 5: 8}[run]
    if run != width:
        runs = np.zeros((len(raw) // run, width), np.uint8)
        runs[:, :run] = raw.reshape(-1, run)
        raw = runs.view(f"<u{width}")
    shifts = np.arange(0, 8 * run, bits, dtype=raw.dtype)
    fields: Array = raw.reshape(-1, 1) >> shifts & raw.dtype.type((1 << bits) - 1)
    return fields.astype(np.uint8, copy=False).reshape(-1)


def _scales(parts: Parts, first: int, last: int) -> Floats:
    kind = parts.scheme.scales
    if kind == "floats":
        return _floats(parts.scales, first, last)
    scales: Floats = _TABLES[kind]()[parts.scales.read(first, last).view(np.uint8)]
    if parts.global_scale is not None and first < last:
        scales = scales * _global(parts, parts.global_scale, first, last)
    return scales


def _global(parts: Parts, global_scale: Values, first: int, last: int) -> Floats:
    """The factor of each group that comes from the scale of all of them, or of those of an outer slice."""
    each = parts.scales.numel // global_scale.numel  # groups that have one
    low, high = first // each, (last - 1) // each + 1
    factors = _floats(global_scale, low, high) / LARGEST
    found: Floats = factors[np.arange(first, last) // each - low]
    return found


def _floats(values: Values, start: int, stop: int) -> Floats:
    raw: Array = values.read(start, stop)
    if values.dtype == "bfloat16":  # which are the upper halves of 32-bit floats
        return (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return raw.view(values.dtype).astype(np.float32, copy=False)


@cache
def _e2m1() -> Floats:
    """What a sign, two bits of exponent and one of mantissa stand for."""
    positive = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
    return np.concatenate([positive, -positive])


@cache
def _e4m3() -> Floats:
    """What a sign, four bits of exponent and three of mantissa stand for; the last is not a number."""
    words = np.arange(128)
    exponents, fractions = words >> 3, (words & 7) / 8
    positive = np.where(exponents == 0, np.ldexp(fractions, -6), np.ldexp(1 + fractions, exponents - 7))
    positive[127] = np.nan
    return np.concatenate([positive, -positive]).astype(np.float32)


@cache
def _e8m0() -> Floats:
    """Powers of two; the last is infinite, as MLX has it."""
    return np.append(np.ldexp(1.0, np.arange(255) - 127), np.inf).astype(np.float32)


_TABLES = {"e2m1": _e2m1, "e4m3": _e4m3, "e8m0": _e8m0}
