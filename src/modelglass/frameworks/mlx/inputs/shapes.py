"""Inputs made from shapes, for people who have a shape and no data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mlx.core as mx
from mlx import nn

from modelglass.errors import InputsError, UsageError
from modelglass.frameworks.mlx.structure.modules import walk
from modelglass.frameworks.shared.request import Inputs
from modelglass.frameworks.shared.specs import InputSpec, TensorSpec, values_of

_SEED = 0
_ID_TYPE = mx.int32
_LARGEST = 2**31 - 1  # what MLX takes as a size


def make_inputs(native: nn.Module, specs: tuple[InputSpec, ...]) -> Inputs:
    """Arrays as specified: integers within every embedding's range, the rest from a normal draw.

    They are not evaluated, so they take no memory before a run asks for their values.
    """
    made = list(values_of(specs, lambda spec: _array(native, spec)))
    return Inputs(
        args=tuple(array for name, array in made if name is None),
        kwargs={name: array for name, array in made if name is not None},
    )


def array(native: nn.Module, words: Any, shape: tuple[int, ...], dtype: str) -> mx.array:
    """What a file holds, as an array. `words` are numpy's, of the size of an element."""
    bits = words.view(f"u{words.dtype.itemsize}") if words.dtype.kind in "iu" else words
    return mx.array(bits).view(find_dtype(dtype)).reshape(shape)


def picture(native: nn.Module, pixels: Any) -> mx.array:
    """A picture as layers of MLX take it, with its channels last."""
    return mx.array(pixels.transpose(0, 2, 3, 1))


def find_dtype(name: str) -> mx.Dtype:
    """The element type of that name."""
    dtype = getattr(mx, "bool_" if name == "bool" else name, None)
    if not isinstance(dtype, mx.Dtype):
        raise UsageError(
            f"MLX has no element type {name!r}", hint="for example float32, bfloat16, int32, bool"
        )
    return dtype


def _array(native: nn.Module, spec: TensorSpec) -> mx.array:
    dtype = _natural_dtype(native) if spec.dtype is None else find_dtype(spec.dtype)
    if any(dim > _LARGEST for dim in spec.shape):
        raise InputsError(
            f"cannot make an input {'x'.join(map(str, spec.shape))}: MLX takes no size above {_LARGEST:,}",
            hint="give a smaller shape",
        )
    if mx.issubdtype(dtype, mx.inexact):
        # A key of our own: the user's random state is not ours to use.
        return mx.random.normal(spec.shape, key=mx.random.key(_SEED)).astype(dtype)
    if dtype == mx.bool_ or "mask" in (spec.name or ""):  # that hides nothing
        return mx.ones(spec.shape, dtype=dtype)
    # One row for all: MLX has no range of more numbers than a size may have.
    numbers = mx.arange(spec.shape[-1] if spec.shape else 1) % _id_bound(native)
    return mx.broadcast_to(numbers if spec.shape else numbers[0], spec.shape).astype(dtype)


def _natural_dtype(native: nn.Module) -> mx.Dtype:
    """What the model most likely eats: ids when it begins with an embedding, else its weights' type."""
    weighted = [(module, arrays) for _, module in walk(native) if (arrays := _own_arrays(module))]
    if weighted and is_embedding(weighted[0][0]):
        return _ID_TYPE
    floats = (
        a.dtype for _, arrays in weighted for a in arrays.values() if mx.issubdtype(a.dtype, mx.floating)
    )
    return next(floats, mx.float32)


def _own_arrays(module: nn.Module) -> Mapping[str, mx.array]:
    return {key: value for key, value in dict.items(module) if isinstance(value, mx.array)}


def is_embedding(module: nn.Module) -> bool:
    """Plain or quantized, of MLX's own or somebody else's: looked up by number, and usable as a head."""
    return isinstance(module, (nn.Embedding, nn.QuantizedEmbedding)) or hasattr(module, "as_linear")


def _id_bound(native: nn.Module) -> int:
    """Ids below this fit every embedding the model has."""
    tables = [module["weight"] for _, module in walk(native) if is_embedding(module) and "weight" in module]
    return max(1, min((table.shape[0] for table in tables), default=2))
