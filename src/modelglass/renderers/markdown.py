"""The report for a pull request: GitHub's Markdown, nothing that needs a script."""

from __future__ import annotations

from collections.abc import Sequence

from modelglass.page import Page, known_columns
from modelglass.page.sections import engine as _engine, statistics
from modelglass.page.sections.totals import failure_lines, totals
from modelglass.renderers._escape import markdown
from modelglass.renderers._markdown import head, line, note_items
from modelglass.renderers._rows import Cells, Row, rows_of
from modelglass.renderers.columns import COLUMNS, NUMBERS, default_columns, header
from modelglass.renderers.pages import markdown as pages
from modelglass.report import Report

PAGE = 110  # a page is wide enough for inputs and outputs, too narrow for settings


def render(
    report: Report,
    *,
    depth: int | None = None,
    fold: bool = True,
    columns: Sequence[str] | None = None,
) -> str:
    """The report as Markdown: a heading, the module table, totals, notes."""
    chosen = known_columns(columns or default_columns(report, PAGE), COLUMNS)
    cells = Cells(report)
    lines = [
        f"### {markdown(report.model.name)}",
        "",
        *head(chosen, map(header, chosen), NUMBERS),
    ]
    rows = rows_of(report, depth=depth, fold=fold)
    lines += [line([_cell(cells, row, name) for name in chosen]) for row in rows]
    lines += ["", line(["total", ""]), line(["---", "---"])]
    lines += [line([markdown(label.strip()), markdown(text)]) for label, text in totals(report)]
    if report.engine is not None:
        lines += ["", line(["served by", ""]), line(["---", "---"])]
        rows_of_engine = _engine.engine_rows(report, report.engine)
        lines += [line([markdown(label.strip()), markdown(text)]) for label, text in rows_of_engine]
        lines += ["", *head(_engine.COLUMNS, _engine.HEADS, _engine.NUMBERS)]
        lines += [line(map(markdown, row)) for row in _engine.rank_rows(report.engine)]
    if report.run.failure is not None:
        lines += ["", *(f"> {markdown(text)}  " for text in failure_lines(report.run.failure))]
    if report.stats is not None:
        table = statistics.table(statistics.chosen(report))
        lines += ["", pages.render(Page([table])).rstrip("\n")]
    notes = [note for note in report.notes if note.code != "forward-failed"]
    if notes:
        lines += ["", *note_items(notes)]
    return "\n".join(lines) + "\n"


def _cell(cells: Cells, row: Row, column: str) -> str:
    text = markdown(cells.text(row, column))
    return "&emsp;" * row.depth + text if column == "name" else text
