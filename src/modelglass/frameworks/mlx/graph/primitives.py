"""MLX's primitives in a user's terms: the function that makes each, and its inputs and arguments by name.

An export identifies a primitive by its class, its arguments by position, and a choice among several (which
reduction, which base of the logarithm) by its number; a drawing by a label. What is in no table here
keeps its positions: a primitive of a later MLX is still shown, under the name of its class.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import takewhile
from types import ModuleType
from typing import Any

import mlx.core as mx

from modelglass.frameworks.mlx.describe import name_setting
from modelglass.frameworks.mlx.graph.primitive_rows import ROWS, Row
from modelglass.frameworks.shared.describe import json_safe
from modelglass.report import Json

Arguments = Sequence[Any] | None  # None: MLX does not report them

MODES = ("affine", "mxfp4", "mxfp8", "nvfp4")  # of quantization, as MLX numbers them


def public_name(primitive: str, arguments: Arguments = ()) -> str:
    """The function that a user would call: "mx.matmul"; "mlx.<Primitive>" where there is none.

    >>> public_name("Reduce", [2, [1]]), public_name("RoPE"), public_name("NumberOfElements")
    ('mx.sum', 'mx.fast.rope', 'mlx.NumberOfElements')
    """
    name, row = exported_name(primitive), _row(primitive)
    if row.choices:
        label = _choice(primitive, arguments)
        function = row.labels[label] if label else ""
    elif name in _BY_ARGUMENTS and arguments:
        function = _BY_ARGUMENTS[name](arguments)
    else:
        function = row.function or _find_function(name)
    return f"mx.{function}" if function else f"mlx.{name}"


def attributes(primitive: str, arguments: Arguments = ()) -> dict[str, Json]:
    """A primitive's arguments by name; "argument0" and so on where nothing is known of them.

    >>> attributes("AddMM", [2.0, 1.0]), attributes("Reduce", [2, [1]])
    ({'alpha': 2.0, 'beta': 1.0}, {'reduce': 'sum', 'axes': [1]})
    """
    name, row, given = exported_name(primitive), _row(primitive), list(arguments or ())
    if name == "CustomKernel":
        return _custom_kernel(given)
    names = row.arguments.split()
    named = {f"argument{index}": json_safe(value, name_setting) for index, value in enumerate(given)}
    if len(names) == len(given):
        named = dict(zip(names, named.values(), strict=True))
    label = _choice(primitive, arguments)
    if label and not named.keys() - set(names):
        named = {**named, names[0]: _name_choice(name, label, row.labels[label])}
    mode = named.get("mode")
    if isinstance(mode, int) and mode < len(MODES):
        named["mode"] = MODES[mode]
    return _one_padding(named) if "padding_low" in named else named


def roles(primitive: str, count: int, arguments: Arguments = ()) -> tuple[str, ...]:
    """Names of a primitive's inputs, of which there are `count`; "0", "1" where nothing is known of them.

    >>> roles("AddMM", 3), roles("Concatenate", 2), roles("NobodyKnows", 2)
    (('a', 'b', 'c'), ('arrays.0', 'arrays.1'), ('0', '1'))
    """
    has_sinks = attributes(primitive, arguments).get("has_sinks")
    alternatives = [_expand_star(names.split(), count) for names in _row(primitive).inputs.split("|")]
    for words in alternatives:
        if len(words) == count:
            # Of a mask and sinks, there may be only one.
            alone = has_sinks and "sinks" not in words
            return tuple("sinks" if alone and word == "mask" else word for word in words)
    # More or fewer than known: they begin with what all alternatives begin with.
    together = zip(*(words[:count] for words in alternatives), strict=False)
    known = [words[0] for words in takewhile(lambda words: len(set(words)) == 1, together)]
    return (*known, *map(str, range(len(known), count)))


def _expand_star(words: list[str], count: int) -> list[str]:
    """Names with as many of the starred one as make them `count`."""
    starred = next((word for word in words if word.endswith("*")), None)
    if starred is None:
        return words
    at, rest = words.index(starred), count - len(words) + 1
    return [*words[:at], *(f"{starred[:-1]}.{index}" for index in range(rest)), *words[at + 1 :]]


@cache
def exported_name(label: str) -> str:
    """A primitive's name in an export, by its label in a drawing; a name in an export is itself.

    >>> exported_name("Sum"), exported_name("View int32"), exported_name("Matmul")
    ('Reduce', 'View', 'Matmul')
    """
    if label in ROWS:
        return label
    if label.startswith("Compiled"):  # the rest of it lists what was compiled
        return "Compiled"
    if label.endswith((" AllReduce", " ReduceScatter")):
        return label.rpartition(" ")[2]
    chosen = (name for name, row in ROWS.items() if row.choices and label in row.labels)
    return next(chosen, label.partition(" ")[0])


def _row(primitive: str) -> Row:
    return ROWS.get(exported_name(primitive), Row())


def _choice(primitive: str, arguments: Arguments) -> str | None:
    """Which of several the primitive is, by its first argument or, where MLX reports none, by its label."""
    labels = list(_row(primitive).labels)
    if arguments and labels:
        number = int(arguments[0])
        return labels[number] if number < len(labels) else None
    return primitive if primitive in labels else None


@cache
def _find_function(primitive: str) -> str:
    """The function that is called as the class is: "arccos" for ArcCos, "fast.rms_norm" for RMSNorm."""
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", primitive).lower()
    for holder, prefix in _holders():
        for name in (snake, primitive.lower()):
            function = getattr(holder, name, None)
            if callable(function) and not isinstance(function, (type, ModuleType)):
                return f"{prefix}{name}"
    return ""


def _holders() -> Iterator[tuple[Any, str]]:
    yield mx, ""
    for name in ("fast", "linalg", "fft", "random", "distributed"):
        yield getattr(mx, name), f"{name}."


def _name_choice(name: str, label: str, function: str) -> Json:
    """A choice as an attribute: by the function, where no better name is known."""
    match name:
        case "Log":
            return {"log2": 2, "log10": 10}.get(function, "e")
        case "Sqrt" | "Equal":
            return label != name
        case "Scatter" | "ScatterAxis" | "SliceUpdate":
            return "set" if label == name else function.rpartition(".")[2] or "add"
    return function


def _convolution(arguments: Sequence[Any]) -> str:
    stride, low, high, _, input_dilation, _, flip = arguments
    ordinary = len(stride) in (1, 2, 3)
    if ordinary and low == high and not flip and all(each == 1 for each in input_dilation):
        return f"conv{len(stride)}d"
    if ordinary and flip and all(each == 1 for each in stride):
        return f"conv_transpose{len(stride)}d"
    return "conv_general"


def _transform(arguments: Sequence[Any]) -> str:
    axes, inverse, real, *_ = arguments
    return f"fft.{'i' * bool(inverse)}{'r' * bool(real)}fft{'n' * (len(axes) > 1)}"


def _gather(arguments: Sequence[Any]) -> str:
    axes, sizes = arguments
    return "take" if len(axes) == 1 and sizes[axes[0]] == 1 else "array.__getitem__"


# Functions that follow from several arguments, or from one that is not a choice by number.
_BY_ARGUMENTS: Mapping[str, Callable[[Sequence[Any]], str]] = {
    "Convolution": _convolution,
    "FFT": _transform,
    "Gather": _gather,
    "Quantize": lambda arguments: "dequantize" if arguments[-1] else "quantize",
    "Inverse": lambda arguments: "linalg.tri_inv" if arguments[0] else "linalg.inv",
    "Eig": lambda arguments: "linalg.eig" if arguments[0] else "linalg.eigvals",
    "Eigh": lambda arguments: "linalg.eigh" if arguments[-1] else "linalg.eigvalsh",
}


def _one_padding(named: dict[str, Json]) -> dict[str, Json]:
    """Padding before and after in one entry, as `mx.conv_general` takes it."""
    low, high = named["padding_low"], named["padding_high"]
    padding = low if low == high else [low, high]
    rest = {key: value for key, value in named.items() if not key.startswith("padding_")}
    return {"stride": rest.pop("stride"), "padding": padding, **rest}


def _custom_kernel(arguments: Sequence[Any]) -> dict[str, Json]:
    """The name and the grid of a kernel that somebody wrote; its source is code, not an attribute."""
    if len(arguments) < 8:
        return {}
    return {
        "name": str(arguments[0]),
        "grid": list(arguments[2:5]),
        "threadgroup": list(arguments[5:8]),
    }
