"""JSON that people read, too: what fits on a line stays on it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

LINE = 100  # characters


def pretty(document: Any) -> str:
    """The document as JSON text; NaN and infinity, which JSON does not have, are an error."""
    return _pretty(document, "") + "\n"


def _pretty(value: Any, indent: str) -> str:
    line = json.dumps(value, allow_nan=False)
    if len(indent) + len(line) <= LINE or not isinstance(value, (Mapping, list, tuple)):
        return line
    inner = indent + "  "
    if isinstance(value, Mapping):
        items = [f"{json.dumps(key)}: {_pretty(item, inner)}" for key, item in value.items()]
        return "{\n" + ",\n".join(inner + item for item in items) + f"\n{indent}}}"
    return "[\n" + ",\n".join(inner + _pretty(item, inner) for item in value) + f"\n{indent}]"
