"""Weight statistics, one line a tensor with its distribution drawn in it: text and Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from modelglass.errors import UsageError
from modelglass.renderers._escape import markdown, printable
from modelglass.renderers._markdown import head, line, note_items
from modelglass.renderers._terminal import CYAN, DIM, RED, Paint, Table, note_lines, painter, wrapped
from modelglass.page.units import shape_text, share
from modelglass.renderers.columns import known_columns
from modelglass.report import FINDINGS, Histogram, Report, Tensor, TensorStats
from modelglass.report.stats import described_shape

_QUANTILES = {"q01": 0.01, "median": 0.5, "q99": 0.99}
_FIGURES = ("mean", "std", "min", "max", "l2", "rms", "absmax", *_QUANTILES)
_TALLIES = ("count", "zeros", "nan", "inf", "denormals")
STATS_COLUMNS = ("name", "kind", "shape", "dtype", *_FIGURES, *_TALLIES, "described", "histogram")
STATS_SORTS = ("name", *_FIGURES, *_TALLIES)

_NUMBERS = frozenset({*_FIGURES, *_TALLIES})
_FLEXIBLE = {"name": 18, "shape": 10, "dtype": 8}
_BARS = "▁▂▃▄▅▆▇█"
BAR_CELLS = 16


@dataclass(frozen=True, slots=True)
class Row:
    """One tensor, under the first of its names."""

    tensor: Tensor
    stats: TensorStats | None


def render(
    report: Report,
    *,
    width: int = 100,
    color: bool = False,
    columns: Sequence[str] | str | None = None,
    sort: str | None = None,
    ascending: bool = False,
    top: int | None = None,
) -> str:
    """The statistics as text of at most `width` cells a line, and what was found."""
    paint = painter(color)
    rows = chosen(report, sort=sort, ascending=ascending, top=top)
    sections = [table(rows, width=width, paint=paint, columns=columns)]
    sections += ["\n".join(part for text in _summary(report, rows) for part in wrapped(text, width))]
    if report.notes:
        sections.append(note_lines(report.notes, width, paint))
    return "\n\n".join(sections) + "\n"


def render_markdown(
    report: Report,
    *,
    columns: Sequence[str] | str | None = None,
    sort: str | None = None,
    ascending: bool = False,
    top: int | None = None,
) -> str:
    """The statistics for a pull request."""
    rows = chosen(report, sort=sort, ascending=ascending, top=top)
    lines = [f"### {markdown(report.model.name)}", "", *markdown_table(rows, columns=columns)]
    lines += ["", *(f"{text}  " for text in _summary(report, rows))]
    if report.notes:
        lines += ["", *note_items(report.notes)]
    return "\n".join(lines) + "\n"


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
            rows.sort(key=_rank(sort, ascending))
    return rows if top is None else rows[:top]


def _rank(sort: str, ascending: bool) -> Callable[[Row], tuple[bool, float]]:
    """Largest first, or smallest; those without the figure come last either way."""

    def rank(row: Row) -> tuple[bool, float]:
        figure = _figure(row.stats, sort)
        return figure is None, (figure or 0) * (1 if ascending else -1)

    return rank


def _figure(stats: TensorStats | None, name: str) -> float | None:
    if stats is None:
        return None
    if name in _QUANTILES:
        return stats.quantiles.get(_QUANTILES[name])
    figure: float | None = getattr(stats, name)
    return figure


def table(
    rows: Sequence[Row],
    *,
    width: int,
    paint: Paint,
    columns: Sequence[str] | str | None = None,
) -> str:
    """The rows as a table for a terminal."""
    names = known_columns(columns or _default_columns(rows, width), STATS_COLUMNS)
    texts = [[printable(_cell(row, name)) for name in names] for row in rows]
    styles = [_style(row) for row in rows]
    heads = [_head(name) for name in names]
    return Table(names, heads, texts, numbers=_NUMBERS, flexible=_FLEXIBLE).text(width, styles, paint)


def markdown_table(rows: Sequence[Row], *, columns: Sequence[str] | str | None = None) -> Iterator[str]:
    """The rows as the lines of a Markdown table."""
    names = known_columns(columns or _default_columns(rows, 110), STATS_COLUMNS)
    yield from head(names, map(_head, names), _NUMBERS)
    for row in rows:
        # Browsers make one of several spaces, unless they are of the kind that does not break.
        yield line([markdown(_cell(row, name)).replace("  ", "\N{NO-BREAK SPACE}" * 2) for name in names])


def _head(column: str) -> str:
    return {"histogram": "distribution", "nan": "NaN", "inf": "Inf", "l2": "L2"}.get(column, column)


def _default_columns(rows: Sequence[Row], width: int) -> list[str]:
    """As many columns as a line of that width holds well; NaN and Inf where there are any."""
    columns = ["name", "shape"] if width >= 90 else ["name"]
    if width >= 110:
        columns.append("dtype")
    columns += ["mean", "std", "min", "max"] if width >= 80 else ["mean", "std"]
    strange = [column for column in ("nan", "inf") if any(_figure(row.stats, column) for row in rows)]
    if width >= (120 if strange else 100):
        columns.append("zeros")
    return [*columns, *strange, "histogram"]


def _style(row: Row) -> Callable[[str], str | None]:
    if row.stats is not None and (row.stats.nan or row.stats.inf):
        return lambda name: RED
    return {"histogram": CYAN, "shape": DIM, "dtype": DIM}.get


def _cell(row: Row, column: str) -> str:
    tensor, stats = row.tensor, row.stats
    if column in ("name", "kind", "dtype"):
        return str(getattr(tensor, column))
    if column == "shape":
        return shape_text(described_shape(tensor, stats))
    if stats is None:
        return "no values" if column == "histogram" else "–"
    if column == "described":
        return stats.described
    if column == "histogram":
        return bars(stats.histogram)
    if column == "zeros":
        return share(stats.zeros, stats.count)
    figure = _figure(stats, column)
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


def _summary(report: Report, rows: Sequence[Row]) -> Iterator[str]:
    number = len(chosen(report))
    shown = f"{len(rows):,} of {number:,} tensors" if len(rows) < number else f"{number:,} tensors"
    coarsest = max((row.stats.resolution for row in rows if row.stats is not None), default=0.0)
    precision = f"; quantiles of large 32- and 64-bit tensors to {coarsest:.1%}" if coarsest else ""
    yield f"{shown}, figures of finite values{precision}"
    if not any(note.code in FINDINGS for note in report.notes):
        yield "no findings"
