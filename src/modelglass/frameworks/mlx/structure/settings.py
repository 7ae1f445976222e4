"""How a module of MLX was made: settings that it keeps, and those that only its arrays still show.

MLX's layers keep few of their arguments: a Linear has none, its sizes are those of its weight. Layers
describe themselves for printing (`_extra_repr`), in the words of their constructors, and some have
properties of the constructor's names. Both are asked with substitutes in the place of arrays, which have
shapes and types but no values, so that nothing is ever evaluated for a description.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from math import prod
from typing import Any

import mlx.core as mx
from mlx import nn

from modelglass.frameworks.mlx.describe import name_setting
from modelglass.frameworks.shared import describe
from modelglass.frameworks.shared.describe import constructor_names, settings_of
from modelglass.report import Json

_PLAIN = (mx.Dtype,)
_PAIR = re.compile(r"(\w+)=(\([^()]*\)|\[[^\[\]]*\]|[^,()\[\]<>]+)")
_DIGITS = 12  # significant ones of a number that a layer computed for its description (a Dropout's 1 - 0.9)


def config_of(module: nn.Module) -> Mapping[str, Json]:
    """Constructor-style settings of any module, as JSON: what its constructor names first, in that order."""
    wanted = constructor_names(type(module))
    config = settings_of(_attributes(module), wanted, _PLAIN, (mx.array, nn.Module), _name_value)
    bare = _copy_without_arrays(module)
    for key in wanted:
        if key not in config and isinstance(getattr(type(module), key, None), property):
            config.update(_read_property(bare, key))
    for key, value in _read_printed(bare, wanted):
        if key not in config or isinstance(dict.get(module, key), mx.array):
            config[key] = value
    config.update(_read_underscored(module, [key for key in wanted if key not in config]))
    for key in wanted:
        if isinstance(dict.get(module, key), mx.array):  # an argument that became a parameter
            config.setdefault(key, True)
    return {key: config[key] for key in wanted if key in config} | config


def _name_value(value: Any) -> str | None:
    return type(value).__name__ if isinstance(value, nn.Module) else name_setting(value)


def _attributes(module: nn.Module) -> Iterator[tuple[str, Any]]:
    for held in (vars(module), module):
        for key, value in dict.items(held):
            if isinstance(key, str) and not key.startswith("_") and not _has_parts(value, 0):
                yield key, value


def _read_underscored(module: nn.Module, missing: Sequence[str]) -> dict[str, Json]:
    """Arguments that a layer keeps under their names with an underscore in front: `_negative_slope`."""
    held = {**module, **vars(module)}
    kept = [(key, held[f"_{key}"]) for key in missing if f"_{key}" in held]
    plain = [(key, value) for key, value in kept if not _has_parts(value, 0)]
    return settings_of(plain, missing, _PLAIN, (mx.array, nn.Module), _name_value)


def _has_parts(value: Any, depth: int) -> bool:
    """Whether arrays or modules are in there: then it is a part of the model, not a setting."""
    if isinstance(value, (mx.array, nn.Module)):
        return True
    if not isinstance(value, (list, tuple, dict)) or depth >= describe.DEPTH_LIMIT:
        return False
    return any(_has_parts(item, depth + 1) for item in (value.values() if isinstance(value, dict) else value))


class _ShapeOnly:
    """An array without values: code that only looks at shapes and types can work with it."""

    def __init__(self, array: mx.array) -> None:
        self.shape = array.shape
        self.dtype = array.dtype
        self.ndim = len(array.shape)
        self.size = prod(array.shape)
        self.nbytes = array.nbytes
        self.itemsize = array.itemsize

    def __len__(self) -> int:
        return int(self.shape[0])


def _copy_without_arrays(module: nn.Module) -> nn.Module:
    """The module as it is, in a copy that has substitutes for its arrays."""
    bare = type(module).__new__(type(module))
    vars(bare).update(vars(module))
    for key, value in dict.items(module):
        dict.__setitem__(bare, key, _ShapeOnly(value) if isinstance(value, mx.array) else value)
    return bare


def _read_property(bare: nn.Module, key: str) -> dict[str, Json]:
    value: Any = ...
    with suppress(
        Exception
    ):  # a property of anybody's making may raise anything, most of all on a substitute
        value = getattr(bare, key)
    return {key: describe.json_safe(value, _name_value)} if describe.is_plain(value, _PLAIN) else {}


def _read_printed(bare: nn.Module, wanted: tuple[str, ...]) -> Iterator[tuple[str, Json]]:
    """The settings that a module prints; what has no name there is named by the constructor."""
    text = ""
    with suppress(Exception):  # as above
        text = str(bare._extra_repr())
    for place, (key, value) in enumerate(_arguments(text)):
        if key is not None:
            yield key, value
        elif place < len(wanted):
            yield wanted[place], value


@lru_cache(maxsize=4096)  # models repeat themselves
def _arguments(text: str) -> tuple[tuple[str | None, Json], ...]:
    """The arguments in a description such as "3, 8, kernel_size=(3, 3)", each with its name if it has one."""
    try:
        call: Any = ast.parse(f"f({text})", mode="eval").body
        named = [*((None, value) for value in call.args), *((word.arg, word.value) for word in call.keywords)]
    except (SyntaxError, ValueError, AttributeError, RecursionError):  # not in the words of Python
        return tuple((key, _literal(value.strip())) for key, value in _PAIR.findall(text))
    return tuple((key, _literal(ast.unparse(value))) for key, value in named)


def _literal(text: str) -> Json:
    try:
        value = ast.literal_eval(text)
    except (SyntaxError, ValueError, RecursionError):
        return text
    return describe.json_safe(float(f"{value:.{_DIGITS}g}") if type(value) is float else value, _name_value)
