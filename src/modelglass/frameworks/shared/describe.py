"""Values of any framework in neutral terms: structures by their leaves, settings as JSON, the rest as text.

What belongs to one framework (its arrays, its types of numbers) comes from a function that the framework's
own adapter passes in, so nothing here has heard of any of them.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import cache, partial
from pathlib import PurePath
from types import SimpleNamespace
from typing import Any, TypeVar
from uuid import UUID

from modelglass.report import Json

NameSetting = Callable[[Any], str | None]  # the name of a framework's own value; None for any other
T = TypeVar("T")

_PLAIN = frozenset({bool, int, str, type(None)})  # JSON as they are
TEXT_LIMIT = 80  # characters of a value that are worth showing
TEXTUAL = (date, time, timedelta, Decimal, Fraction, PurePath, range, UUID)  # settings that are their text
RECORD_LIMIT = 16  # fields; an object with more configures a whole model
DEPTH_LIMIT = 8  # structures deeper than this are named, not walked
CONFIG_ITEMS = 64  # a longer list or dict in a module's attributes is data, not configuration


def type_name(cls: type) -> str:
    """The class with the module it comes from, as one would import it."""
    return f"{cls.__module__}.{cls.__qualname__}"


def join_path(path: str, name: str) -> str:
    """`name` below `path`; the root's path is empty."""
    return f"{path}.{name}" if path else name


def json_safe(value: Any, name_setting: NameSetting, depth: int = 0) -> Json:
    """The value as JSON, an unknown type as its name: never an address, never an array's contents."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(value)
    if isinstance(value, complex):
        return str(value)
    text = name_setting(value)
    if text is not None:
        return text
    if depth < DEPTH_LIMIT:
        if isinstance(value, (tuple, list)):
            return [json_safe(item, name_setting, depth + 1) for item in value]
        if isinstance(value, (set, frozenset)):
            return sorted((json_safe(item, name_setting, depth + 1) for item in value), key=repr)
        if isinstance(value, partial):
            return [
                json_safe(part, name_setting, depth + 1) for part in (value.func, *value.args, value.keywords)
            ]
        parts = value if isinstance(value, Mapping) else record_of(value)
        if parts is not None:
            return {str(key): json_safe(item, name_setting, depth + 1) for key, item in parts.items()}
    if isinstance(value, TEXTUAL):
        return str(value)
    if is_numpy_scalar(value):
        return json_safe(value.item(), name_setting)
    if isinstance(value, type):
        return type_name(value)
    name = getattr(value, "__name__", None)  # functions, operators, modules of code
    return name if isinstance(name, str) else type_name(type(value))


def text_of(value: Any, name_setting: NameSetting) -> str:
    """Anything but an array, in a few characters: numbers and settings as they are, objects by type."""
    if value is None or isinstance(value, (bool, int, float, complex, str, slice)):
        text = repr(value)
    else:
        text = name_setting(value) or type(value).__name__
    return text if len(text) <= TEXT_LIMIT else text[: TEXT_LIMIT - 1] + "…"


def record_of(value: Any) -> Mapping[str, Any] | None:
    """The fields of a small dataclass or namespace; a large one is not a setting of a module."""
    if isinstance(value, SimpleNamespace):
        return vars(value) if len(vars(value)) <= RECORD_LIMIT else None
    if not is_dataclass(value) or isinstance(value, type) or len(fields(value)) > RECORD_LIMIT:
        return None
    return {item.name: getattr(value, item.name, None) for item in fields(value)}


def is_numpy_scalar(value: Any) -> bool:
    """Whether this is one number of numpy's, which need not be installed."""
    return type(value).__module__ == "numpy" and getattr(value, "shape", None) == ()


def leaves(
    value: Any, name: str, is_leaf: Callable[[Any], bool], depth: int = 0
) -> Iterator[tuple[str, Any]]:
    """Every leaf of a structure, in order, with the way to it."""
    parts = parts_of(value) if depth < DEPTH_LIMIT and not is_leaf(value) else None
    if parts is None:
        yield name, value
        return
    for key, item in parts:
        yield from leaves(item, f"{name}.{key}" if name else str(key), is_leaf, depth + 1)


def instances_in(value: Any, cls: type[T], depth: int = 0) -> Iterator[T]:
    """Every value of that class in a structure, in order."""
    if isinstance(value, cls):
        yield value
    elif depth < DEPTH_LIMIT:
        for _, item in parts_of(value) or ():
            yield from instances_in(item, cls, depth + 1)


def parts_of(value: Any) -> Iterable[tuple[Any, Any]] | None:
    """What a structure holds, or None for a leaf."""
    if isinstance(value, Mapping):
        return value.items()
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return zip(value._fields, value, strict=True)
    if isinstance(value, (tuple, list)):
        return enumerate(value)
    if is_dataclass(value) and not isinstance(value, type):
        return [(item.name, getattr(value, item.name, None)) for item in fields(value)]
    return None


def settings_of(
    attributes: Iterable[tuple[str, Any]],
    wanted: Collection[str],
    plain: tuple[type, ...],
    arrays: type | tuple[type, ...],
    name_setting: NameSetting,
) -> dict[str, Json]:
    """Constructor-style settings among an object's attributes.

    `wanted` are the names that its constructor has: those are settings whatever they hold, save `arrays`;
    any other attribute is one when it is plain through and through.
    """
    return {
        key: json_safe(value, name_setting)
        for key, value in attributes
        if is_plain(value, plain) or (key in wanted and not isinstance(value, arrays))
    }


@cache
def constructor_names(cls: type) -> tuple[str, ...]:
    """The arguments that a class is made with, in order, as far as it names them."""
    try:
        signature = inspect.signature(cls.__init__)  # type: ignore[misc]
    except (TypeError, ValueError):  # a constructor written in C has no signature
        return ()
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return tuple(p.name for p in signature.parameters.values() if p.kind in named and p.name != "self")


def is_plain(value: Any, plain: tuple[type, ...], depth: int = 0) -> bool:
    """Whether a value is a setting by itself: a number, a text, or a short collection of such."""
    if value is None or isinstance(value, (_SETTINGS, plain)) or is_numpy_scalar(value):
        return True
    parts: Any = record_of(value) or value
    if not isinstance(parts, (tuple, list, set, frozenset, dict)) or depth > 2 or len(parts) > CONFIG_ITEMS:
        return False
    items = (*parts, *parts.values()) if isinstance(parts, dict) else parts
    return all(is_plain(item, plain, depth + 1) for item in items)


_SETTINGS = (bool, int, float, str, Enum, *TEXTUAL)
