"""The report for a pull request: GitHub's Markdown, nothing that needs a script."""

from __future__ import annotations

from collections.abc import Sequence

from modelglass.renderers import weights
from modelglass.renderers._escape import markdown
from modelglass.renderers._notes import note_text
from modelglass.renderers._rows import Cells, Row, rows_of
from modelglass.renderers._totals import failure_lines, totals
from modelglass.renderers.columns import NUMBERS, default_columns, header, known_columns
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
    chosen = known_columns(columns or default_columns(report, PAGE))
    cells = Cells(report)
    lines = [
        f"### {markdown(report.model.name)}",
        "",
        _line([header(name) for name in chosen]),
        _line(["---:" if name in NUMBERS else "---" for name in chosen]),
    ]
    rows = rows_of(report, depth=depth, fold=fold)
    lines += [_line([_cell(cells, row, name) for name in chosen]) for row in rows]
    lines += ["", _line(["total", ""]), _line(["---", "---"])]
    lines += [_line([markdown(label.strip()), markdown(text)]) for label, text in totals(report)]
    if report.run.failure is not None:
        lines += ["", *(f"> {markdown(line)}  " for line in failure_lines(report.run.failure))]
    if report.stats is not None:
        lines += ["", *weights.markdown_table(weights.chosen(report))]
    notes = [note for note in report.notes if note.code != "forward-failed"]
    if notes:
        lines += ["", *(f"- **{note.code}**: {markdown(note_text(note))}" for note in notes)]
    return "\n".join(lines) + "\n"


def _cell(cells: Cells, row: Row, column: str) -> str:
    text = markdown(cells.text(row, column))
    return "&emsp;" * row.depth + text if column == "name" else text


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"
