"""Values for a primitive's inputs, as expressions: made up, but such that the function accepts them."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import mlx.core as mx

from modelglass.errors import CannotReproduceError
from modelglass.report import Op, Value

Rule = Callable[[Op, Value], str | None]  # None: nothing particular is known


def expression(op: Op, value: Value) -> str:
    """Python that makes an array like the one the primitive was given."""
    if value.shape is None or value.dtype is None:
        raise CannotReproduceError(f"its input {value.name!r} has no shape: {value.text or 'unknown'}")
    primitive, role = op.overload.removeprefix("mlx."), value.name.partition(".")[0]
    rule = _RULES.get(f"{primitive}.{role}") or _RULES.get(f".{role}")
    return (rule(op, value) if rule is not None else None) or _any_values(value)


def mlx_dtype(name: object) -> str:
    """`mx.float32` for "float32". A report may come from a file: only names MLX knows become code."""
    own = "bool_" if name == "bool" else str(name)
    if not isinstance(getattr(mx, own, None), mx.Dtype):
        raise CannotReproduceError(f"MLX has no type {name!r}")
    return f"mx.{own}"


def shape_list(value: Value) -> list[int]:
    """The shape as a list, as programs write it."""
    return list(value.shape or ())


def find_input(op: Op, role: str) -> Value | None:
    """The input of that name."""
    return next((value for value in op.inputs if value.name == role), None)


def _any_values(value: Value) -> str:
    """Fractions between 0 and 1, small whole numbers that are not 0, or truth by the toss of a coin."""
    dtype = mlx_dtype(value.dtype)
    if value.dtype == "bool":
        return f"mx.random.bernoulli(0.5, {shape_list(value)})"
    if "int" in (value.dtype or ""):
        return _integers(value, 1, 8)
    made = f"mx.random.uniform(shape={shape_list(value)})"
    return made if value.dtype == "float32" else f"{made}.astype({dtype})"


def _integers(value: Value, low: int, high: int) -> str:
    """Whole numbers from `low` to below `high`."""
    dtype = mlx_dtype(value.dtype)
    if high <= low:  # an index into nothing: there can be none
        return f"mx.zeros({shape_list(value)}, {dtype})"
    return f"mx.random.randint({low}, {high}, {shape_list(value)}, dtype={dtype})"


def _zeros(op: Op, value: Value) -> str:
    return _integers(value, 0, 0)


def _along_axes(op: Op, value: Value) -> str | None:
    """Indices into one of several axes, by the number in the input's name."""
    array, axes = find_input(op, "a"), op.attributes.get("axes")
    number = value.name.partition(".")[2]
    if array is None or not array.shape or not isinstance(axes, list) or not number.isdigit():
        return None
    return _integers(value, 0, array.shape[axes[int(number)]])


def _along_axis(op: Op, value: Value) -> str | None:
    array, axis = find_input(op, "a"), op.attributes.get("axis")
    if array is None or not array.shape or not isinstance(axis, int):
        return None
    return _integers(value, 0, array.shape[axis])


def _matrices(first: str, second: str) -> Rule:
    """Which of several matrices, counted over all dimensions but the last two."""

    def rule(op: Op, value: Value) -> str | None:
        array = find_input(op, first) or find_input(op, second)
        if array is None or not array.shape:
            return None
        made = _integers(value, 0, prod(array.shape[:-2]))
        sorted_ones = op.attributes.get("left_sorted") or op.attributes.get("right_sorted")
        return f"mx.sort({made})" if sorted_ones and value.shape else made

    return rule


def _class_labels(op: Op, value: Value) -> str | None:
    logits = find_input(op, "logits")
    return None if logits is None or not logits.shape else _integers(value, 0, logits.shape[-1])


def _ascending(op: Op, value: Value) -> str:
    return f"mx.sort({_any_values(value)})"


def _identity(op: Op, value: Value) -> str | None:
    """A matrix that has an inverse, is positive definite and triangular both ways."""
    if not value.shape or len(value.shape) < 2:
        return None
    *_, rows, columns = value.shape
    return f"mx.broadcast_to(mx.eye({rows}, {columns}, dtype={mlx_dtype(value.dtype)}), {shape_list(value)})"


# How values are made, and for which inputs of which primitives; without a primitive, of all of them.
_PLACES: tuple[tuple[Rule, str], ...] = (
    (_along_axes, "Gather.indices Scatter.indices"),
    (_along_axis, "GatherAxis.indices ScatterAxis.indices"),
    (_ascending, "SearchSorted.sorted_sequence"),
    (_class_labels, "CrossEntropy.targets"),
    (_identity, "Cholesky.a Eig.a Eigh.a Inverse.a"),
    (_matrices("a", "x"), ".lhs_indices"),
    (_matrices("b", "w"), ".rhs_indices"),
    (_zeros, "DynamicSlice.start_indices DynamicSliceUpdate.start_indices RoPE.offset"),
)
_RULES = {place: rule for rule, places in _PLACES for place in places.split()}
