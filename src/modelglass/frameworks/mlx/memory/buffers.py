"""The memory that MLX takes and gives back while it evaluates a graph, one primitive after the other.

An array is gone when nobody needs it any more. A result may be a view of an input, may be written over an
input that nobody else needs (MLX calls that donation), or takes memory of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import chain
from math import prod

from modelglass.frameworks.mlx.graph.graph import Graph, Node
from modelglass.frameworks.mlx.graph.layouts import VIEWS, Layout, row_major, view
from modelglass.frameworks.mlx.memory.scratch import scratch_nbytes
from modelglass.report.dtypes import bits_of

SPARE = 16_384  # bytes by which memory may be larger than what is written over it

_UNARY = frozenset(
    """
    Abs ArcCos ArcCosh ArcSin ArcSinh ArcTan ArcTanh AsType BitwiseInvert Ceil Conjugate Cos Cosh
    DynamicSliceUpdate Erf ErfInv Exp Expm1 Floor Full Imag Log Log1p LogicalNot Negative Partition Real Round
    Scatter ScatterAxis Sigmoid Sign Sin Sinh SliceUpdate Softmax Sort Sqrt Square Tan Tanh
    """.split()
)
_BINARY = frozenset(
    """
    Add ArcTan2 BitwiseBinary Divide Equal Greater GreaterEqual Less LessEqual LogAddExp LogicalAnd LogicalOr
    Maximum Minimum Multiply NotEqual Power Remainder Subtract
    """.split()
)


@dataclass(slots=True)
class Allocation:
    """One piece of memory: the array it was taken for, and the first and last step of its life."""

    number: int
    nbytes: int
    born: int | None
    died: int | None = None
    over: int | None = None  # the piece whose memory it goes on in
    living: int = 0  # arrays that lie in it
    readers: list[int] = field(default_factory=list)  # places of the nodes that read it


class Buffers:
    """Follows an evaluation. `held` arrays are somebody's, and live on whatever happens.

    `steps` are the places of the nodes that took memory or time; views do neither.
    """

    def __init__(self, graph: Graph, held: Iterable[int]) -> None:
        self._graph = graph
        self._uses: Counter[int] = Counter()
        self._layouts: dict[int, Layout] = {}
        self.places: dict[int, int] = {}  # of each array, its piece
        self.pieces: list[Allocation] = []
        self.steps: list[int] = []
        self.scratch: list[int | None] = []
        for number in held:
            self._uses[number] += 1
            self._allocate(number, row_major(graph.shapes[number]), None)

    def copy(self) -> Buffers:
        """The same point of the evaluation, from which another way may be gone."""
        other = copy(self)
        for name, value in vars(self).items():
            setattr(other, name, value if name == "_graph" else copy(value))
        other.pieces = [replace(piece, readers=list(piece.readers)) for piece in self.pieces]
        return other

    def evaluate(self, order: Sequence[int], kept: Iterable[int], released: Iterable[int] = ()) -> None:
        """Evaluate the nodes at those places; `kept` arrays are held from now on, `released` ones no more."""
        self._uses.update(kept)
        nodes = self._graph.nodes
        self._uses.update(chain.from_iterable(nodes[index].inputs for index in order))
        for number in released:
            self._release(number)
        for index in order:
            self._node(index, nodes[index])

    def _node(self, index: int, node: Node) -> None:
        for number in node.inputs:
            if number not in self.places:  # a constant
                self._allocate(number, row_major(self._graph.shapes[number]), None)
            self.pieces[self.places[number]].readers.append(index)
        views = self._views(node)
        if len(views) < len(node.outputs):
            self.steps.append(index)
            layouts = [self._layouts[number] for number in node.inputs]
            self.scratch.append(scratch_nbytes(self._graph, node, layouts))
        for number, (source, layout) in views.items():
            self._share(number, layout, self.places[source])
        for number in node.outputs:
            if number not in views:
                self._make(node, number)
        for number in node.inputs:
            self._release(number)
        for number in node.outputs:
            if self._uses[number] == 0:
                self._leave(number)

    def _views(self, node: Node) -> dict[int, tuple[int, Layout]]:
        """Of the results that lie in an input's memory: which one, and how."""
        found: dict[int, tuple[int, Layout]] = {}
        if node.primitive not in VIEWS or (node.arguments is None and node.primitive != "Contiguous"):
            return found
        sources = node.inputs
        if node.primitive == "CustomTransforms":
            sources = sources[len(sources) - len(node.outputs) :]
        elif node.primitive != "Depends":
            sources = (sources[0],) * len(node.outputs)
        for number, source in zip(node.outputs, sources, strict=False):
            layout = view(node, self._layouts[source], self._graph.shapes[number])
            if layout is not None:
                found[number] = (source, layout)
        return found

    def _make(self, node: Node, number: int) -> None:
        """Memory for a result: that of an input nobody else needs, or its own."""
        rows = row_major(self._graph.shapes[number])
        donors, layout = self._elementwise(node, rows)
        donor = next((each for each in donors if self._is_free(each, number)), None)
        if donor is not None:
            piece = self.pieces[self.places[donor]]
            piece.died = len(self.steps) - 2  # the same memory goes on under another name
            self._allocate(number, self._layouts[donor], len(self.steps) - 1, piece.nbytes)
            self.pieces[-1].over = self.places[donor]
        else:
            self._allocate(number, layout, len(self.steps) - 1)

    def _elementwise(self, node: Node, rows: Layout) -> tuple[tuple[int, ...], Layout]:
        """Inputs that a result may be written over, first choice first, and how it lies otherwise."""
        if node.primitive in _UNARY:
            layout = self._layouts[node.inputs[0]]
            whole = layout.gapless and (layout.filled > 1 or rows.filled == 1)
            return (node.inputs[:1], layout) if whole else ((), rows)
        if node.primitive in _BINARY:
            return self._binary(node.inputs[0], node.inputs[1], rows)
        dense = [self._layouts[number].is_row_major for number in node.inputs]
        if node.primitive == "Select":
            return tuple(number for number, by_rows in zip(node.inputs, dense, strict=True) if by_rows), rows
        if node.primitive == "AddMM" and dense[2]:
            return node.inputs[2:3], rows
        return (), rows

    def _binary(self, first: int, second: int, rows: Layout) -> tuple[tuple[int, ...], Layout]:
        left, right = self._layouts[first], self._layouts[second]
        if left.filled == right.filled == 1:
            return (), left
        if left.filled == 1 and right.gapless:
            return (second,), right
        if right.filled == 1 and left.gapless:
            return (first,), left
        if (left.is_row_major and right.is_row_major) or (left.is_column_major and right.is_column_major):
            return (first, second), left
        dense = ((first, left), (second, right))
        return tuple(number for number, layout in dense if layout.is_row_major), rows

    def _is_free(self, number: int, result: int) -> bool:
        """Whether the result may be written over that input."""
        piece = self.pieces[self.places[number]]
        # A constant may be somebody's who is not in the graph.
        alone = self._uses[number] == 1 and piece.living == 1 and number not in self._graph.constants
        alike = self._itemsize(number) == self._itemsize(result)
        return alone and alike and piece.nbytes <= self._nbytes(result) + SPARE

    def _allocate(self, number: int, layout: Layout, born: int | None, nbytes: int | None = None) -> None:
        taken = layout.filled * self._itemsize(number) if nbytes is None else nbytes
        self.pieces.append(Allocation(number, taken, born))
        self._share(number, layout, len(self.pieces) - 1)

    def _share(self, number: int, layout: Layout, place: int) -> None:
        self._layouts[number] = layout
        self.places[number] = place
        self.pieces[place].living += 1

    def _release(self, number: int) -> None:
        self._uses[number] -= 1
        if self._uses[number] == 0:
            self._leave(number)

    def _leave(self, number: int) -> None:
        piece = self.pieces[self.places[number]]
        piece.living -= 1
        if piece.living == 0 and piece.died is None:
            piece.died = max(len(self.steps) - 1, 0)

    def _nbytes(self, number: int) -> int:
        return prod(self._graph.shapes[number]) * self._itemsize(number)

    def _itemsize(self, number: int) -> int:
        return (bits_of(self._graph.dtypes[number]) or 0) // 8


def missing_shapes(graph: Graph, order: Iterable[int]) -> Iterator[int]:
    """Arrays of those nodes whose size MLX does not report."""
    for index in order:
        for number in (*graph.nodes[index].inputs, *graph.nodes[index].outputs):
            if number not in graph.shapes:
                yield number
