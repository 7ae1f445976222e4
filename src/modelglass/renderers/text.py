"""The report for a terminal: a tree table, totals, notes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from modelglass.page import known_columns
from modelglass.page.sections.totals import failure_lines, totals
from modelglass.renderers._escape import cell_width, fitted, printable
from modelglass.renderers._rows import Cells, Row, rows_of
from modelglass.renderers._terminal import (
    BOLD,
    CYAN,
    DIM,
    GAP,
    RED,
    Paint,
    Table,
    note_lines,
    painter,
    wrapped,
)
from modelglass.renderers.columns import COLUMNS, NUMBERS, default_columns, header

if TYPE_CHECKING:
    from modelglass.report import Engine, Report

# Narrowest useful width of the columns that may be cut; the others are numbers and stay whole.
_FLEXIBLE = {
    "name": 18,
    "type": 10,
    "input": 12,
    "output": 14,
    "tensors": 16,
    "part": 44,
    "config": 12,
    "path": 16,
}
MOST_LINES = 4  # of one total
_COLUMN_STYLE = {"type": CYAN, "input": DIM, "tensors": DIM, "part": DIM, "config": DIM, "share": DIM}


def render(
    report: Report,
    *,
    width: int = 100,
    depth: int | None = None,
    fold: bool = True,
    columns: Sequence[str] | None = None,
    color: bool = False,
) -> str:
    """The report as text of at most `width` cells a line."""
    paint = painter(color)
    sections = [
        _table(report, width=width, depth=depth, fold=fold, columns=columns, paint=paint),
        _labelled(totals(report), width, paint),
    ]
    if report.engine is not None:
        sections += _engine(report, report.engine, width, paint)
    if report.run.failure is not None:
        lines = [
            part for line in failure_lines(report.run.failure) for part in wrapped(printable(line), width)
        ]
        sections.append("\n".join(paint(line, RED) for line in lines))
    if report.stats is not None:
        from modelglass.page import Page
        from modelglass.page.sections import statistics
        from modelglass.renderers.pages import text

        table = statistics.table(statistics.chosen(report))
        sections.append(text.render(Page([table]), width=width, color=color).rstrip("\n"))
    notes = [note for note in report.notes if note.code != "forward-failed"]
    if notes:
        sections.append(note_lines(notes, width, paint))
    return "\n\n".join(sections) + "\n"


def _table(
    report: Report,
    *,
    width: int,
    depth: int | None,
    fold: bool,
    columns: Sequence[str] | None,
    paint: Paint,
) -> str:
    chosen = known_columns(columns or default_columns(report, width), COLUMNS)
    rows = rows_of(report, depth=depth, fold=fold)
    heads = [header(name) for name in chosen]
    for exact in (True, False):  # short numbers where exact ones would crowd out the shapes
        cells = Cells(report, exact=exact)
        texts = [[_cell(cells, row, name) for name in chosen] for row in rows]
        table = Table(chosen, heads, texts, numbers=NUMBERS, flexible=_FLEXIBLE)
        if table.width(at_least=("config",)) <= width:
            break
    return table.text(width, [_row_style(cells, row) for row in rows], paint)


def _cell(cells: Cells, row: Row, column: str) -> str:
    text = printable(cells.text(row, column))
    return _guide(row) + text if column == "name" else text


def _guide(row: Row) -> str:
    """The lines that draw the tree."""
    if not row.guides:
        return ""
    *above, more = row.guides
    return "".join("│ " if follows else "  " for follows in above) + ("├ " if more else "└ ")


def _row_style(cells: Cells, row: Row) -> Callable[[str], str | None]:
    if cells.failed(row):
        return lambda name: RED
    if row.times > 1:
        return lambda name: BOLD if name == "name" else _COLUMN_STYLE.get(name)
    return _COLUMN_STYLE.get


def _engine(report: Report, engine: Engine, width: int, paint: Paint) -> Iterator[str]:
    """What serves the model, and what its ranks hold."""
    from modelglass.page.sections import engine as told

    yield _labelled(list(told.engine_rows(report, engine)), width, paint)
    rows = told.rank_rows(engine)
    if not rows:
        return
    left_out: tuple[str, ...] = ()
    for count in range(len(told.SPARE) + 1):
        left_out = told.SPARE[:count]
        kept = [index for index, name in enumerate(told.COLUMNS) if name not in left_out]
        columns, heads = [told.COLUMNS[i] for i in kept], [told.HEADS[i] for i in kept]
        texts = [[row[i] for i in kept] for row in rows]
        table = Table(columns, heads, texts, numbers=told.NUMBERS, flexible={})
        if table.width() <= width:
            break
    yield table.text(width, [lambda name: None] * len(rows), paint)


def _labelled(rows: Sequence[tuple[str, str]], width: int, paint: Paint) -> str:
    label_width = max(cell_width(label) for label, _ in rows) + GAP
    return "\n".join(
        paint(label.ljust(label_width), DIM) + text
        for label, long in rows
        for label, text in _folded(label, printable(long), max(20, width - label_width))
    )


def _folded(label: str, text: str, width: int) -> Iterator[tuple[str, str]]:
    """A text on as many lines as it takes, up to a few; only the first has the label."""
    lines = [line.strip() for line in wrapped(text, width)]
    for index, line in enumerate(lines[:MOST_LINES]):
        cut = index + 1 == MOST_LINES and len(lines) > MOST_LINES
        yield label if index == 0 else "", fitted(f"{line} …" if cut else line, width)
