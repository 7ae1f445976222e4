"""Tensors that are equal bit by bit without sharing memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from modelglass.analyses.stats.fold import CHUNK_NBYTES
from modelglass.report import Tensor, TensorStats, Values
from modelglass.report.dtypes import nbytes_of

ENOUGH = 16  # elements below which two tensors may well be equal by chance


def duplicates(
    tensors: Iterable[Tensor], stats: Mapping[str, TensorStats | None], values: Mapping[str, Values | str]
) -> Iterator[tuple[Tensor, Tensor]]:
    """Each tensor that repeats an earlier one, with that one.

    Only tensors with equal statistics are compared, so hardly any value is read a second time. Constant
    tensors are all alike, and are not meant here.
    """
    alike: dict[object, list[Tensor]] = defaultdict(list)
    for tensor in tensors:
        known = stats[tensor.name]
        if known is None or known.constant or known.count < ENOUGH or known.described == "stored":
            continue  # equal integers with unequal scales are not the same weights
        originals = alike[tensor.dtype, tensor.shape, _signature(known)]
        original = next((o for o in originals if _equal(values[o.name], values[tensor.name])), None)
        if original is None:
            originals.append(tensor)
        else:
            yield tensor, original


def _signature(stats: TensorStats) -> object:
    counts = stats.histogram.counts if stats.histogram else ()
    return stats.count, stats.mean, stats.std, stats.min, stats.max, stats.zeros, stats.nan, counts


def _equal(one: Values | str, other: Values | str) -> bool:
    if isinstance(one, str) or isinstance(other, str) or one.shape != other.shape:
        return False
    step = max(1, CHUNK_NBYTES // (nbytes_of(one.dtype, 1) or 1))
    with one.holding(), other.holding():
        return all(
            np.array_equal(
                one.read(start, min(start + step, one.numel)).view(np.uint8),
                other.read(start, min(start + step, one.numel)).view(np.uint8),
            )
            for start in range(0, one.numel, step)
        )
