"""Every bad file that is tested, by the row it belongs to."""

from __future__ import annotations

from hostile import (
    gguf_files,
    legacy,
    numpy_files,
    onnx_files,
    raw_pickles,
    safetensors_files,
    sidecars,
    torch_files,
    views,
)
from hostile.case import Case

__all__ = ["CASES", "Case"]

CASES: list[Case] = sorted(
    (
        *torch_files.CASES,
        *raw_pickles.CASES,
        *legacy.CASES,
        *safetensors_files.CASES,
        *gguf_files.CASES,
        *onnx_files.CASES,
        *numpy_files.CASES,
        *sidecars.CASES,
        *views.CASES,
    ),
    key=lambda case: case.row,
)
