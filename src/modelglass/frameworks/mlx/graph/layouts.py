"""How the elements of an array lie in its memory, as far as MLX's own rules look at it.

Whether a reshape copies, and whether a result may be written over an input, follows from this.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from math import prod
from typing import Any

from modelglass.frameworks.mlx.graph.graph import Node
from modelglass.report import Shape

# Primitives whose result may lie in the memory of an input.
VIEWS = frozenset(
    """
    AsStrided Broadcast BroadcastAxes Contiguous Copy CustomTransforms Depends ExpandDims Flatten Reshape
    Slice Split Squeeze StopGradient Transpose Unflatten View
    """.split()
)


@dataclass(frozen=True, slots=True)
class Layout:
    """Steps between elements, by dimension, in elements.

    `filled` is the number of elements in memory, which repeated ones share; `gapless` means that nothing lies
    between them.
    """

    shape: Shape
    strides: tuple[int, ...]
    filled: int
    gapless: bool = True

    @property
    def is_row_major(self) -> bool:
        """Whether one row follows the other."""
        return _is_dense(self.shape[::-1], self.strides[::-1])

    @property
    def is_column_major(self) -> bool:
        """Whether one column follows the other."""
        return _is_dense(self.shape, self.strides)

    def with_strides(self, shape: Shape, strides: tuple[int, ...]) -> Layout:
        """The same memory in other steps."""
        return Layout(shape, strides, self.filled, self.gapless)


@cache
def _is_dense(shape: Shape, strides: tuple[int, ...]) -> bool:
    """Whether each dimension begins where the ones before it end; of those of size 1 it does not matter."""
    step = 1
    for size, stride in zip(shape, strides, strict=True):
        if stride != step and size != 1:
            return False
        step *= size
    return True


@cache
def row_major(shape: Shape) -> Layout:
    """One row after the other."""
    after = list(accumulate(reversed(shape), lambda size, dim: size * dim, initial=1))
    return Layout(shape, tuple(reversed(after[:-1])), prod(shape))


def view(node: Node, layout: Layout, shape: Shape) -> Layout | None:
    """The result of one of `VIEWS` in the memory of its input; None: it has memory of its own."""
    strides = layout.strides
    arguments: Sequence[Any] = node.arguments or ()
    match node.primitive:
        case "Transpose":
            return layout.with_strides(shape, tuple(strides[axis] for axis in arguments[0]))
        case "Broadcast" | "BroadcastAxes":
            return _broadcast(layout, shape)
        case "ExpandDims":
            return layout.with_strides(shape, tuple(_with_ones(strides, arguments[0])))
        case "Squeeze":
            gone = set(arguments[0])
            kept = tuple(step for dim, step in enumerate(strides) if dim not in gone)
            return layout.with_strides(shape, kept)
        case "Slice":
            steps = tuple(step * by for step, by in zip(strides, arguments[2], strict=True))
            return _slice(layout, shape, steps)
        case "Split":
            return _slice(layout, shape, strides)
        case "Reshape" | "Flatten" | "Unflatten":
            return _reshape(layout, shape)
        case "AsStrided":
            return _slice(layout, shape, tuple(arguments[1]))
        case "Contiguous":
            return layout if layout.is_row_major else None
        case "Copy" | "StopGradient" | "View" | "Depends" | "CustomTransforms":
            return layout if layout.shape == shape else row_major(shape)
    raise AssertionError(node.primitive)


def _broadcast(layout: Layout, shape: Shape) -> Layout:
    fewer = len(shape) - len(layout.shape)
    steps = (0 if size == 1 else step for size, step in zip(layout.shape, layout.strides, strict=True))
    return layout.with_strides(shape, (*(0,) * fewer, *steps))


def _with_ones(strides: Sequence[int], axes: Sequence[int]) -> list[int]:
    steps = list(strides)
    for axis in axes:
        steps.insert(axis, 1)
    return steps


def _slice(layout: Layout, shape: Shape, strides: tuple[int, ...]) -> Layout:
    """Some of the elements: what lies between them stays there."""
    span = 1 + sum(abs(step) * (size - 1) for size, step in zip(shape, strides, strict=True))
    filled = span if prod(shape) else 0
    part = Layout(shape, strides, filled)
    distinct = prod(size for size, step in zip(shape, strides, strict=True) if step > 0)
    gapless = part.is_row_major or part.is_column_major or (layout.gapless and distinct == span)
    return part if gapless else Layout(shape, strides, filled, gapless=False)


def _reshape(layout: Layout, shape: Shape) -> Layout | None:
    """Without a copy when each new dimension lies within a run of old ones that follow each other."""
    if layout.is_row_major or not prod(shape):
        return Layout(shape, row_major(shape).strides, layout.filled)
    runs = list(_runs(layout))
    strides: list[int] = []
    at = 0
    for size in shape:
        if at < len(runs) and size and runs[at][0] % size == 0:
            left = runs[at][0] // size
            runs[at] = (left, runs[at][1])
            strides.append(left * runs[at][1])
            at += left == 1
        elif size == 1:
            strides.append(strides[-1] if strides else 1)
        else:
            return None
    return layout.with_strides(shape, tuple(strides))


def _runs(layout: Layout) -> Iterator[tuple[int, int]]:
    """Neighbouring dimensions that are as good as one: their size and step. Those of size 1 do not matter."""
    run: tuple[int, int] | None = None
    for size, step in zip(layout.shape, layout.strides, strict=True):
        if size == 1:
            continue
        if run is not None and run[1] == size * step:
            run = (run[0] * size, step)
            continue
        if run is not None:
            yield run
        run = (size, step)
    if run is not None:
        yield run
