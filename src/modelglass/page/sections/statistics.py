"""Weight statistics, a row a tensor with its distribution drawn in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from modelglass.errors import UsageError
from modelglass.page import DATA_ONLY, Cell, Column, RowTone, Table, Tone, parse_columns, sort_key
from modelglass.page.units import shape_text, share
from modelglass.report import FINDINGS, Histogram, Report, Tensor, TensorStats
from modelglass.report.stats import described_shape

_QUANTILES = {"q01": 0.01, "median": 0.5, "q99": 0.99}
_FIGURES = ("mean", "std", "min", "max", "l2", "rms", "absmax", *_QUANTILES)
_TALLIES = ("count", "zeros", "nan", "inf", "denormals")
STATS_COLUMNS = ("name", "kind", "shape", "dtype", *_FIGURES, *_TALLIES, "described", "histogram")
STATS_SORTS = ("name", *_FIGURES, *_TALLIES)

_LEAST = {"name": 18, "shape": 10, "dtype": 8}
_TONES: dict[str, Tone] = {"histogram": "accent", "shape": "quiet", "dtype": "quiet"}
_HEADS = {"histogram": "distribution", "nan": "NaN", "inf": "Inf", "l2": "L2"}
# Cells of a line from which a column is shown that nobody asked for; the others are only asked for.
_FROM_WIDTH = {
    "name": 0,
    "shape": 90,
    "dtype": 110,
    "mean": 0,
    "std": 0,
    "min": 80,
    "max": 80,
    "histogram": 0,
}
_DOCUMENT_WIDTH = 110
_BARS = "▁▂▃▄▅▆▇█"
BAR_CELLS = 16


@dataclass(frozen=True, slots=True)
class Row:
    """One tensor, under the first of its names."""

    tensor: Tensor
    stats: TensorStats | None


def chosen(
    report: Report, *, sort: str | None = None, ascending: bool = False, top: int | None = None
) -> list[Row]:
    """The tensors to show, each memory once: in the model's order, or the largest of a figure first."""
    stats = report.stats or {}
    tied = report.counts.tied if report.counts else {}
    rows = [
        Row(tensor, stats[tensor.name])
        for tensor in report.model.tensors
        if tensor.name in stats and tied.get(tensor.name) not in stats
    ]
    if sort is not None:
        if sort not in STATS_SORTS:
            raise UsageError(f"cannot sort by {sort!r}", hint="sort by " + ", ".join(STATS_SORTS))
        if sort == "name":
            rows.sort(key=lambda row: row.tensor.name)
        else:
            rows.sort(key=lambda row: sort_key(_figure(row.stats, sort), ascending=ascending))
    return rows if top is None else rows[:top]


def _figure(stats: TensorStats | None, name: str) -> float | None:
    if stats is None:
        return None
    if name in _QUANTILES:
        return stats.quantiles.get(_QUANTILES[name])
    figure: float | None = getattr(stats, name)
    return figure


def table(rows: Sequence[Row], columns: Sequence[str] | str | None = None) -> Table:
    """The rows with the columns that are asked for, else with those that fit."""
    names = STATS_COLUMNS if columns is None else parse_columns(columns, STATS_COLUMNS)
    widths = _default_widths(rows) if columns is None else dict.fromkeys(names, 0)
    shown = [
        Column(
            name,
            _HEADS.get(name, name),
            number=name in _FIGURES or name in _TALLIES,
            least=_LEAST.get(name),
            from_width=widths.get(name, DATA_ONLY),
            tone=_TONES.get(name),
        )
        for name in names
    ]
    tones: list[RowTone] = [
        "alarm" if row.stats is not None and (row.stats.nan or row.stats.inf) else None for row in rows
    ]
    cells = [[_cell(row, name) for name in names] for row in rows]
    return Table(shown, cells, tones=tones, document_width=_DOCUMENT_WIDTH)


def _default_widths(rows: Sequence[Row]) -> dict[str, int]:
    """From which width on each column is shown; NaN and Inf where there are any."""
    strange = [name for name in ("nan", "inf") if any(_figure(row.stats, name) for row in rows)]
    return {**_FROM_WIDTH, "zeros": 120 if strange else 100, **dict.fromkeys(strange, 0)}


def _cell(row: Row, column: str) -> Cell | str:
    tensor, stats = row.tensor, row.stats
    if column in ("name", "kind", "dtype"):
        return str(getattr(tensor, column))
    if column == "shape":
        return shape_text(described_shape(tensor, stats))
    if stats is None:
        return "no values" if column == "histogram" else Cell("–", None)
    if column == "described":
        return stats.described
    if column == "histogram":
        return bars(stats.histogram)
    figure = _figure(stats, column)
    return Cell(_text(column, figure, stats), figure)


def _text(column: str, figure: float | None, stats: TensorStats) -> str:
    if column == "zeros":
        return share(stats.zeros, stats.count)
    if column in _TALLIES:
        return f"{figure:,}" if figure else "–"
    return "–" if figure is None else f"{figure:.3g}"


def bars(histogram: Histogram | None, cells: int = BAR_CELLS) -> str:
    """The histogram as a row of bars; a blank where no value lies, the lowest bar where any does."""
    if histogram is None:
        return ""
    if histogram.low == histogram.high:
        return f"all {histogram.low:g}"
    number = len(histogram.counts)
    if number < cells:  # wide bins are several cells wide
        sums = [histogram.counts[cell * number // cells] for cell in range(cells)]
    else:
        step = number // cells
        sums = [sum(histogram.counts[i : i + step]) for i in range(0, cells * step, step)]
    highest = max(sums)
    return "".join(" " if not n else _BARS[(8 * n - 1) // highest] for n in sums)


def summary(report: Report, rows: Sequence[Row]) -> Iterator[str]:
    """How many tensors there are, how exact the figures, and whether something was found."""
    number = len(chosen(report))
    shown = f"{len(rows):,} of {number:,} tensors" if len(rows) < number else f"{number:,} tensors"
    coarsest = max((row.stats.resolution for row in rows if row.stats is not None), default=0.0)
    precision = f"; quantiles of large 32- and 64-bit tensors to {coarsest:.1%}" if coarsest else ""
    yield f"{shown}, figures of finite values{precision}"
    if not any(note.code in FINDINGS for note in report.notes):
        yield "no findings"
