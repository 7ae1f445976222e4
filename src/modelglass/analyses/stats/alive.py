"""Which rows and columns of a matrix hold anything but zeros."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np

from modelglass.analyses.stats.layouts import Array
from modelglass.report import Shape

_SLICE = 1 << 17  # elements whose places are worked out at once
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

    def see(self, start: int, size: int, zeros: int, nonzero: Callable[[slice], Array]) -> None:
        """The next `size` elements have so many zeros; `nonzero` marks, in a part of them, what is none.

        It is asked only where a row or column may be dead: one that is takes as many zeros as it is long.
        """
        row = len(self.columns) * self.tail
        stop = start + size
        first, last = min(-(-start // row) * row, stop), max(stop // row * row, start)
        if zeros == 0:
            self._see_all(start, stop)
        elif first >= last:  # no whole row in it
            self._see_scattered(start, nonzero(slice(0, size)))
        else:
            self._see_scattered(start, nonzero(slice(0, first - start)))
            self._see_scattered(last, nonzero(slice(last - start, size)))
            whole = (last - first) // row
            if zeros < row and (zeros < whole * self.tail or self.columns.all()):
                self._see_all(first, last)
            else:
                marks = nonzero(slice(first - start, last - start))
                self._see_rows(first // row, marks.reshape(whole, len(self.columns), self.tail))

    def _see_all(self, start: int, stop: int) -> None:
        """Every row and column that these elements touch has a nonzero one."""
        row = len(self.columns) * self.tail
        self.rows[start // row : -(-stop // row)] = True
        if stop - start >= row:
            self.columns[:] = True
        else:
            self.columns[np.arange(start // self.tail, -(-stop // self.tail)) % len(self.columns)] = True

    def _see_rows(self, first: int, marks: Array) -> None:
        cells = np.any(marks, axis=2) if self.tail > 1 else marks[:, :, 0]
        self.rows[first : first + len(cells)] |= np.any(cells, axis=1)
        if not self.columns.all():
            self.columns[:] |= np.any(cells, axis=0)

    def _see_scattered(self, start: int, marks: Array) -> None:
        for begin in range(0, marks.size, _SLICE):
            places = np.flatnonzero(marks[begin : begin + _SLICE])
            cells = (places + (start + begin)) // self.tail
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
