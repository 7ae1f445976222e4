"""Which rows and columns of a matrix hold anything but zeros."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np

from modelglass.analyses.stats.layouts import Array
from modelglass.report import Shape

_SLICE = 1 << 17  # elements whose places are worked out at once
_PROBES = 24
LONGEST_SIDE = 1 << 22  # of longer sides no record is kept: it would take more memory than we promise


@dataclass(frozen=True)
class NonzeroSlices:
    """Marks for slices of the first axis (rows) and of the second (columns) that have a nonzero value."""

    rows: Array
    columns: Array
    tail: int  # elements of one row and one column

    @classmethod
    def of(cls, shape: Shape) -> NonzeroSlices | None:
        """Nothing seen yet; None where there are no rows and columns, or too many."""
        if len(shape) < 2 or prod(shape) == 0 or max(shape[:2]) > LONGEST_SIDE:
            return None
        return cls(np.zeros(shape[0], bool), np.zeros(shape[1], bool), prod(shape[2:]))

    def see(self, start: int, words: Array, zeros: int, nonzero: Callable[[Array], Array]) -> None:
        """The next words have so many zeros among them; `nonzero` marks those that are none.

        It is asked only where a row or column may be dead: one that is takes as many zeros as it is long.
        """
        row = len(self.columns) * self.tail
        stop = start + words.size
        first, last = min(-(-start // row) * row, stop), max(stop // row * row, start)
        if zeros == 0:
            self._see_all(start, stop)
        elif first >= last:  # no whole row in it
            self._see_scattered(start, nonzero(words))
        else:
            self._see_scattered(start, nonzero(words[: first - start]))
            self._see_scattered(last, nonzero(words[last - start :]))
            rows = words[first - start : last - start].reshape(-1, len(self.columns), self.tail)
            if zeros < min(row, len(rows) * self.tail):
                self._see_all(first, last)
            else:
                self._see_rows(first // row, rows, nonzero)

    def _see_all(self, start: int, stop: int) -> None:
        """Every row and column that these elements touch has a nonzero one."""
        row = len(self.columns) * self.tail
        self.rows[start // row : -(-stop // row)] = True
        if stop - start >= row:
            self.columns[:] = True
        else:
            self.columns[np.arange(start // self.tail, -(-stop // self.tail)) % len(self.columns)] = True

    def _see_rows(self, first: int, rows: Array, nonzero: Callable[[Array], Array]) -> None:
        alive = np.ones(len(rows), bool)
        alive[_dead(rows, nonzero)] = False
        self.rows[first : first + len(rows)] |= alive
        unseen = np.flatnonzero(~self.columns)
        if unseen.size:
            self.columns[unseen] = True
            self.columns[unseen[_dead(rows.swapaxes(0, 1)[unseen], nonzero)]] = False

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

    def merge(self, other: NonzeroSlices) -> NonzeroSlices:
        return NonzeroSlices(self.rows | other.rows, self.columns | other.columns, self.tail)


def _dead(lines: Array, nonzero: Callable[[Array], Array]) -> Array:
    """Which lines hold only zeros. A few probes rule out nearly all others, even of a half-empty matrix."""
    left = np.arange(len(lines))
    for place in range(min(_PROBES, lines.shape[1])):
        if not left.size:
            break
        left = left[~nonzero(lines[left, place, 0])]
    empty: Array = ~np.any(nonzero(lines[left]), axis=(1, 2))
    return left[empty]
