"""Models that carry a description of the picture they take, as those of timm do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_DESCRIPTIONS = ("pretrained_cfg", "default_cfg")
_SIZE = "input_size"  # channels, height and width


def picture(native: Any) -> Any:
    """A batch of pictures in the size that a model says it takes; None where it says nothing of the kind."""
    size = next((found for name in _DESCRIPTIONS if (found := _size_in(_describe(native, name)))), None)
    if size is None:
        return None
    from modelglass.configs.examples.facts import BATCH
    from modelglass.configs.examples.values import float_dtype, floats

    return floats((BATCH, *size), float_dtype(native))


def _describe(native: Any, name: str) -> Any:
    return vars(native).get(name, getattr(type(native), name, None))


def _size_in(description: Any) -> tuple[int, ...] | None:
    is_table = isinstance(description, Mapping)
    found = description.get(_SIZE) if is_table else getattr(description, _SIZE, None)
    if not isinstance(found, (list, tuple)) or len(found) != 3:
        return None
    is_size = all(isinstance(each, int) and not isinstance(each, bool) and each > 0 for each in found)
    return tuple(found) if is_size else None
