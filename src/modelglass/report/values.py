"""Where a tensor's values can be read. Values travel beside the `Model`, never in it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from math import prod
from typing import Any

from modelglass.report.model import Shape
from modelglass.report.stats import Described


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """The bytes of a tensor as its file has them, from the first to the last.

    Tensors of the same `form` and the same bytes have the same values.
    """

    form: str
    nbytes: int
    read: Callable[[int, int], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """A tensor's stored elements, in row-major order, a piece at a time.

    `read(start, stop)` gives those elements as a one-dimensional numpy array that holds their bytes: of
    whatever numpy type has the right size, because `dtype` says what the bytes mean. It must be safe to
    call from several threads, inside `holding()`, which the thread that asks for the values enters before
    the first piece and leaves after the last: what has yet to be computed is computed there, once.

    Two tensors that share a storage have the same `elements` exactly when they show all of the same values.
    """

    dtype: str
    shape: Shape
    read: Callable[[int, int], Any]
    described: Described = "values"
    held: Callable[[], AbstractContextManager[None]] | None = None  # None: there is nothing to prepare
    elements: object = None
    stored: Stored | None = None  # where the bytes that stand for all of it follow each other

    @property
    def numel(self) -> int:
        return prod(self.shape)

    def holding(self) -> AbstractContextManager[None]:
        """The time during which pieces are read."""
        return nullcontext() if self.held is None else self.held()
