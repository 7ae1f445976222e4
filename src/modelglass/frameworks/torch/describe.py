"""Native values in framework-neutral terms: tensors by shape and type, everything else by a short text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import partial
from pathlib import PurePath
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import torch
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import _disable_current_modes

from modelglass.report import Json, Value

_PLAIN = frozenset({bool, int, str, type(None)})  # JSON as they are
TEXT_LIMIT = 80  # characters of a non-tensor value that are worth showing
TEXTUAL = (date, time, timedelta, Decimal, Fraction, PurePath, range, UUID)  # settings that are their text
RECORD_LIMIT = 16  # fields; an object with more configures a whole model
DEPTH_LIMIT = 8  # structures deeper than this are named, not walked


@contextmanager
def unobserved() -> Iterator[None]:
    """Looking at a tensor is not recorded as the model's own work, nor does it take the observed path."""
    with _disable_current_modes(), torch._C._DisablePythonDispatcher():
        yield


def dtype_name(dtype: torch.dtype) -> str:
    """`torch.float32` as "float32"."""
    return str(dtype).rpartition(".")[2]


def type_name(cls: type) -> str:
    """The class with the module it comes from, as one would import it."""
    return f"{cls.__module__}.{cls.__qualname__}"


def shape_of(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """The shape as integers, or None where the tensor has no single one (nested, symbolic)."""
    if tensor.is_nested:
        return None
    return tuple(int(dim) for dim in tensor.shape)


def json_safe(value: Any, depth: int = 0) -> Json:
    """The value as JSON, an unknown type as its name: never an address, never a tensor's contents."""
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
    if isinstance(value, (complex, torch.device)):
        return str(value)
    if isinstance(value, torch.dtype):
        return dtype_name(value)
    if isinstance(value, (torch.layout, torch.memory_format)):
        return str(value).rpartition(".")[2]
    if isinstance(value, torch.Tensor):
        return f"tensor {list(shape_of(value) or ())} {dtype_name(value.dtype)}"
    if depth < DEPTH_LIMIT:
        if isinstance(value, (tuple, list)):
            return [json_safe(item, depth + 1) for item in value]
        if isinstance(value, (set, frozenset)):
            return sorted((json_safe(item, depth + 1) for item in value), key=repr)
        if isinstance(value, partial):
            return [json_safe(part, depth + 1) for part in (value.func, *value.args, value.keywords)]
        parts = value if isinstance(value, Mapping) else record_of(value)
        if parts is not None:
            return {str(key): json_safe(item, depth + 1) for key, item in parts.items()}
    if isinstance(value, TEXTUAL):
        return str(value)
    if is_numpy_scalar(value):
        return json_safe(value.item())
    if isinstance(value, type):
        return type_name(value)
    name = getattr(value, "__name__", None)  # functions, operators, modules of code
    return name if isinstance(name, str) else type_name(type(value))


def record_of(value: Any) -> Mapping[str, Any] | None:
    """The fields of a small dataclass or namespace; a large one is no setting of one module."""
    if isinstance(value, SimpleNamespace):
        return vars(value) if len(vars(value)) <= RECORD_LIMIT else None
    if not is_dataclass(value) or isinstance(value, type) or len(fields(value)) > RECORD_LIMIT:
        return None
    return {item.name: getattr(value, item.name, None) for item in fields(value)}


def is_numpy_scalar(value: Any) -> bool:
    """Whether this is one number of numpy's, which need not be installed."""
    return type(value).__module__ == "numpy" and getattr(value, "shape", None) == ()


def memory_of(tensor: torch.Tensor) -> int | None:
    """The memory a tensor lives in; None for one inside a function transform, which has none to show."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except (RuntimeError, NotImplementedError):
        return None


class Describer:
    """Describes values; a tensor in a named parameter's or buffer's memory carries that name."""

    def __init__(self, names_by_storage: Mapping[int | None, str] | None = None) -> None:
        self._names: Mapping[int | None, str] = names_by_storage or {}
        self._seen: dict[tuple[Any, ...], Value] = {}

    def tensor(self, name: str, tensor: torch.Tensor) -> Value:
        """One tensor as a value; equal descriptions are one object, since a run repeats itself."""
        try:
            owner = self._names.get(tensor.untyped_storage()._cdata) if self._names else None
            key = (name, tensor.shape, tensor.dtype, tensor.layout, owner)
        except (RuntimeError, NotImplementedError):  # no memory or no shape to show
            return self._described(name, tensor)
        value = self._seen.get(key)
        if value is None:
            value = self._described(name, tensor, owner)
            self._seen[key] = value
        return value

    def _described(self, name: str, tensor: torch.Tensor, owner: str | None = None) -> Value:
        """A tensor seen for the first time, of whatever kind."""
        dtype = dtype_name(tensor.dtype)
        if is_lazy(tensor):
            return Value(name=name, dtype=dtype, text="uninitialised tensor")
        if tensor.layout is torch.strided and not tensor.is_nested:
            return Value(name=name, shape=shape_of(tensor), dtype=dtype, tensor=owner)
        layout = json_safe(tensor.layout)
        if tensor.is_nested:
            layout = "nested" if tensor.layout is torch.strided else f"{layout} nested"
        sparse = str(layout).startswith("sparse")
        with unobserved():
            nnz = _stored_elements(tensor) if sparse else None
            parts = _part_shapes(tensor) if tensor.is_nested else ()
        text = f"{layout} tensor"
        return Value(name=name, shape=shape_of(tensor), dtype=dtype, text=text, nnz=nnz, parts=parts)

    def flatten(self, value: Any, name: str = "") -> tuple[Value, ...]:
        """Every leaf of a structure, in order, named by the way to it."""
        return tuple(self._walk(value, name))

    def arguments(self, args: Iterable[Any], kwargs: Mapping[str, Any]) -> tuple[Value, ...]:
        """Positional arguments as "0", "1" ..., keyword arguments by their names."""
        values: list[Value] = []
        for index, value in enumerate(args):
            values.extend(self._walk(value, str(index)))
        for key, value in kwargs.items():
            values.extend(self._walk(value, key))
        return tuple(values)

    def _walk(self, value: Any, name: str) -> Iterable[Value]:
        for way, leaf in leaves(value, name):
            yield self.tensor(way, leaf) if isinstance(leaf, torch.Tensor) else self._text(way, leaf)

    def _text(self, name: str, value: Any) -> Value:
        if value is None or isinstance(value, (bool, int, float, complex, str, slice)):
            text = repr(value)
        elif isinstance(value, (torch.dtype, torch.device, torch.layout, torch.memory_format)):
            text = str(value)
        else:
            text = type(value).__name__
        if len(text) > TEXT_LIMIT:
            text = text[: TEXT_LIMIT - 1] + "…"
        return Value(name=name, text=text)


def _part_shapes(tensor: torch.Tensor) -> tuple[tuple[int, ...], ...]:
    """The shapes of a nested tensor's parts; none of a stand-in without values that torch itself made."""
    try:
        return tuple(tuple(part.shape) for part in tensor.unbind())
    except RuntimeError:
        return ()


def _stored_elements(tensor: torch.Tensor) -> int:
    """Elements a sparse tensor keeps, those of its blocks included."""
    values = tensor._values() if tensor.layout is torch.sparse_coo else tensor.values()
    return values.numel()


def tensors_among(value: Any) -> Iterator[torch.Tensor]:
    """Every tensor of nested lists and tuples, which is how kernels take and give them."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_among(item)


def leaves(value: Any, name: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Every leaf of a structure, in order, with the way to it."""
    parts = _parts(value) if depth < DEPTH_LIMIT and not isinstance(value, torch.Tensor) else None
    if parts is None:
        yield name, value
        return
    for key, item in parts:
        yield from leaves(item, f"{name}.{key}" if name else str(key), depth + 1)


def tensors_in(value: Any, depth: int = 0) -> Iterable[torch.Tensor]:
    """Every tensor of a structure, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif depth < DEPTH_LIMIT:
        for _, item in _parts(value) or ():
            yield from tensors_in(item, depth + 1)


def _parts(value: Any) -> Iterable[tuple[Any, Any]] | None:
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
