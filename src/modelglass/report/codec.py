"""Reports as JSON and back, and the JSON Schema of it, all three read off the data types themselves.

A field that has its default value is left out, so that files stay small and old files stay readable when
a field with a default is added. Removing or changing a field raises `VERSION`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

from modelglass import report
from modelglass.errors import ReportFormatError
from modelglass.report.comparison import Comparison
from modelglass.report.report import Report

VERSION = 1
FORMAT = "modelglass-report"
COMPARISON = "modelglass-comparison"

Document: TypeAlias = Report | Comparison
Noun = TypeVar("Noun")
_FORMATS: dict[str, type[Document]] = {FORMAT: Report, COMPARISON: Comparison}

_SCALARS = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}


def dumps(report: Document, *, indent: int | None = 2) -> str:
    """The report as JSON text, the same for the same report."""
    format = next(name for name, noun in _FORMATS.items() if isinstance(report, noun))
    document = {"format": format, "version": VERSION, **_encode(report)}
    return json.dumps(document, indent=indent, ensure_ascii=True, allow_nan=False) + "\n"


def loads(text: str) -> Document:
    """The report that `dumps` wrote, equal to it."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as cause:
        raise ReportFormatError(
            f"this is not JSON: {cause}", hint="pass a file that mg.save wrote"
        ) from cause
    noun = _FORMATS.get(str(document.pop("format", None))) if isinstance(document, dict) else None
    if noun is None:
        raise ReportFormatError("this JSON is not a modelglass report", hint="pass a file that mg.save wrote")
    version = document.pop("version", None)
    if version != VERSION:
        raise ReportFormatError(
            f"this report has version {version!r}; this modelglass reads version {VERSION}",
            hint="write it again, or install the modelglass that wrote it",
        )
    try:
        report: Document = _decode(noun, document)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as cause:
        raise ReportFormatError(
            f"this report cannot be read: {cause}", hint="write it again with mg.save"
        ) from cause
    return report


def to_json(noun: Any) -> Any:
    """Any noun of a report as values that JSON has."""
    return _encode(noun)


def from_json(noun: type[Noun], value: Any) -> Noun:
    """The noun that `to_json` gave these values for."""
    found: Noun = _decode(noun, value)
    return found


def schema() -> dict[str, Any]:
    """The JSON Schema of a saved report."""
    return noun_schema(Report, f"modelglass report, version {VERSION}", format=FORMAT, version=VERSION)


def noun_schema(noun: type, title: str, *, format: str, version: int) -> dict[str, Any]:
    """The JSON Schema of a noun's fields under a format and its version."""
    definitions: dict[str, Any] = {}
    root = dict(_schema_of_class(noun, definitions))
    root["properties"] = {
        "format": {"const": format},
        "version": {"const": version},
        **root["properties"],
    }
    root["required"] = ["format", "version", *root["required"]]
    return _headed(title, root, definitions)


def document_schema(document: type, title: str) -> dict[str, Any]:
    """The JSON Schema of a document that a `TypedDict` describes; it may hold more than that."""
    definitions: dict[str, Any] = {}
    return _headed(title, _schema_of_document(document, definitions), definitions)


def _headed(title: str, root: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **root,
        "$defs": dict(sorted(definitions.items())),
    }


def _encode(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        encoded = {}
        for name, default in _defaults(value.__class__):
            item = getattr(value, name)
            if default is MISSING or item != default:
                encoded[name] = _encode(item)
        return encoded
    if isinstance(value, Mapping):
        return {key: _encode(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_encode(item) for item in value]
    return value


@cache
def _defaults(cls: type) -> tuple[tuple[str, Any], ...]:
    return tuple((item.name, _default(item)) for item in fields(cls))


def _default(item: Field[Any]) -> Any:
    return item.default if item.default_factory is MISSING else item.default_factory()


@cache
def _hints(cls: type) -> dict[str, Any]:
    # Files of nouns name each other's only for type checkers, so all of them are offered here.
    nouns = {name: getattr(report, name) for name in report.__all__}
    own = vars(sys.modules[cls.__module__])
    return get_type_hints(cls, globalns={**nouns, **own})


def _decode(hint: Any, value: Any) -> Any:
    if is_dataclass(hint):
        hints = _hints(hint)  # type: ignore[arg-type]
        unknown = value.keys() - hints.keys()
        if unknown:
            raise ValueError(f"unknown fields {sorted(unknown)}")
        return hint(**{key: _decode(hints[key], item) for key, item in value.items()})  # type: ignore[operator]
    origin = get_origin(hint)
    if origin is tuple:
        item_hint = get_args(hint)[0]
        return tuple(_decode(item_hint, item) for item in value)
    if origin is Mapping:
        key_hint, item_hint = get_args(hint)  # JSON's keys are texts, ours may be numbers
        return {key_hint(key): _decode(item_hint, item) for key, item in value.items()}
    if origin in (Union, UnionType):
        if value is None:
            return None
        return _decode(next(arg for arg in get_args(hint) if arg is not NoneType), value)
    if origin is Literal and value not in get_args(hint):
        raise ValueError(f"{value!r} is none of {get_args(hint)}")
    if hint in _SCALARS and type(value) is not hint and not (hint is float and type(value) is int):
        raise ValueError(f"{value!r} is no {hint.__name__}")
    return value


def _schema_of(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    origin = get_origin(hint)
    if is_dataclass(hint) or is_typeddict(hint):
        name = hint.__name__  # type: ignore[union-attr]
        if name not in definitions:
            definitions[name] = {}  # claims the name before the fields are walked
            describe = _schema_of_document if is_typeddict(hint) else _schema_of_class
            definitions[name] = describe(hint, definitions)  # type: ignore[arg-type]
        return {"$ref": f"#/$defs/{name}"}
    if origin in (tuple, list):
        return {"type": "array", "items": _schema_of(get_args(hint)[0], definitions)}
    if origin in (Mapping, dict):
        return {
            "type": "object",
            "additionalProperties": _schema_of(get_args(hint)[1], definitions),
        }
    if origin in (Union, UnionType):
        return {"anyOf": [_schema_of(arg, definitions) for arg in get_args(hint)]}
    if origin is Literal:
        return {"enum": list(get_args(hint))}
    return {"type": _SCALARS[hint]} if hint in _SCALARS else {}


def _schema_of_class(cls: type, definitions: dict[str, Any]) -> dict[str, Any]:
    hints = _hints(cls)
    return {
        "type": "object",
        "description": (cls.__doc__ or "").strip().splitlines()[0],
        "properties": {name: _schema_of(hints[name], definitions) for name, _ in _defaults(cls)},
        "required": [name for name, default in _defaults(cls) if default is MISSING],
        "additionalProperties": False,
    }


def _schema_of_document(document: type, definitions: dict[str, Any]) -> dict[str, Any]:
    hints = _hints(document)
    return {
        "type": "object",
        "description": (document.__doc__ or "").strip().splitlines()[0],
        "properties": {name: _schema_of(hint, definitions) for name, hint in hints.items()},
        "required": [name for name in hints if name in document.__required_keys__],  # type: ignore[attr-defined]
    }
