"""Data classes that begin with the fields of another one."""

from __future__ import annotations

from dataclasses import fields
from typing import Any


def fields_of(kind: Any, source: object) -> dict[str, Any]:
    """The fields of a data class by name, with the values that an object has for them."""
    return {field.name: getattr(source, field.name) for field in fields(kind)}
