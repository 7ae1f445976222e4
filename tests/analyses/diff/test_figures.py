"""Figures of two arrays against float64 numpy, on every element type."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from modelglass.analyses.diff.figures import measure
from modelglass.analyses.diff.numbers import as_floats, rounded, rounding_steps

RNG = np.random.default_rng(0)
TYPES = {
    "float64": np.float64,
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
}


def of(numbers: Any, dtype: str) -> Any:
    made = np.asarray(numbers, np.float64).astype(TYPES[dtype])
    return as_floats(made.view(f"u{made.itemsize}"), dtype), made.astype(np.float64)


@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e25])
@pytest.mark.parametrize("dtype", TYPES)
def test_figures_are_those_of_float64(dtype: str, scale: float) -> None:
    if dtype not in ("float64", "float32", "bfloat16"):
        scale = 1.0
    numbers = RNG.normal(size=100_000) * scale
    a, a64 = of(numbers, dtype)
    b, b64 = of(numbers * (1 + 1e-3 * RNG.normal(size=numbers.size)), dtype)
    found = measure(a, b)
    d = b64 - a64
    assert found.changed == np.count_nonzero(d)
    if not found.changed:
        return
    apart = np.linalg.norm(d / scale) / np.linalg.norm(a64 / scale)
    assert found.relative_l2 == pytest.approx(apart, rel=1e-6)
    cosine = np.dot(a64 / scale, b64 / scale) / np.linalg.norm(a64 / scale) / np.linalg.norm(b64 / scale)
    assert found.cosine == pytest.approx(cosine, abs=1e-6)
    assert found.max_abs == pytest.approx(np.abs(d).max(), rel=1e-6)
    assert found.at is not None
    assert abs(d[found.at]) == pytest.approx(np.abs(d).max(), rel=1e-6)
    assert found.snr_db == pytest.approx(-20 * np.log10(found.relative_l2), abs=1e-4)


def test_what_is_not_finite_is_counted_and_left_out() -> None:
    a = RNG.normal(size=70_000).astype(np.float32)
    b = a.copy()
    b[3], b[69_999], b[5] = np.nan, np.inf, 9.0
    found = measure(a, b)
    assert (found.changed, found.nan_b, found.inf_b, found.nan_a) == (3, 1, 1, 0)
    assert found.at == 5
    assert found.max_abs == pytest.approx(9.0 - a[5])


@pytest.mark.parametrize("dtype", TYPES)
def test_rounding_is_that_of_the_type(dtype: str) -> None:
    numbers = np.concatenate([RNG.normal(size=5000), RNG.normal(size=500) * 2.0**-8])
    assert (rounded(numbers, dtype) == numbers.astype(TYPES[dtype]).astype(np.float64)).all()
    steps = rounding_steps(numbers, dtype)
    assert steps is not None
    assert (np.abs(rounded(numbers, dtype) - numbers) <= steps / 2).all()
