"""Reading a part of a tensor, piece by piece, into a `Partial`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from types import ModuleType

import numpy as np

from modelglass.analyses.stats.layouts import Array, Layout
from modelglass.analyses.stats.moments import Moments
from modelglass.analyses.stats.nonzero_slices import NonzeroSlices
from modelglass.analyses.stats.partial import Figures, PartialStats, earlier, span_both
from modelglass.analyses.stats.plain import BLOCK
from modelglass.analyses.stats.value_counts import KEPT_VALUES, ValueCounts
from modelglass.report.dtypes import nbytes_of
from modelglass.report.values import Values

CHUNK_NBYTES, CHUNK_VALUES = 8 << 20, 2 << 20  # read at once, whichever is less

# What a shortened word does not tell apart.
_STRANGE: dict[str, Callable[[Array], Array]] = {
    "nan": np.isnan,
    "positive_inf": np.isposinf,
    "negative_inf": np.isneginf,
}


def fold(values: Values, layout: Layout, start: int, stop: int, kernels: ModuleType) -> PartialStats:
    """What the elements from `start` to `stop` tell. `kernels` are the inner loops, plain or compiled."""
    reader = _Reader(values, layout, start, stop)
    if layout.countable:
        return _count(reader, kernels)
    if (stop - start) * layout.per_element <= KEPT_VALUES:
        return _keep(reader)
    return _describe(reader, kernels)


def _count(reader: _Reader, kernels: ModuleType) -> PartialStats:
    """Words that are few enough to be counted one by one."""
    layout = reader.layout
    table = np.zeros((2, 1 << layout.bits), np.uint32)
    zeros = strange = 0
    for words in reader:
        kernels.count_words(words, table)
        zeros, zeros_before = int(table[:, layout.zero_keys].sum()), zeros
        strange, strange_before = int(table[:, layout.strange_keys].sum()), strange
        reader.pass_by(words, zeros=zeros - zeros_before, strange=strange > strange_before)
    return reader.partial(ValueCounts.of_table(layout, table.sum(axis=0)))


def _keep(reader: _Reader) -> PartialStats:
    """Few values of a wide type, kept as they are."""
    layout = reader.layout
    pieces = [layout.words(np.empty(0, np.uint8))]
    for words in reader:
        reader.pass_by(words, zeros=_zeros(layout, words), strange=True)
        pieces.append(words)
    return reader.partial(ValueCounts.of_words(layout, np.concatenate(pieces)))


def _describe(reader: _Reader, kernels: ModuleType) -> PartialStats:
    """Many values of a wide type: moments and extremes from the values, the rest from shortened words."""
    layout = reader.layout
    table = np.zeros((2, 1 << layout.bits - layout.shift), np.uint32)
    extremes = np.array([np.inf, -np.inf])
    rows: list[Array] = []
    tallies: Counter[str] = Counter()
    tiny = strange = 0
    for words in reader:
        blocks = np.empty((-(-words.size // BLOCK), 5))
        kernels.fold_floats(words.view(f"f{words.itemsize}"), layout.shift, table, blocks, extremes)
        rows.append(blocks)
        tiny, tiny_before = int(table[:, layout.zero_keys].sum()), tiny
        strange, strange_before = int(table[:, layout.strange_keys].sum()), strange
        zeros = _zeros(layout, words) if tiny > tiny_before else 0
        tallies["zeros"] += zeros
        tallies["denormals"] += _denormals(layout, words, tiny - tiny_before - zeros)
        if strange > strange_before:
            tallies.update({kind: int(layout.where(test, words).sum()) for kind, test in _STRANGE.items()})
        reader.pass_by(words, zeros=zeros, strange=strange > strange_before)
    figures = Figures(
        moments=Moments.of_blocks(np.concatenate(rows)),
        low=float(extremes[0]),
        high=float(extremes[1]),
        **tallies,
    )
    return reader.partial(ValueCounts.of_table(layout, table.sum(axis=0)), figures)


def _zeros(layout: Layout, words: Array) -> int:
    return words.size - int(np.count_nonzero(layout.nonzero(words)))


def _denormals(layout: Layout, words: Array, of_double: int) -> int:
    """How many there are: `of_double`, or, of complex numbers, by the limit of their parts."""
    if not layout.magnitudes:
        return of_double
    limit = layout.smallest_normal
    return int(np.count_nonzero(layout.where(lambda numbers: (numbers > 0) & (numbers < limit), words)))


class _Reader:
    """A tensor's words piece by piece, and what has to do with their places."""

    def __init__(self, values: Values, layout: Layout, start: int, stop: int) -> None:
        shape = values.shape
        if layout.per_element > 1 and shape:
            shape = (*shape[:-1], shape[-1] * layout.per_element)
        self.layout = layout
        self._values = values
        nbytes = max(nbytes_of(values.dtype, 1) or 1, layout.bits // 8)  # stored, or converted
        step = min(CHUNK_VALUES // layout.per_element, CHUNK_NBYTES // nbytes)
        self._range = range(start, stop, max(1, step))
        self._place = start * layout.per_element
        self._alive = None if values.described == "stored" else NonzeroSlices.of(shape)
        self._first_nan: int | None = None
        self._first_inf: int | None = None
        self._integers: tuple[int, int] | None = None

    def __iter__(self) -> Iterator[Array]:
        for begin in self._range:
            raw = self._values.read(begin, min(begin + self._range.step, self._range.stop))
            if self.layout.integer and not self.layout.countable:
                whole = raw.view(self._values.dtype)  # a double would round its extremes
                self._integers = span_both(self._integers, (int(whole.min()), int(whole.max())))
            yield self.layout.words(raw)

    def pass_by(self, words: Array, *, zeros: int, strange: bool) -> None:
        """Note where in the piece rows are alive and the first NaN stands; look only where they may be."""
        if strange and (self._first_nan is None or self._first_inf is None):
            self._first_nan = earlier(self._first_nan, self._first(self.layout.where(np.isnan, words)))
            self._first_inf = earlier(self._first_inf, self._first(self.layout.where(np.isinf, words)))
        if self._alive is not None:
            self._alive.see(self._place, words, zeros, self.layout.nonzero)
        self._place += words.size

    def _first(self, which: Array) -> int | None:
        found = int(np.argmax(which))
        return self._place + found if which[found] else None

    def partial(self, census: ValueCounts, figures: Figures | None = None) -> PartialStats:
        return PartialStats(
            layout=self.layout,
            census=census,
            figures=figures,
            first_nan=self._first_nan,
            first_inf=self._first_inf,
            integers=self._integers,
            alive=self._alive,
        )
