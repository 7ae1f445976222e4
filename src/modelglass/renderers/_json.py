"""JSON that people read, too: what fits on a line stays on it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from modelglass.renderers._escape import unspoken

LINE = 100  # characters
_encoded = json.JSONEncoder(allow_nan=False).encode  # made once: a document asks thousands of times
_LONGEST_INTEGER = 13_000  # bits; Python refuses to write much longer ones in decimal
ITEMS = LINE // 3  # so many never fit: each takes a character, a comma and a space


def pretty(document: Any) -> str:
    """The document as JSON text; NaN and infinity, which JSON does not have, are an error."""
    return unspoken(_pretty(document, "")) + "\n"


def _pretty(value: Any, indent: str) -> str:
    if not isinstance(value, (Mapping, list, tuple)):
        return _encoded(value)
    if len(value) < ITEMS:
        line = _encoded(value)
        if len(indent) + len(line) <= LINE:
            return line
    inner = indent + "  "
    if isinstance(value, Mapping):
        items = [f"{_encoded(key)}: {_pretty(item, inner)}" for key, item in value.items()]
        return "{\n" + ",\n".join(inner + item for item in items) + f"\n{indent}}}"
    return "[\n" + ",\n".join(inner + _pretty(item, inner) for item in value) + f"\n{indent}]"


def plain(value: Any) -> Any:
    """The value as JSON can hold it, each field of each noun included."""
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and value.bit_length() > _LONGEST_INTEGER:
        return hex(value)
    return value
