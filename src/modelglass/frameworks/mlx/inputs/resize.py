"""Inputs of an MLX model with another batch size or sequence length; nothing of them is evaluated."""

from __future__ import annotations

from collections.abc import Mapping

import mlx.core as mx

from modelglass.frameworks.mlx.describe import is_array
from modelglass.frameworks.shared import resize
from modelglass.frameworks.shared.request import Inputs
from modelglass.frameworks.shared.resize import Form, Tensors
from modelglass.report import Axes, Shape


def dimensions(inputs: Inputs, axes: Axes | None = None) -> tuple[int | None, int | None]:
    """The batch size and the sequence length that the inputs show, None for what they do not."""
    return resize.dimensions(inputs, _ARRAYS, axes)


def resize_inputs(
    inputs: Inputs, batch_size: int | None, seq_len: int | None, axes: Axes | None = None
) -> Inputs:
    """The inputs with another batch size, sequence length or both; what stays the same is the same object."""
    return resize.resize_inputs(inputs, batch_size, seq_len, _ARRAYS, axes)


def resize_inputs_at(inputs: Inputs, sizes: Mapping[tuple[int, int], int]) -> Inputs:
    """The inputs with other sizes, each by the leaf it is of, as a run numbers them, and the dimension."""
    return resize.resize_inputs_at(inputs, sizes, _ARRAYS)


def _form(array: mx.array) -> Form:
    kind = "floating" if mx.issubdtype(array.dtype, mx.inexact) else "other"
    return Form(tuple(array.shape), "whole" if mx.issubdtype(array.dtype, mx.integer) else kind)


def _repeat(array: mx.array, shape: Shape) -> mx.array:
    """The same values over again, or the first of them: a mask of ones stays one."""
    for dim, size in enumerate(shape):
        if size != array.shape[dim]:
            array = mx.take(array, mx.arange(size) % max(array.shape[dim], 1), axis=dim)
    return array


_ARRAYS = Tensors(is_array, _form, _repeat)
