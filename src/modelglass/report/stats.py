"""What the weights are like: a tensor's values in a few figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from modelglass.report.model import Shape, Tensor

# "stored": what is kept in memory or in the file is described, not what it stands for (packed, quantized,
# sparse). "magnitudes": absolute values of complex numbers. "dequantized": what packed weights stand for.
Described: TypeAlias = Literal["values", "stored", "magnitudes", "dequantized"]

ENOUGH_TO_REACH = 100  # values below which their outermost ones mean nothing

# Findings about weights, by the stable code of their notes.
FINDINGS = {
    "nan": "values that are not a number",
    "inf": "values that are infinite",
    "zero": "parameters that are zero everywhere",
    "constant": "parameters that have one value everywhere",
    "dead-rows": "slices of the first axis that are all zero",
    "dead-columns": "slices of the second axis that are all zero",
    "outlier": "a value far beyond the range that 98 % of the others lie in",
    "scale": "parameters whose typical size is below 1e-6 or above 100",
    "denormal": "more than a tenth of the values too small for full precision",
    "duplicate": "tensors equal to another one, bit by bit, without being tied to it",
    "mixed-dtypes": "parameters of several floating-point types",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """How many values fall into each of equally wide bins from `low` to `high`, both included.

    A constant tensor has one bin.
    """

    low: float
    high: float
    counts: tuple[int, ...]

    @property
    def edges(self) -> tuple[float, ...]:
        """The borders of the bins, one more than there are bins."""
        bins = len(self.counts)
        inner = (self.low * (1 - i / bins) + self.high * (i / bins) for i in range(1, bins))
        return (self.low, *inner, self.high)


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorStats:
    """One tensor's values.

    `mean` to `histogram` describe the finite values; what is not finite is counted. A figure is None where
    there is nothing to compute it from (the deviation of one value) or a double cannot hold it.
    """

    count: int
    nan: int = 0
    positive_inf: int = 0
    negative_inf: int = 0
    zeros: int = 0
    denormals: int = 0
    mean: float | None = None
    std: float | None = None  # unbiased: divided by one less than the number of values
    min: float | None = None
    max: float | None = None
    l2: float | None = None
    quantiles: Mapping[float, float]
    histogram: Histogram | None = None
    # By how much, relative to the values next to it, a quantile may be off, and so may the borders by which
    # values were put into bins. 0: both are exact.
    resolution: float = 0.0
    first_nan: int | None = None  # where it stands, counted in row-major order
    first_inf: int | None = None
    dead_rows: int | None = None  # slices of the first axis that are all zero; None: not a matrix, or too big
    dead_columns: int | None = None  # the same for the second axis
    first_dead_row: int | None = None
    first_dead_column: int | None = None
    described: Described = "values"

    @property
    def inf(self) -> int:
        return self.positive_inf + self.negative_inf

    @property
    def finite(self) -> int:
        return self.count - self.nan - self.inf

    @property
    def absmax(self) -> float | None:
        return None if self.min is None or self.max is None else max(abs(self.min), abs(self.max))

    @property
    def rms(self) -> float | None:
        """The root of the mean square: the scale of the values."""
        return None if self.l2 is None or not self.finite else self.l2 / self.finite**0.5

    @property
    def reach(self) -> float | None:
        """How far the farthest value is from the median, in halves of the range of the middle 98 %.

        None where there are too few values, or too many alike, to tell.
        """
        if self.min is None or self.max is None or self.finite < ENOUGH_TO_REACH:
            return None
        middle = self.quantiles[0.5]
        usual = (self.quantiles[0.99] / 2 - self.quantiles[0.01] / 2) or abs(middle)
        return max(self.max / usual - middle / usual, middle / usual - self.min / usual) if usual else None

    @property
    def constant(self) -> bool:
        """Whether all values are finite and the same."""
        return self.min is not None and self.min == self.max and self.finite == self.count


def described_shape(tensor: Tensor, stats: TensorStats | None) -> Shape | None:
    """The shape of what is described: for weights that were dequantized, the one that they stand for."""
    if tensor.packing is not None and stats is not None and stats.described == "dequantized":
        return tensor.packing.logical_shape
    return tensor.shape
