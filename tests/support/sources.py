"""Values to take statistics of, read from arrays as the engine wants them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from modelglass.analyses.stats.engine import describe
from modelglass.report import TensorStats, Values

# Every element type with the numpy type that has its bytes.
DTYPES: dict[str, Any] = {
    "bool": np.bool_,
    "int8": np.int8,
    "uint8": np.uint8,
    "int16": np.int16,
    "uint16": np.uint16,
    "int32": np.int32,
    "uint32": np.uint32,
    "int64": np.int64,
    "uint64": np.uint64,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float32": np.float32,
    "float64": np.float64,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "float8_e5m2": ml_dtypes.float8_e5m2,
    "float8_e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "float8_e8m0fnu": ml_dtypes.float8_e8m0fnu,
    "complex64": np.complex64,
    "complex128": np.complex128,
}


def source(array: Any, dtype: str | None = None, **more: Any) -> Values:
    """The array as a source; `dtype` where numpy has no name for it."""
    flat = np.ascontiguousarray(array).reshape(-1)
    words = flat.view(f"u{flat.itemsize}") if flat.dtype.kind == "V" else flat
    name = dtype or str(flat.dtype)
    return Values(dtype=name, shape=np.shape(array), read=lambda start, stop: words[start:stop], **more)


def stats_of(array: Any, dtype: str | None = None, **more: Any) -> TensorStats:
    return describe({"x": source(array, dtype)}, **more)["x"]


def as_doubles(array: Any) -> np.ndarray[Any, Any]:
    """The numbers themselves, complex ones by magnitude."""
    flat = np.asarray(array).reshape(-1)
    if flat.dtype.kind == "c":
        return np.hypot(flat.real.astype(np.float64), flat.imag.astype(np.float64))
    with np.errstate(invalid="ignore"):
        return flat.astype(np.float64)
