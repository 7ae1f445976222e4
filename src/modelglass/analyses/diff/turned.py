"""Values of a tensor with other axes: turned as another framework has them, or cut to a common size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import permutations
from typing import TYPE_CHECKING, Any

from modelglass.report import Values

if TYPE_CHECKING:
    from modelglass.report import Shape

MOST_AXES = 6


def axes_between(one: Shape, other: Shape) -> tuple[int, ...] | None:
    """Which axis of the one each axis of the other is; channels that move to an end come first."""
    rank = len(one)
    if rank != len(other) or rank > MOST_AXES or sorted(one) != sorted(other):
        return None
    last = (*range(2, rank), 1) if rank > 1 else ()
    first = (rank - 1, *range(1, rank - 1)) if rank > 1 else ()
    likely = [(0, *last), (0, *first), (*range(2, rank), 1, 0), tuple(reversed(range(rank)))]
    for axes in (*likely, *permutations(range(rank))):
        if len(axes) == rank and tuple(one[axis] for axis in axes) == other and axes != tuple(range(rank)):
            return axes
    return None


def turned(values: Values, axes: tuple[int, ...]) -> Values:
    """The same values with other axes; while they are held, all of them are in memory."""
    shape = tuple(values.shape[axis] for axis in axes)
    return _made_whole(values, shape, lambda array: array.transpose(axes))


def cropped(values: Values, shape: Shape) -> Values:
    """The first of the values along each axis."""
    if values.shape == shape:
        return values
    if values.shape[1:] == shape[1:]:  # whole rows follow each other
        return replace(values, shape=shape, stored=None)
    corner = tuple(slice(size) for size in shape)
    return _made_whole(values, shape, lambda array: array[corner])


def _made_whole(values: Values, shape: Shape, make: Callable[[Any], Any]) -> Values:
    """Values made of all of others; while they are held, these are in memory."""
    kept: list[Any] = []

    @contextmanager
    def held() -> Iterator[None]:
        with values.holding():
            array = values.read(0, values.numel).reshape(values.shape)
        kept.append(make(array).reshape(-1))
        try:
            yield
        finally:
            kept.clear()

    def read(start: int, stop: int) -> Any:
        return kept[0][start:stop]

    return replace(values, shape=shape, read=read, held=held, stored=None)
