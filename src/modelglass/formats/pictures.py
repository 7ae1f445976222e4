"""Pictures as arrays, by Pillow where that is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from modelglass.errors import MissingPackageError, NotAModelError


def read_picture(path: Path) -> Any:
    """Numbers of numpy's float32 from 0 to 1: one picture, red, green and blue, rows, columns."""
    try:
        import numpy as np
        from PIL import Image, UnidentifiedImageError
    except ModuleNotFoundError as cause:
        package = "pillow" if cause.name == "PIL" else "numpy"
        raise MissingPackageError(
            package, wanted_by="a picture as an input", hint=f"pip install {package}"
        ) from cause
    try:
        with Image.open(path) as picture:
            pixels = np.asarray(picture.convert("RGB"), dtype=np.float32)
    except (OSError, ValueError, UnidentifiedImageError, Image.DecompressionBombError) as cause:
        reason = getattr(cause, "strerror", None) or "its pixels cannot be read"
        raise NotAModelError(
            f"it is not a picture: {reason}", file=str(path), code="not-a-picture", hint="check the file"
        ) from cause
    return np.ascontiguousarray(pixels.transpose(2, 0, 1)[None]) / np.float32(255)
