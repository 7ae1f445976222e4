"""JSON that people read, too: what fits on a line stays on it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from modelglass.renderers._escape import unspoken

LINE = 100  # characters
_encoded = json.JSONEncoder(allow_nan=False).encode  # made once: a document asks thousands of times
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
