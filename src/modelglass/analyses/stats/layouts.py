"""What the stored bytes of each element type mean.

Every type is brought to unsigned words. Words of 8 and 16 bits are few enough to count one by one, so all
that is ever needed of them is a table of what each stands for. Wider types become the bits of a 32- or
64-bit float.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Doubles = NDArray[np.float64]

# Of a wide float, the census keeps the sign, the exponent and as much of the mantissa as bfloat16 has.
KEPT_MANTISSA_BITS = 7
RESOLUTION = 2.0**-KEPT_MANTISSA_BITS


@dataclass(frozen=True, eq=False)
class Layout:
    """How to get from stored elements to words, and from words to numbers."""

    words: Callable[[Array], Array]
    bits: int  # of a word
    table: Doubles | None = None  # what each word stands for; None: a word is the bits of a float
    smallest_normal: float = 0.0
    integer: bool = False
    magnitudes: bool = False
    per_element: int = 1  # values in one stored element

    @property
    def countable(self) -> bool:
        """Whether words are short enough to count every one of them."""
        return self.table is not None

    @property
    def shift(self) -> int:
        """By how many bits a word is shortened to be counted."""
        return {32: 23 - KEPT_MANTISSA_BITS, 64: 52 - KEPT_MANTISSA_BITS}.get(self.bits, 0)

    def decode(self, words: Array) -> Doubles:
        """The numbers that words stand for."""
        if self.table is not None:
            return self.table[words]
        with np.errstate(invalid="ignore"):  # numpy warns of some NaN
            return self._floats(words).astype(np.float64)

    def where(self, test: Callable[[Array], Array], words: Array) -> Array:
        """For which words their number passes a test, such as `numpy.isnan`."""
        return test(self._floats(words)) if self.table is None else test(self.table)[words]

    def nonzero(self, words: Array) -> Array:
        """Which words stand for anything but zero."""
        if self.table is None:
            return np.asarray(words << 1 != 0)
        marks = np.ones(words.shape, bool)
        for key in self.zero_keys:  # there are at most two, and comparing is faster than looking up
            marks &= words != key
        return marks

    def _floats(self, words: Array) -> Array:
        size = self.bits // 8
        return words.astype(f"u{size}", copy=False).view(f"f{size}")

    @cached_property
    def zero_keys(self) -> Array:
        """The keys under which zeros are counted, with denormals where words are shortened."""
        if self.table is not None:
            return np.flatnonzero(self.table == 0)
        return self._keys_with_exponent(0)

    @cached_property
    def strange_keys(self) -> Array:
        """The keys under which NaN and infinities are counted, and nothing else."""
        if self.table is not None:
            return np.flatnonzero(~np.isfinite(self.table))
        return self._keys_with_exponent(-1)

    def _keys_with_exponent(self, exponent: int) -> Array:
        """Shortened words of both signs with that exponent, counted from the end when negative."""
        keys = np.arange(1 << self.bits - self.shift).reshape(2, -1, 1 << KEPT_MANTISSA_BITS)
        return keys[:, exponent].ravel()


@cache
def layout_of(dtype: str) -> Layout | None:
    """The layout of an element type, or None for one whose bits are no numbers we know."""
    if dtype in _MINIFLOATS:
        return _minifloat(*_MINIFLOATS[dtype])
    if dtype in ("float16", "int8", "uint8", "int16", "uint16"):
        return _countable(np.dtype(dtype))
    if dtype in ("int32", "int64", "uint32", "uint64"):
        return _wide(np.float64, lambda raw: raw.view(dtype).astype(np.float64), integer=True)
    if dtype in _COMPLEX_PARTS:
        return _complex(np.dtype(_COMPLEX_PARTS[dtype]))
    return {
        "bool": _countable(np.dtype(np.uint8)),
        "float32": _wide(np.float32, lambda raw: raw),
        "float64": _wide(np.float64, lambda raw: raw),
        "float4_e2m1fn_x2": _two_in_a_byte(),
    }.get(dtype)


_COMPLEX_PARTS = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}

# exponent bits, mantissa bits, exponent bias, and which words are no finite numbers
_MINIFLOATS = {
    "bfloat16": (8, 7, 127, "ieee"),
    "float8_e4m3fn": (4, 3, 7, "all ones is nan"),
    "float8_e5m2": (5, 2, 15, "ieee"),
    "float8_e4m3fnuz": (4, 3, 8, "minus zero is nan"),
    "float8_e5m2fnuz": (5, 2, 16, "minus zero is nan"),
    "float8_e8m0fnu": (8, 0, 127, "power of two"),
}


def _minifloat(exponent_bits: int, mantissa_bits: int, bias: int, special: str) -> Layout:
    if special == "power of two":  # no sign, no mantissa, no zero
        powers = np.ldexp(1.0, np.arange(256) - bias)
        powers[255] = np.nan
        return _from_table(powers)
    exponents = np.arange(1 << exponent_bits)[:, None]
    fractions = np.arange(1 << mantissa_bits)[None, :] / (1 << mantissa_bits)
    normal = np.ldexp(1 + fractions, exponents - bias)
    denormal = np.ldexp(fractions, 1 - bias)
    positive = np.where(exponents == 0, denormal, normal)
    if special == "ieee":
        positive[-1] = np.nan
        positive[-1, 0] = np.inf
    if special == "all ones is nan":
        positive[-1, -1] = np.nan
    table = np.concatenate([positive.ravel(), -positive.ravel()])
    if special == "minus zero is nan":
        table[table.size // 2] = np.nan
    return _from_table(table, smallest_normal=float(np.ldexp(1.0, 1 - bias)))


def _from_table(table: Doubles, *, smallest_normal: float = 0.0, integer: bool = False) -> Layout:
    word = np.uint8 if table.size <= 256 else np.uint16
    return Layout(
        words=lambda raw: raw.view(word),
        bits=8 * np.dtype(word).itemsize,
        table=table,
        smallest_normal=smallest_normal,
        integer=integer,
    )


def _countable(dtype: np.dtype[Any]) -> Layout:
    """A type numpy itself has, with at most 16 bits."""
    every_word = np.arange(1 << 8 * dtype.itemsize, dtype=f"u{dtype.itemsize}")
    normal = float(np.finfo(dtype).smallest_normal) if dtype.kind == "f" else 0.0
    table = every_word.view(dtype).astype(np.float64)
    return _from_table(table, smallest_normal=normal, integer=dtype.kind != "f")


def _two_in_a_byte() -> Layout:
    """Four-bit floats, the first of each pair in the low half of its byte."""
    positive = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    table = np.concatenate([positive, -positive])

    def halves(raw: Array) -> Array:
        pairs = raw.view(np.uint8)
        return np.stack([pairs & 15, pairs >> 4], axis=-1).ravel()

    return Layout(words=halves, bits=4, table=table, smallest_normal=1.0, per_element=2)


def _wide(
    kind: type[np.floating[Any]],
    convert: Callable[[Array], Array],
    *,
    integer: bool = False,
    part: np.dtype[Any] | None = None,
) -> Layout:
    """Wide floats, or what converts to them; `part` is the type of each half of a complex number."""
    dtype = np.dtype(kind)
    word = np.dtype(f"u{dtype.itemsize}")
    return Layout(
        words=lambda raw: convert(raw).view(word),
        bits=8 * dtype.itemsize,
        smallest_normal=0.0 if integer else float(np.finfo(part or dtype).smallest_normal),
        integer=integer,
        magnitudes=part is not None,
    )


def _complex(part: np.dtype[Any]) -> Layout:
    def magnitudes(raw: Array) -> Doubles:
        with np.errstate(over="ignore", invalid="ignore"):
            parts = raw.view(part)
            found: Doubles = np.hypot(parts[0::2], parts[1::2], dtype=np.float64)
            return found

    return _wide(np.float64, magnitudes, part=part)
