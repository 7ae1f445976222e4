"""Stored elements as floats that numpy computes with."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modelglass.analyses.stats.layouts import layout_of
from modelglass.report import Values

Array = NDArray[Any]

# Bits of a significand with the hidden one, and the exponent of the smallest normal number.
_PRECISION = {
    "float64": (53, -1022),
    "float32": (24, -126),
    "float16": (11, -14),
    "bfloat16": (8, -126),
    "float8_e4m3fn": (4, -6),
    "float8_e5m2": (3, -14),
    "float8_e4m3fnuz": (4, -7),
    "float8_e5m2fnuz": (3, -15),
}


def is_known(dtype: str) -> bool:
    """Whether elements of that type are numbers, one each."""
    layout = layout_of(dtype)
    return layout is not None and layout.per_element == 1 and not layout.magnitudes


def floats(values: Values, start: int, stop: int) -> Array:
    """The elements as floats of 32 bits, or of 64 where those cannot hold them."""
    return as_floats(values.read(start, stop), values.dtype)


def as_floats(raw: Array, dtype: str) -> Array:
    """The same for elements that were read."""
    if dtype == "bfloat16":
        words = raw.view(np.uint16)
        found = np.empty(words.shape, np.uint32)
        np.left_shift(words, 16, out=found, dtype=np.uint32, casting="unsafe")
        return found.view(np.float32)
    if dtype in ("float32", "float64"):
        return raw.view(dtype)
    if dtype == "float16":
        return raw.view(np.float16).astype(np.float32)
    if raw.dtype.itemsize == 1:
        table: Array = _table(dtype)[raw.view(np.uint8)]
        return table
    return raw.view(dtype).astype(np.float64)  # integers


@cache
def _table(dtype: str) -> Array:
    """What each byte stands for."""
    layout = layout_of(dtype)
    assert layout is not None
    return layout.decode(np.arange(256, dtype=np.uint8)).astype(np.float32)


def rounding_steps(numbers: Array, dtype: str) -> Array | None:
    """How far apart the type's numbers are at these; None: it is not a floating type that we know."""
    known = _PRECISION.get(dtype)
    if known is None:
        return None
    bits, smallest = known
    exponents = np.frexp(np.asarray(numbers, np.float64))[1] - 1
    return np.asarray(np.ldexp(1.0, np.maximum(exponents, smallest) - bits + 1))


def rounded(numbers: Array, dtype: str) -> Array:
    """The nearest numbers that the type has, halves to even; what is too large stays."""
    steps = rounding_steps(numbers, dtype)
    wide = np.asarray(numbers, np.float64)
    return wide if steps is None else np.rint(wide / steps) * steps
