"""Nouns as JSON and back, and the JSON Schema of it, all three read off the data types themselves.

A field that has its default value is left out of reports and comparisons, so that files stay small. Old files
stay readable when a field with a default is added. Removing or changing a field raises the version of that
document. What another modelglass wrote under the same version may have fields that are not known here.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import MISSING, Field, InitVar, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    NamedTuple,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from modelglass import report
from modelglass._version import __version__
from modelglass.errors import ReportFormatError

if TYPE_CHECKING:
    from modelglass.report import Comparison, Diff, Fit, Flow, Footprint, MemorySnapshot, Report, Scan, Unique

Document: TypeAlias = "Report | Comparison | Diff | Flow | Fit | Footprint | MemorySnapshot | Scan | Unique"
Noun = TypeVar("Noun")


class Format(NamedTuple):
    """A kind of document: a `brief` one leaves out defaults, an `open` one may have more than the noun."""

    name: str
    noun: str  # of `modelglass.report`
    version: int = 1
    brief: bool = False
    open: bool = False
    repeats: tuple[str, ...] = ()  # integers that follow from other fields, for those who only read JSON


FORMATS = (
    Format("modelglass-report", "Report", brief=True),
    Format("modelglass-comparison", "Comparison", brief=True),
    Format("modelglass-diff", "Diff"),
    Format("modelglass-flow", "Flow"),
    Format("modelglass-fit", "Fit", repeats=("margin_nbytes",)),
    Format("modelglass-footprint", "Footprint", repeats=("fits", "margin_nbytes")),
    Format("modelglass-scan", "Scan"),
    Format("modelglass-snapshot", "MemorySnapshot"),
    Format("modelglass-unique", "Unique", open=True),
)
_HEAD = ("format", "version", "modelglass")  # what each document begins with
_SCALARS = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}


def format_of(noun: object) -> Format | None:
    """The format that a noun is written in; None: it is not written."""
    return next((each for each in FORMATS if isinstance(noun, getattr(report, each.noun))), None)


def document_of(noun: Document) -> dict[str, Any]:
    """The noun as values that JSON has, under its format, its version and that of modelglass."""
    format = format_of(noun)
    if format is None:
        raise TypeError(f"{type(noun).__name__} has no format")
    return {
        **dict(zip(_HEAD, (format.name, format.version, __version__), strict=True)),
        **{name: getattr(noun, name) for name in format.repeats},
        **_encode(noun, brief=format.brief),
    }


def dumps(noun: Document, *, indent: int | None = 2) -> str:
    """The noun as JSON text, the same for the same noun."""
    return json.dumps(document_of(noun), indent=indent, ensure_ascii=True, allow_nan=False) + "\n"


def loads(text: str) -> Document:
    """The noun that was written, equal to it."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as cause:
        raise ReportFormatError(
            f"this is not JSON: {cause}", hint="pass a file that mg.save wrote"
        ) from cause
    name, version, written_by = _head_of(document)
    format = next((each for each in FORMATS if each.name == name), None)
    if format is None:
        raise ReportFormatError(
            "this JSON is not a modelglass document", hint="pass a file that mg.save wrote"
        )
    kind = format.noun.lower()
    if version != format.version:
        raise ReportFormatError(
            f"this {kind} has version {version!r}; this modelglass reads version {format.version}",
            hint="write it again, or install the modelglass that wrote it",
        )
    known = {key: item for key, item in document.items() if key not in (*_HEAD, *format.repeats)}
    tolerant = format.open or written_by not in (None, __version__)
    try:
        noun: Document = _decode(getattr(report, format.noun), known, tolerant)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as cause:
        raise ReportFormatError(
            f"this {kind} cannot be read: {cause}", hint="write it again with mg.save"
        ) from cause
    return noun


def _head_of(document: Any) -> tuple[Any, ...]:
    return tuple(document.get(key) if isinstance(document, dict) else None for key in _HEAD)


def to_json(noun: Any) -> Any:
    """Any noun of a report as values that JSON has."""
    return _encode(noun, brief=True)


def from_json(noun: type[Noun], value: Any) -> Noun:
    """The noun that `to_json` gave these values for."""
    found: Noun = _decode(noun, value, False)
    return found


def schemas() -> dict[str, dict[str, Any]]:
    """The JSON Schema of each format, by the name of its file."""
    return {f"{each.noun.lower()}-{each.version}.json": _schema_of_format(each) for each in FORMATS}


def _schema_of_format(format: Format) -> dict[str, Any]:
    definitions: dict[str, Any] = {}
    root = _schema_of_class(getattr(report, format.noun), definitions)
    head = {"const": format.name}, {"const": format.version}, {"type": "string"}
    repeated = {key: {"type": "integer"} for key in format.repeats}
    root["properties"] = dict(zip(_HEAD, head, strict=True)) | repeated | root["properties"]
    root["required"] = ["format", "version", *root["required"]]
    if format.open:
        for each in (root, *definitions.values()):
            each["additionalProperties"] = True
    return _headed(f"modelglass {format.noun.lower()}, version {format.version}", root, definitions)


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


def _encode(value: Any, *, brief: bool) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        encoded = {}
        for name, default in _defaults(value.__class__):
            item = getattr(value, name)
            if not brief or default is MISSING or item != default:
                encoded[name] = _encode(item, brief=brief)
        return encoded
    if isinstance(value, Mapping):
        return {key: _encode(item, brief=brief) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_encode(item, brief=brief) for item in value]
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


def _decode(hint: Any, value: Any, tolerant: bool) -> Any:
    if isinstance(hint, InitVar):  # the name that a field had first
        hint = hint.type
    if is_dataclass(hint):
        hints = _hints(hint)  # type: ignore[arg-type]
        unknown = value.keys() - hints.keys()
        if unknown and not tolerant:
            raise ValueError(f"unknown fields {sorted(unknown)}")
        found = {key: _decode(hints[key], item, tolerant) for key, item in value.items() if key in hints}
        return hint(**found)  # type: ignore[operator]
    origin = get_origin(hint)
    if origin is tuple:
        item_hint = get_args(hint)[0]
        return tuple(_decode(item_hint, item, tolerant) for item in value)
    if origin is Mapping:
        key_hint, item_hint = get_args(hint)  # JSON's keys are texts, ours may be numbers
        return {key_hint(key): _decode(item_hint, item, tolerant) for key, item in value.items()}
    if origin in (Union, UnionType):
        if value is None:
            return None
        return _decode(next(arg for arg in get_args(hint) if arg is not NoneType), value, tolerant)
    if origin is Literal and value not in get_args(hint):
        raise ValueError(f"{value!r} is not one of {get_args(hint)}")
    if hint in _SCALARS and type(value) is not hint and not (hint is float and type(value) is int):
        raise ValueError(f"{value!r} is not of type {hint.__name__}")
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
