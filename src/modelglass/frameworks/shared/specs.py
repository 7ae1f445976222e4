"""Descriptions of inputs, as the command line has them: `1x3x224x224`, `scale=0.5`, `feats=[1x8,1x4]`."""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any, ClassVar

from modelglass.errors import UsageError
from modelglass.report import Shape
from modelglass.report.dtypes import full_dtype_name

PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".bmp")
ARRAYS = (".npy", ".npz", ".safetensors", ".pt", ".pth")
_SHAPE = re.compile(r"(scalar|\d+(?:[x×]\d+)*)(?::(\w+))?", re.IGNORECASE)
_WHOLE = re.compile(r"[+-]\d+")  # without a sign it is a size
_FRACTION = re.compile(r"[+-]?(?:(?:\d+\.\d*|\.\d+)(?:e[+-]?\d+)?|\d+e[+-]?\d+|inf|nan)", re.IGNORECASE)
_WORDS = {"true": True, "false": False, "none": None}
_BARE = re.compile(r"[A-Za-z_][\w .-]*")
_BRACKETS = {"[": "]", "(": ")"}


class InputSpec:
    """One input. `name` is the keyword it is passed by, or None for a positional argument."""

    name: str | None


@dataclass(frozen=True)
class TensorSpec(InputSpec):
    """An input to be made: its full shape, and its element type where specified."""

    shape: Shape
    dtype: str | None = None
    name: str | None = None


@dataclass(frozen=True)
class ValueSpec(InputSpec):
    """An input that is there: a number, a text, whatever code returned."""

    value: Any
    name: str | None = None


@dataclass(frozen=True)
class SeveralSpec(InputSpec):
    """A list or a tuple of inputs."""

    items: tuple[InputSpec, ...]
    is_list: bool
    name: str | None = None


@dataclass(frozen=True)
class FileSpec(InputSpec):
    """What a file holds: a picture, or arrays."""

    path: str
    name: str | None = None


@dataclass(frozen=True)
class CodeSpec(InputSpec):
    """What a function returns: `file.py::function`."""

    code: str
    name: str | None = None

    mark: ClassVar = "@"


def parse_spec(text: str) -> InputSpec:
    """Read `[name=]value`.

    >>> parse_spec("mask=2x16:bool")
    TensorSpec(shape=(2, 16), dtype='bool', name='mask')
    >>> parse_spec("scale=0.5")
    ValueSpec(value=0.5, name='scale')
    """
    name, equals, rest = text.partition("=")
    named = bool(equals) and name.isidentifier()
    found = _parse(rest if named else text, is_named=named)
    if found is None:
        raise UsageError(
            f"{text!r} does not describe an input",
            hint="write 1x3x224x224, 2x16:int64 or mask=2x16:bool (scalar for no dimensions), scale=0.5, "
            "flag=true, mode='text', feats=[1x8,1x4], photo.png, x=values.npy or x=@file.py::function",
        )
    return replace(found, name=name) if named else found  # type: ignore[type-var]


def parse_specs(texts: Iterable[str]) -> tuple[InputSpec, ...]:
    """Read several, no two by the same keyword."""
    specs = tuple(map(parse_spec, texts))
    check_names(specs)
    return specs


def check_names(specs: Iterable[InputSpec]) -> None:
    """Refuse two inputs by the same keyword."""
    names = [spec.name for spec in specs if spec.name is not None]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"the input {name!r} is given twice", hint="keep one of them")


def values_of(
    specs: Iterable[InputSpec], make: Callable[[TensorSpec], Any]
) -> Iterator[tuple[str | None, Any]]:
    """The name and the value of each input; `make` makes tensors."""

    def value(spec: InputSpec) -> Any:
        if isinstance(spec, SeveralSpec):
            items = [value(each) for each in spec.items]
            return items if spec.is_list else tuple(items)
        if isinstance(spec, ValueSpec):
            return spec.value
        if isinstance(spec, TensorSpec):
            return make(spec)
        raise TypeError(f"{spec!r} was not resolved")

    for spec in specs:
        yield spec.name, value(spec)


def _parse(text: str, *, is_named: bool) -> InputSpec | None:
    if text.startswith(CodeSpec.mark):
        return CodeSpec(text[1:]) if len(text) > 1 else None
    if text[:1] in _BRACKETS:
        return _several(text)
    shape = _SHAPE.fullmatch(text)
    if shape is not None:
        dims = [] if shape[1].lower() == "scalar" else re.split("[xX×]", shape[1])
        return TensorSpec(tuple(map(int, dims)), full_dtype_name(shape[2] or "") or None)
    if PurePath(text).suffix.lower() in (*PICTURES, *ARRAYS):
        return FileSpec(text)
    return _value(text, is_named=is_named)


def _value(text: str, *, is_named: bool) -> ValueSpec | None:
    """A number, a word that stands for a value, a text in quotes; by keyword also one without."""
    if _WHOLE.fullmatch(text):
        return ValueSpec(int(text))
    if _FRACTION.fullmatch(text):
        return ValueSpec(float(text))
    if text.lower() in _WORDS:
        return ValueSpec(_WORDS[text.lower()])
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        try:
            return ValueSpec(str(literal_eval(text)))
        except (SyntaxError, ValueError):
            return None
    return ValueSpec(text) if is_named and _BARE.fullmatch(text) else None


def _several(text: str) -> SeveralSpec | None:
    if text[-1] != _BRACKETS[text[0]]:
        return None
    items = [_parse(each.strip(), is_named=True) for each in _split(text[1:-1])]
    if None in items:
        return None
    return SeveralSpec(tuple(each for each in items if each is not None), is_list=text[0] == "[")


def _split(text: str) -> Iterator[str]:
    """What is between the commas that are not inside of brackets or quotes."""
    depth, quote, begin = 0, "", 0
    for at, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in _BRACKETS:
            depth += 1
        elif char in _BRACKETS.values():
            depth -= 1
        elif char == "," and depth == 0:
            yield text[begin:at]
            begin = at + 1
    if text[begin:].strip():
        yield text[begin:]
