"""Native values in framework-neutral terms: tensors by shape and type, everything else by a short text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from modelglass.frameworks.shared import describe
from modelglass.frameworks.torch.privates import disable_modes, disable_python_dispatcher
from modelglass.report import Json, Value


@contextmanager
def unobserved() -> Iterator[None]:
    """Looking at a tensor is not recorded as the model's own work, nor does it take the observed path."""
    with disable_modes(), disable_python_dispatcher():
        yield


def dtype_name(dtype: torch.dtype) -> str:
    """`torch.float32` as "float32"."""
    return str(dtype).rpartition(".")[2]


def shape_of(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """The shape as integers, or None where the tensor has no single one (nested, symbolic)."""
    if tensor.is_nested:
        return None
    return tuple(int(dim) for dim in tensor.shape)


def json_safe(value: Any) -> Json:
    """The value as JSON, an unknown type as its name: never an address, never a tensor's contents."""
    return describe.json_safe(value, name_setting)


def name_setting(value: Any) -> str | None:
    """What torch's own values are called as settings."""
    if isinstance(value, torch.device):
        return str(value)
    if isinstance(value, torch.dtype):
        return dtype_name(value)
    if isinstance(value, (torch.layout, torch.memory_format)):
        return str(value).rpartition(".")[2]
    if isinstance(value, torch.Tensor):
        return f"tensor {list(shape_of(value) or ())} {dtype_name(value.dtype)}"
    return None


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
            return self._describe_new(name, tensor)
        value = self._seen.get(key)
        if value is None:
            value = self._describe_new(name, tensor, owner)
            self._seen[key] = value
        return value

    def _describe_new(self, name: str, tensor: torch.Tensor, owner: str | None = None) -> Value:
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
            if isinstance(leaf, torch.Tensor):
                yield self.tensor(way, leaf)
            else:
                yield Value(name=way, text=describe.text_of(leaf, _in_full))


def _in_full(value: Any) -> str | None:
    """torch's own settings as torch writes them."""
    own = isinstance(value, (torch.dtype, torch.device, torch.layout, torch.memory_format))
    return str(value) if own else None


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


def pieces_of(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The tensors with memory of their own that make up a tensor; a sparse or wrapped one has several."""
    if _is_wrapper(type(tensor)):
        names, _ = tensor.__tensor_flatten__()  # type: ignore[attr-defined]
        for part in (getattr(tensor, name) for name in names):
            if isinstance(part, torch.Tensor):
                yield from pieces_of(part)
    elif tensor.layout is torch.strided:
        yield tensor
    elif tensor.layout is torch.sparse_coo:
        yield tensor._indices()
        yield tensor._values()


@cache
def _is_wrapper(kind: type) -> bool:
    """Whether tensors of a kind are made of others, which alone have memory."""
    return hasattr(kind, "__tensor_flatten__") and hasattr(kind, "__tensor_unflatten__")


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf of a structure, in order, with the way to it."""
    return describe.leaves(value, name, torch.is_tensor)


def tensors_in(value: Any) -> Iterable[torch.Tensor]:
    """Every tensor of a structure, in order."""
    return describe.instances_in(value, torch.Tensor)
