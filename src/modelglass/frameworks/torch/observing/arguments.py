"""What an operator or kernel was given: tensors by argument name, and everything else as attributes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import torch

from modelglass.frameworks.torch.describe import Describer, json_safe, unobserved
from modelglass.frameworks.torch.structure.packing import unpack
from modelglass.report import Value


def arguments(
    func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], describer: Describer
) -> tuple[Mapping[str, Any], tuple[Value, ...]]:
    """The operator's tensors by argument name, and the rest as attributes, defaults included."""
    schema = _schema(func)
    if schema is None:
        return {}, describer.arguments(args, kwargs)
    attributes: dict[str, Any] = {}
    inputs: list[Value] = []
    for index, (name, default) in enumerate(schema):
        value = args[index] if index < len(args) else kwargs.get(name, default)
        if isinstance(value, torch.Tensor):
            inputs.append(describer.tensor(name, value))
        elif isinstance(value, (list, tuple)) and any(isinstance(item, torch.Tensor) for item in value):
            inputs.extend(describer.flatten(value, name))
        elif isinstance(value, torch.ScriptObject):
            inputs.extend(_packed_values(name, value))
            attributes |= _packed_settings(name, value)
        else:
            attributes[name] = json_safe(value)
    return attributes, tuple(inputs)


@cache
def _schema(func: Any) -> tuple[tuple[str, Any], ...] | None:
    schema = getattr(func, "_schema", None)
    if schema is None:  # a higher-order operator takes what it likes
        return None
    return tuple((arg.name, _default(arg)) for arg in schema.arguments)


# Schemas give defaults of these types by number.
_NUMBERED = {("MemoryFormat", 0): torch.contiguous_format, ("ScalarType", 4): torch.int64}


def _default(arg: Any) -> Any:
    value = arg.default_value if arg.has_default_value() else None
    if type(value) is not int:
        return value
    kind = str(arg.real_type).removeprefix("Optional[").removesuffix("]")
    return _NUMBERED.get((kind, value), value)


def _packed_settings(name: str, packed: torch.ScriptObject) -> Mapping[str, Any]:
    """What a quantized convolution keeps in its packed argument besides weights."""
    settings = {key: getattr(packed, key, None) for key in ("stride", "padding", "dilation", "groups")}
    with unobserved():
        return {f"{name}.{key}": json_safe(read()) for key, read in settings.items() if read is not None}


def _packed_values(name: str, packed: torch.ScriptObject) -> Iterator[Value]:
    """The weights inside a quantized operator's packed argument, so that formulas see their shapes."""
    if not hasattr(packed, "unpack"):
        yield Value(name=name, text="packed weights")
        return
    with unobserved():
        content = unpack(packed)
    for kind, tensor in content:
        yield Describer().tensor(f"{name}.{kind}", tensor)
