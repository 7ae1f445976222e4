"""The largest size that fits, from the memory of as few sizes as possible."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from modelglass.report.memory import Coverage, Method

LARGEST = 2**20  # batch size or sequence length that a search goes to
GUESSES = 8  # figures after which a search goes by halves


@dataclass(frozen=True)
class Figure:
    """What a change needs in memory, or why that cannot be known.

    `given` are the bytes of its inputs, `made` those of everything else that lives during the run.
    """

    nbytes: int | None
    method: Method = "exact"
    problem: str | None = None
    coverage: tuple[Coverage, ...] = ()
    given: int | None = None
    made: int | None = None

    def fits(self, device_nbytes: int) -> bool:
        return self.nbytes is not None and self.nbytes <= device_nbytes


@dataclass(frozen=True)
class LargestSize:
    """The largest size that fits, None when not even 1 does, and what it and one more need."""

    size: int | None = None
    figure: Figure | None = None
    next: Figure | None = None  # None: the search ended at its limit

    @property
    def nbytes(self) -> int | None:
        return None if self.figure is None else self.figure.nbytes

    @property
    def next_nbytes(self) -> int | None:
        return None if self.next is None else self.next.nbytes


def find_largest(
    figure_at: Callable[[int], Figure], start: int, device_nbytes: int, *, limit: int = LARGEST
) -> LargestSize:
    """The largest size from 1 to `limit` that fits, by as few figures as it takes.

    Sizes are guessed from figures of other sizes; none is believed before it was itself found to fit, and one
    more was found not to. A size that cannot be worked out does not fit.
    """
    search = _Search(device_nbytes, limit)
    guess = min(start, limit)
    while search.high - search.low > 1:
        search.learn(guess, figure_at(guess))
        guess = search.guess()
    return LargestSize(search.low or None, search.known.get(search.low), search.known.get(search.high))


class _Search:
    """A size that fits, one that does not, and where between them to look next."""

    def __init__(self, device_nbytes: int, limit: int) -> None:
        self._device_nbytes, self._limit = device_nbytes, limit
        self.known: dict[int, Figure] = {}
        self.low, self.high = 0, limit + 1
        self._stride = 1

    def learn(self, size: int, figure: Figure) -> None:
        self.known[size] = figure
        if figure.fits(self._device_nbytes):
            self.low = size
        else:
            self.high = size

    def guess(self) -> int:
        """The next size to look at."""
        low, high = self.low, self.high
        if low == 0:
            return 1
        if len(self.known) == 1:
            return min(2 * low, high - 1)
        if len(self.known) >= GUESSES:
            return (low + high) // 2
        bends = len(self.known) % 2 == 1  # jumps look like bends, so straight lines have their turn as well
        points = _nearest(self.known, low, high)[: 3 if bends else 2]
        crossing = _crossing(points, low, high, self._device_nbytes)
        if low < crossing < high - 1:
            self._stride = 1
            return crossing
        if crossing > low and high <= self._limit and self.known[high].nbytes is None:
            return _between(low, high)
        return self._beside(crossing)

    def _beside(self, crossing: int) -> int:
        """A step from an edge that the curve takes for the answer, twice as long each time that it is not."""
        step, self._stride = self._stride, 2 * self._stride
        if 2 * step > self.high - self.low:
            return (self.low + self.high) // 2
        return self.low + step if crossing == self.low else self.high - step


def _between(low: int, high: int) -> int:
    """Where to look when it is not memory that ends it: tables are made in powers of two."""
    first, last = low.bit_length(), (high - 1).bit_length() - 1
    if first <= last:
        return int(2 ** ((first + last) // 2))
    return low + 1 if low.bit_count() == 1 else (low + high) // 2


def _nearest(known: dict[int, Figure], low: int, high: int) -> list[tuple[int, int]]:
    """Sizes with what they need, those at the edge first."""
    points = [(size, figure.nbytes) for size, figure in known.items() if figure.nbytes is not None]
    return sorted(points, key=lambda point: min(abs(point[0] - low), abs(point[0] - high)))


def _crossing(points: list[tuple[int, int]], low: int, high: int, device_nbytes: int) -> int:
    """The largest size for which the curve through the points stays within the device."""
    while high - low > 1:
        middle = (low + high) // 2
        if _on_curve(points, middle) <= device_nbytes:
            low = middle
        else:
            high = middle
    return low


def _on_curve(points: list[tuple[int, int]], at: int) -> Fraction:
    """The polynomial through the points: memory grows with the batch, and with the square of a sequence."""
    total = Fraction(0)
    for size, nbytes in points:
        share = Fraction(nbytes)
        for other, _ in points:
            if other != size:
                share *= Fraction(at - other, size - other)
        total += share
    return total
