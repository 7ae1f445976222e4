"""What a part of a tensor shows, how two parts are merged, and what the whole comes to."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from modelglass.analyses.stats.layouts import Array, Layout
from modelglass.analyses.stats.moments import Moments
from modelglass.analyses.stats.nonzero_slices import NonzeroSlices
from modelglass.analyses.stats.value_counts import Distribution, ValueCounts
from modelglass.report.stats import Described, TensorStats

QUANTILES = (0.001, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999)


@dataclass(frozen=True)
class Figures:
    """What a shortened census cannot tell: moments and extremes of the finite values, and exact tallies."""

    moments: Moments = field(default_factory=Moments)
    low: float = np.inf
    high: float = -np.inf
    nan: int = 0
    positive_inf: int = 0
    negative_inf: int = 0
    zeros: int = 0
    denormals: int = 0

    @classmethod
    def of(cls, census: ValueCounts) -> Figures:
        """From a census that is exact."""
        values, counts = census.layout.decode(census.keys), census.counts

        def met(which: Array) -> int:
            return int(counts[which].sum())

        finite = np.isfinite(values)
        magnitudes = np.abs(values)
        some = bool(finite.any())
        return cls(
            moments=Moments.of(values[finite], counts[finite]),
            low=float(values[finite].min()) if some else np.inf,
            high=float(values[finite].max()) if some else -np.inf,
            nan=met(np.isnan(values)),
            positive_inf=met(values == np.inf),
            negative_inf=met(values == -np.inf),
            zeros=met(values == 0),
            denormals=met((magnitudes > 0) & (magnitudes < census.layout.smallest_normal)),
        )

    def merge(self, other: Figures) -> Figures:
        return Figures(
            moments=self.moments.merge(other.moments),
            low=min(self.low, other.low),
            high=max(self.high, other.high),
            nan=self.nan + other.nan,
            positive_inf=self.positive_inf + other.positive_inf,
            negative_inf=self.negative_inf + other.negative_inf,
            zeros=self.zeros + other.zeros,
            denormals=self.denormals + other.denormals,
        )


@dataclass(frozen=True)
class PartialStats:
    """All that is known of some of a tensor's values. `figures` is None while the census tells everything."""

    layout: Layout
    census: ValueCounts
    figures: Figures | None = None
    first_nan: int | None = None
    first_inf: int | None = None
    integers: tuple[int, int] | None = None  # smallest and largest, where a double would round them
    alive: NonzeroSlices | None = None

    def merge(self, other: PartialStats) -> PartialStats:
        """Of both parts together."""
        census = self.census.merge(other.census)
        figures = None if census.exact else self._figures().merge(other._figures())
        alive = self.alive.merge(other.alive) if self.alive and other.alive else None
        return PartialStats(
            layout=self.layout,
            census=census,
            figures=figures,
            first_nan=earlier(self.first_nan, other.first_nan),
            first_inf=earlier(self.first_inf, other.first_inf),
            integers=span_both(self.integers, other.integers),
            alive=alive,
        )

    def _figures(self) -> Figures:
        return Figures.of(self.census) if self.figures is None else self.figures

    def finish(self, described: Described) -> TensorStats:
        """The statistics of the values seen."""
        figures = self._figures()
        stats = TensorStats(
            count=self.census.total,
            nan=figures.nan,
            positive_inf=figures.positive_inf,
            negative_inf=figures.negative_inf,
            zeros=figures.zeros,
            denormals=figures.denormals,
            quantiles={},
            first_nan=self.first_nan,
            first_inf=self.first_inf,
            described="magnitudes" if self.layout.magnitudes and described == "values" else described,
        )
        stats = stats if self.alive is None else _with_dead(stats, self.alive)
        return self._with_finite(stats, figures) if stats.finite else stats

    def _with_finite(self, stats: TensorStats, figures: Figures) -> TensorStats:
        """What only finite values have: moments, extremes, a distribution."""
        low, high = figures.low + 0.0, figures.high + 0.0  # no minus zero
        distribution = Distribution(self.census, low, high)
        if self.layout.integer:
            low, high = self.integers or (int(low), int(high))
        return replace(
            stats,
            mean=figures.moments.average,
            std=figures.moments.deviation,
            min=low,
            max=high,
            l2=figures.moments.norm,
            quantiles=distribution.quantiles(QUANTILES),
            histogram=distribution.histogram(),
            resolution=distribution.resolution,
        )


def _with_dead(stats: TensorStats, alive: NonzeroSlices) -> TensorStats:
    rows, columns = alive.dead_rows, alive.dead_columns
    return replace(
        stats,
        dead_rows=rows.size,
        dead_columns=columns.size,
        first_dead_row=_first(rows),
        first_dead_column=_first(columns),
    )


def earlier(one: int | None, other: int | None) -> int | None:
    """The smaller of two places, either of which may be unknown."""
    return min((place for place in (one, other) if place is not None), default=None)


def span_both(one: tuple[int, int] | None, other: tuple[int, int] | None) -> tuple[int, int] | None:
    """The range that covers both."""
    if one is None or other is None:
        return one or other
    return min(one[0], other[0]), max(one[1], other[1])


def _first(places: Array) -> int | None:
    return int(places[0]) if places.size else None
