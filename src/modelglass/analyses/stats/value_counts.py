"""How often each value occurs: from this, quantiles and any histogram follow without another pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from modelglass.analyses.stats.layouts import RESOLUTION, Array, Doubles, Layout
from modelglass.report.stats import Histogram

# Up to so many values of a wide type are kept one by one, so that small tensors are described exactly: the
# many scales near 1 that norms have would all be the same at the resolution of the census.
KEPT_VALUES = 16_384
BINS = 64
_DENSE = 1 << 19  # the longest table that is filled rather than sorted


@dataclass(frozen=True)
class ValueCounts:
    """Distinct words in rising order, shortened by `shift` bits, and how often each was met."""

    layout: Layout
    keys: Array
    counts: Array
    shift: int = 0

    @classmethod
    def of_words(cls, layout: Layout, words: Array) -> ValueCounts:
        keys, counts = np.unique(words, return_counts=True)
        return cls(layout, keys.astype(np.uint64), counts.astype(np.int64))

    @classmethod
    def of_table(cls, layout: Layout, table: Array) -> ValueCounts:
        keys = np.flatnonzero(table)
        return cls(layout, keys.astype(np.uint64), table[keys].astype(np.int64), layout.shift)

    @property
    def exact(self) -> bool:
        return self.shift == 0

    @property
    def total(self) -> int:
        return int(self.counts.sum())

    def merge(self, other: ValueCounts) -> ValueCounts:
        """Of both sets together; past `KEPT_VALUES` wide values are counted shortened."""
        small = self.total + other.total <= KEPT_VALUES
        if self.layout.countable or (self.exact and other.exact and small):
            return self._add(other)
        return self.shorten()._add(other.shorten())

    def shorten(self) -> ValueCounts:
        """The same at the resolution of the census."""
        if self.shift == self.layout.shift:
            return self
        keys, counts = _sum_equal(self.keys >> np.uint64(self.layout.shift), self.counts)
        return ValueCounts(self.layout, keys, counts, self.layout.shift)

    def _add(self, other: ValueCounts) -> ValueCounts:
        keys = np.concatenate([self.keys, other.keys])
        counts = np.concatenate([self.counts, other.counts])
        return ValueCounts(self.layout, *_sum_equal(keys, counts), self.shift)

    def finite(self) -> tuple[Doubles, Doubles, Array]:
        """Groups of finite values in rising order: the ends each lies between, and how many it has."""
        near, far = self._ends()
        keep = np.isfinite(near)
        near, far, counts = near[keep], far[keep], self.counts[keep]
        low, high = np.minimum(near, far), np.maximum(near, far)
        order = np.argsort(low, kind="stable")
        return low[order], high[order], counts[order]

    def _ends(self) -> tuple[Doubles, Doubles]:
        """The values nearest to zero and farthest from it that each key may stand for."""
        decode, shift = self.layout.decode, np.uint64(self.shift)
        near = decode(self.keys << shift)
        if self.exact:
            return near, near
        far = decode((self.keys << shift) | ((np.uint64(1) << shift) - np.uint64(1)))
        if self.layout.integer:
            return np.copysign(np.ceil(np.abs(near)), near), np.trunc(far)
        tiny = np.abs(near) == 0  # zeros, and with them what is next to nothing
        return near, np.where(tiny, near, far)


def _sum_equal(keys: Array, counts: Array) -> tuple[Array, Array]:
    """Equal keys put together. Sums of counts are doubles on the way, exact up to 2**53."""
    if not keys.size or int(keys.max()) < _DENSE:
        table = np.bincount(keys.astype(np.int64), weights=counts)
        found = np.flatnonzero(table).astype(np.uint64)
        return found, table[found].astype(np.int64)
    found, places = np.unique(keys, return_inverse=True)
    return found, np.bincount(places, weights=counts).astype(np.int64)


class Distribution:
    """The finite values of a census, between a smallest and a largest one that are known exactly."""

    def __init__(self, census: ValueCounts, smallest: float, largest: float) -> None:
        low, high, self._counts = census.finite()
        self._low = np.clip(low, smallest, largest)
        self._high = np.clip(high, smallest, largest)
        self._before = np.concatenate([[0], np.cumsum(self._counts)])
        self._smallest, self._largest = smallest, largest
        self._number = int(self._before[-1])
        self.resolution = 0.0 if census.exact or smallest == largest else RESOLUTION

    def quantiles(self, shares: Sequence[float]) -> dict[float, float]:
        """The value below which each share lies, interpolated between neighbours as numpy does."""
        places = np.asarray(shares) * (self._number - 1)
        share = places - np.floor(places)
        first, second = self._values_at(np.floor(places)), self._values_at(np.ceil(places))
        # Their difference may be more than a double can hold.
        found = np.where(first == second, first, first * (1 - share) + second * share)
        return dict(zip(shares, (found + 0.0).tolist(), strict=True))  # no minus zero

    def _values_at(self, ranks: Array) -> Doubles:
        """The values at these places of the sorted order, spread evenly within their group."""
        group = np.searchsorted(self._before, ranks, side="right") - 1
        share = (ranks - self._before[group] + 0.5) / self._counts[group]
        low, high = self._low[group], self._high[group]
        found: Doubles = np.where(low == high, low, low * (1 - share) + high * share)
        found[ranks == 0] = self._smallest
        found[ranks == self._number - 1] = self._largest
        return found

    def histogram(self) -> Histogram:
        """Values counted in equally wide bins, the last of which includes its upper end."""
        if self._smallest == self._largest:
            return Histogram(low=self._smallest, high=self._largest, counts=(self._number,))
        empty = Histogram(low=self._smallest, high=self._largest, counts=(0,) * self._bins())
        inner = np.array(empty.edges[1:-1])
        below = np.concatenate([[0], self._number_below(inner), [self._number]])
        counts = tuple(np.diff(below).tolist())
        return Histogram(low=self._smallest, high=self._largest, counts=counts)

    def _bins(self) -> int:
        """How many bins: fewer where they would be narrower than groups, and tell what nobody knows."""
        if self.resolution == 0:
            return BINS
        widest = float((self._high / 2 - self._low / 2).max())
        bins = BINS
        while bins > 1 and (self._largest / 2 - self._smallest / 2) / bins < widest:
            bins //= 2
        return bins

    def _number_below(self, borders: Doubles) -> Array:
        """How many values lie below each border; a group that a border divides is divided in proportion."""
        group = np.searchsorted(self._high, borders, side="left")
        full = self._before[group]
        group = np.minimum(group, len(self._low) - 1)
        low, high = self._low[group], self._high[group]
        inside = (low < borders) & (borders <= high) & (low < high)
        low, high, borders = (np.where(inside, ends, 0.0) for ends in (low, high, borders))
        share = (borders - low) / np.where(inside, high - low, 1.0)
        divided = np.floor(share * self._counts[group])
        return np.asarray(full + divided.astype(np.int64))
