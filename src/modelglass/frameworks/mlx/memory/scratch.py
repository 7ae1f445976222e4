"""What MLX's kernels take for themselves while they run, where that follows from shapes and layouts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TypeAlias

from modelglass.frameworks.mlx.graph.graph import Graph, Node
from modelglass.frameworks.mlx.graph.layouts import Layout
from modelglass.report.dtypes import nbytes_of

_WIDE = 4  # bytes of float32, in which convolutions are worked out
_Rule: TypeAlias = Callable[[Graph, Node, Sequence[Layout]], int]


def scratch_nbytes(graph: Graph, node: Node, layouts: Sequence[Layout]) -> int | None:
    """Bytes beyond the results; None for a kernel that nobody looked at."""
    rule = _RULES.get(node.primitive)
    return None if rule is None or node.arguments is None else rule(graph, node, layouts)


def _matmul(graph: Graph, node: Node, layouts: Sequence[Layout]) -> int:
    """A matrix that lies neither by rows nor by columns is copied."""
    return sum(
        _nbytes(graph, number)
        for number, layout in zip(node.inputs[:2], layouts, strict=False)
        if layout.strides[-2:] not in ((layout.shape[-1], 1), (1, layout.shape[-2]))
    )


def _by_rows(graph: Graph, node: Node, layouts: Sequence[Layout]) -> int:
    """Every input that does not lie by rows is copied."""
    pairs = zip(node.inputs, layouts, strict=True)
    return sum(_nbytes(graph, number) for number, layout in pairs if not layout.is_row_major)


def _convolution(graph: Graph, node: Node, layouts: Sequence[Layout]) -> int:
    """The input with its padding, and each window of it as a row of a matrix, in float32.

    Convolutions with gaps, and grouped ones over more than a line, are worked out in place.
    """
    stride, low, high, dilation, input_dilation, groups, flip = node.arguments or ()
    whole, weight = (graph.shapes[number] for number in node.inputs[:2])
    out = graph.shapes[node.outputs[0]]
    if {*dilation, *input_dilation} != {1} or flip or list(low) != list(high):
        return 0
    if groups != 1 and len(stride) != 1:
        return 0
    padded = prod(size + 2 * each for size, each in zip(whole[1:-1], low, strict=True))
    windows = prod(out[:-1]) * prod(weight[1:-1]) * whole[-1]
    taken: int = 1 + whole[0] * padded * whole[-1] + windows
    if groups != 1 or graph.dtypes[node.inputs[1]] != "float32" or not layouts[1].is_row_major:
        taken += prod(weight)
    if graph.dtypes[node.outputs[0]] != "float32":
        taken += prod(out)
    return _WIDE * taken


def _nbytes(graph: Graph, number: int) -> int:
    return nbytes_of(graph.dtypes[number], prod(graph.shapes[number])) or 0


_RULES: Mapping[str, _Rule] = {
    "Matmul": _matmul,
    "AddMM": _matmul,
    "QuantizedMatmul": _by_rows,
    "Convolution": _convolution,
}
