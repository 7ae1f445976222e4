"""A changed tensor as explanations see it: its values on both sides, all of them or whole rows of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from modelglass.analyses.diff.numbers import floats, rounded, rounding_steps

if TYPE_CHECKING:
    from modelglass.analyses.diff.numbers import Array
    from modelglass.report import Values

MOST = 1 << 20  # elements of one side that explanations look at
MOST_WHOLE = 1 << 22  # where the order of elements matters, and nothing less than all of them tells
_SHORT = ("bfloat16", "float16")
_SAMPLE = 1024
_ROWS, _COLUMNS = 256, 512  # of a large matrix: as many as the rank of an adapter needs
_BLOCKS = 16  # of rows, spread over a tensor that is too large to be held


@dataclass(frozen=True)
class Change:
    """Values of a, and what became of them. `share` is the part of the elements that was looked at."""

    a: Array
    b: Array
    dtype_a: str
    dtype_b: str
    share: float = 1.0
    stored_a: str = ""  # how they are packed
    stored_b: str = ""

    @cached_property
    def difference(self) -> Array:
        """What was added to a, with 64 bits."""
        return self.b.astype(np.float64) - self.a.astype(np.float64)

    @cached_property
    def steps(self) -> Array:
        """How far apart the numbers are that b could have had, also before it was cast to a wider type."""
        magnitudes = np.maximum(np.abs(self.b), np.abs(self.a))
        found = np.zeros(self.b.shape)
        for dtype in dict.fromkeys((self.dtype_b, self.dtype_a, *_SHORT)):
            steps = rounding_steps(magnitudes, dtype)
            if steps is not None and (dtype == self.dtype_b or _has_all(dtype, self.b)):
                found = np.maximum(found, steps)
        return found

    def on(self, a: Array, b: Array | None = None) -> Change:
        """The change of other values into the same."""
        return replace(self, a=a, b=self.b if b is None else b)


def _has_all(dtype: str, numbers: Array) -> bool:
    """Whether the type has all of these numbers."""
    sample = numbers.reshape(-1)[:_SAMPLE]
    return bool((rounded(sample, dtype) == sample).all() and (rounded(numbers, dtype) == numbers).all())


def load(a: Values, b: Values, stored_a: str = "", stored_b: str = "", *, most: int = MOST) -> Change:
    """The values of a pair of one shape; of more than `most`, blocks of rows spread over it."""
    shape = b.shape if len(b.shape) >= 2 else (1, b.numel)
    rows = shape[0]
    width = b.numel // rows if rows else 0
    chosen = _chosen(rows, width, most)
    arrays = []
    for side in (a, b):
        with side.holding():
            pieces = [floats(side, start * width, stop * width) for start, stop in chosen]
        found = np.concatenate(pieces) if len(pieces) > 1 else pieces[0]
        found = found.reshape(-1, *shape[1:])
        arrays.append(found if b.numel <= most or len(shape) != 2 else found[:, :_COLUMNS])
    one, other = arrays
    share = other.size / b.numel if b.numel else 1.0
    return Change(one, other, a.dtype, b.dtype, share, stored_a, stored_b)


def _chosen(rows: int, width: int, most: int) -> list[tuple[int, int]]:
    """Ranges of rows."""
    if rows * width <= most:
        return [(0, rows)]
    blocks = max(1, min(_BLOCKS, rows, most // width))
    each = max(1, min(_ROWS, most // width) // blocks)
    starts = np.linspace(0, rows - each, blocks).astype(int).tolist()
    return [(start, start + each) for start in starts]
