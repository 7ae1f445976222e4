"""Values of a tensor in the order of axes that another framework has."""

from __future__ import annotations

from collections.abc import Iterator
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
    kept: list[Any] = []

    @contextmanager
    def held() -> Iterator[None]:
        with values.holding():
            array = values.read(0, values.numel).reshape(values.shape)
        kept.append(array.transpose(axes).reshape(-1))
        try:
            yield
        finally:
            kept.clear()

    def read(start: int, stop: int) -> Any:
        return kept[0][start:stop]

    shape = tuple(values.shape[axis] for axis in axes)
    return replace(values, shape=shape, read=read, held=held, stored=None)
