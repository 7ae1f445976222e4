"""How far apart elements lie, in elements, when they lie without gaps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from modelglass.report import Shape


def row_major(shape: Shape) -> Shape:
    """The last axis runs fastest, as in C.

    >>> row_major((2, 3, 4))
    (12, 4, 1)
    """
    return tuple(reversed(_growing(reversed(shape))))


def column_major(shape: Shape) -> Shape:
    """The first axis runs fastest, as in Fortran."""
    return tuple(_growing(shape))


def _growing(sizes: Iterable[int]) -> list[int]:
    strides, step = [], 1
    for size in sizes:
        strides.append(step)
        step *= max(size, 1)
    return strides
