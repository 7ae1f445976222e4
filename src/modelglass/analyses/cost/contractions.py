"""What formulas of every framework are made of: the shapes a kernel met, and products over them."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from modelglass.report import Kernel, Shape

Formula = Callable[[Kernel], int | None]


class MissingShapeError(Exception):
    """A formula asked for a shape that the run did not show (a nested tensor, an absent argument)."""


def shape_of(kernel: Kernel, name: str) -> Shape:
    """The shape of the input of that name."""
    value = kernel.input(name)
    if value is None or value.shape is None:
        raise MissingShapeError(f"{kernel.name} has no shape for {name}")
    return value.shape


def output_of(kernel: Kernel) -> Shape:
    """The shape of the first output."""
    if not kernel.outputs or kernel.outputs[0].shape is None:
        raise MissingShapeError(f"{kernel.name} has no output shape")
    return kernel.outputs[0].shape


def rows_of(shape: Shape) -> int:
    """Elements of all dimensions but the last."""
    return prod(shape[:-1])


def output_times_last(name: str) -> Formula:
    """Each output element sums over the last dimension of `name`."""
    return lambda kernel: output_numel(kernel) * shape_of(kernel, name)[-1]


def output_numel(kernel: Kernel) -> int:
    """Elements of the output; of a nested one, those of its parts."""
    if kernel.outputs and kernel.outputs[0].parts:
        return sum(map(prod, kernel.outputs[0].parts))
    return prod(output_of(kernel))


def attention_of(*names: str) -> Formula:
    """Scores over the head dimension, then values weighted by them; query heads count, shared keys or not."""

    def formula(kernel: Kernel) -> int:
        query, key, value = (shape_of(kernel, name) for name in names)
        return prod(query[:-2]) * query[-2] * key[-2] * (query[-1] + value[-1])

    return formula


def attention_backward_of(*names: str) -> Formula:
    """Scores once more, then gradients of values, weights, queries and keys."""

    def formula(kernel: Kernel) -> int:
        query, key, value = (shape_of(kernel, name) for name in names)
        return prod(query[:-2]) * query[-2] * key[-2] * (3 * query[-1] + 2 * value[-1])

    return formula
