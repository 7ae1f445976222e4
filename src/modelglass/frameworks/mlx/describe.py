"""Arrays by shape and type, everything else by a short text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import mlx.core as mx
from mlx import nn

from modelglass.frameworks.shared.describe import leaves, text_of
from modelglass.report import Value


@cache
def dtype_name(dtype: mx.Dtype) -> str:
    """`mx.float32` as "float32"."""
    return str(dtype).rpartition(".")[2].removesuffix("_")


def name_setting(value: Any) -> str | None:
    """What MLX's own values are called; None for any other."""
    if isinstance(value, mx.array):
        return f"array {list(value.shape)} {dtype_name(value.dtype)}"
    if isinstance(value, mx.Dtype):
        return dtype_name(value)
    if isinstance(value, (mx.Device, mx.Stream)):
        return str(value)
    return None


def is_array(value: Any) -> bool:
    return isinstance(value, mx.array)


def find_leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf of the inputs or outputs of a call, with the way to it; a module is also a leaf."""
    return leaves(value, name, lambda each: isinstance(each, (mx.array, nn.Module)))


def find_arrays_in(value: Any) -> tuple[mx.array, ...]:
    """The arrays among those leaves."""
    return tuple(leaf for _, leaf in find_leaves(value) if isinstance(leaf, mx.array))


class Describer:
    """Describes values; an array that is a named one of the model's carries that name."""

    def __init__(self, names: Mapping[int, str] | None = None) -> None:
        self._names = names or {}  # by the array's id

    def array(self, name: str, array: mx.array) -> Value:
        """One array as a value."""
        owner = self._names.get(id(array))
        return Value(name=name, shape=tuple(array.shape), dtype=dtype_name(array.dtype), tensor=owner)

    def flatten(self, value: Any, name: str = "") -> tuple[Value, ...]:
        """Every leaf of a structure, in order, named by the way to it."""
        return tuple(
            self.array(way, leaf)
            if isinstance(leaf, mx.array)
            else Value(name=way, text=text_of(leaf, name_setting))
            for way, leaf in find_leaves(value, name)
        )

    def arguments(self, args: Iterable[Any], kwargs: Mapping[str, Any]) -> tuple[Value, ...]:
        """Positional arguments as "0", "1" ..., keyword arguments by their names."""
        named = [*((str(index), value) for index, value in enumerate(args)), *kwargs.items()]
        return tuple(leaf for key, value in named for leaf in self.flatten(value, key))
