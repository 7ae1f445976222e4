"""Multiply-accumulates of MLX's primitives. `formulas` defines what counts."""

from __future__ import annotations

from math import prod

from modelglass.analyses.cost.contractions import (
    Formula,
    MissingShapeError,
    attention_backward_of,
    attention_of,
    output_of,
    output_times_last,
    shape_of,
)
from modelglass.report import Kernel


def _convolution(kernel: Kernel) -> int:
    """Input is (batch, *places, in), weight (out, *window, in / groups), output (batch, *places, out).

    An output place, a place of the window and the input place that meets both: any two of the three say the
    third, so a convolution costs the product of two of them. A plain one goes by output and window. A
    transposed one, which MLX has as one of a spread input or a flipped window at stride 1, goes by input and
    window, as everywhere. A spread input that meets no flipped window is the gradient of such a one's weight
    when the window is larger than the output, and goes by input and output.
    """
    if "flip" not in kernel.attributes:
        raise MissingShapeError(f"{kernel.name} has no strides of its window")
    given, weight, made = shape_of(kernel, "input"), shape_of(kernel, "weight"), output_of(kernel)
    inputs, window, outputs = prod(given[1:-1]), prod(weight[1:-1]), prod(made[1:-1])
    flipped = bool(kernel.attributes["flip"])
    if any(each != 1 for each in kernel.attributes["input_dilation"]):
        places = inputs * (window if flipped else min(window, outputs))
    elif flipped and all(each == 1 for each in kernel.attributes["stride"]):
        places = inputs * window
    else:
        places = outputs * window
    return given[0] * places * weight[-1] * made[-1]


def _segmented(kernel: Kernel) -> int:
    """The summed dimension is split into segments; how it is split does not change the products."""
    return prod(shape_of(kernel, "a")) * shape_of(kernel, "b")[-1]


MLX_FORMULAS: dict[str, Formula] = {
    "mlx.Matmul": output_times_last("a"),
    "mlx.AddMM": output_times_last("a"),
    "mlx.GatherMM": output_times_last("a"),
    "mlx.BlockMaskedMM": output_times_last("a"),
    "mlx.SegmentedMM": _segmented,
    "mlx.QuantizedMatmul": output_times_last("x"),
    "mlx.QQMatmul": output_times_last("x"),
    "mlx.GatherQMM": output_times_last("x"),
    "mlx.GatherQQMM": output_times_last("x"),
    "mlx.Convolution": _convolution,
    "mlx.ScaledDotProductAttention": attention_of("q", "k", "v"),
    "mlx.ScaledDotProductAttentionVJP": attention_backward_of("q", "k", "v"),
}
