"""Which rows and columns of a matrix hold anything but zeros."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from modelglass.analyses.stats.layouts import Array
from modelglass.report import Shape

LONGEST_SIDE = 1 << 22  # of longer sides no record is kept: it would take more memory than we promise


@dataclass(frozen=True)
class Alive:
    """Marks for slices of the first axis (rows) and of the second (columns) that have a nonzero value."""

    rows: Array
    columns: Array
    tail: int  # elements of one row and one column

    @classmethod
    def of(cls, shape: Shape) -> Alive | None:
        """Nothing seen yet; None where there are no rows and columns, or too many."""
        if len(shape) < 2 or prod(shape) == 0 or max(shape[:2]) > LONGEST_SIDE:
            return None
        return cls(np.zeros(shape[0], bool), np.zeros(shape[1], bool), prod(shape[2:]))

    def see_all(self, start: int, stop: int) -> None:
        """Elements `start` to `stop` are all nonzero."""
        row = len(self.columns) * self.tail
        self.rows[start // row : -(-stop // row)] = True
        if stop - start >= row:
            self.columns[:] = True
        else:
            first, last = start // self.tail, -(-stop // self.tail)
            self.columns[np.arange(first, last) % len(self.columns)] = True

    def see(self, start: int, nonzero: Array) -> None:
        """The elements from `start` on are nonzero where this says so."""
        row = len(self.columns) * self.tail
        stop = start + nonzero.size
        first, last = min(-(-start // row) * row, stop), max(stop // row * row, start)
        if first >= last:  # no whole row in it
            self._see_scattered(start, nonzero)
            return
        self._see_scattered(start, nonzero[: first - start])
        self._see_scattered(last, nonzero[last - start :])
        rows = nonzero[first - start : last - start].reshape(-1, len(self.columns), self.tail)
        whole = np.any(rows, axis=2)
        self.rows[first // row : last // row] |= np.any(whole, axis=1)
        if not self.columns.all():
            self.columns[:] |= np.any(whole, axis=0)

    def _see_scattered(self, start: int, nonzero: Array) -> None:
        cells = (np.flatnonzero(nonzero) + start) // self.tail
        self.rows[cells // len(self.columns)] = True
        self.columns[cells % len(self.columns)] = True

    @property
    def dead_rows(self) -> Array:
        return np.flatnonzero(~self.rows)

    @property
    def dead_columns(self) -> Array:
        return np.flatnonzero(~self.columns)

    def merged(self, other: Alive) -> Alive:
        return Alive(self.rows | other.rows, self.columns | other.columns, self.tail)
