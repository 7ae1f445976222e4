"""The report for a terminal: a tree table, totals, notes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from modelglass.renderers._escape import cell_width, fitted, printable
from modelglass.renderers._rows import Cells, Row, rows_of
from modelglass.renderers._totals import failure_lines, totals
from modelglass.renderers.columns import NUMBERS, default_columns, header, known_columns
from modelglass.report import Note, Report

GAP = 2
# Narrowest useful width of the columns that may be cut; the others are numbers and stay whole.
_FLEXIBLE = {"name": 18, "type": 10, "input": 12, "output": 14, "config": 12, "path": 16}

_DIM, _BOLD, _CYAN, _RED, _YELLOW = "2", "1", "36", "31", "33"
_COLUMN_STYLE = {"type": _CYAN, "input": _DIM, "config": _DIM, "share": _DIM}
_NOTE_STYLE = {"info": _DIM, "warning": _YELLOW, "error": _RED}


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
    paint = _painter(color)
    sections = [
        _table(report, width=width, depth=depth, fold=fold, columns=columns, paint=paint),
        _totals(report, width, paint),
    ]
    if report.run.failure is not None:
        lines = [
            part for line in failure_lines(report.run.failure) for part in _wrapped(printable(line), width)
        ]
        sections.append("\n".join(paint(line, _RED) for line in lines))
    notes = [note for note in report.notes if note.code != "forward-failed"]
    if notes:
        sections.append("\n".join(_note(note, width, paint) for note in notes))
    return "\n\n".join(sections) + "\n"


Paint = Callable[[str, str | None], str]


def _painter(color: bool) -> Paint:
    def paint(text: str, style: str | None) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if color and style and text.strip() else text

    return paint


def _table(
    report: Report,
    *,
    width: int,
    depth: int | None,
    fold: bool,
    columns: Sequence[str] | None,
    paint: Paint,
) -> str:
    chosen = known_columns(columns or default_columns(report, width))
    rows = rows_of(report, depth=depth, fold=fold)
    heads = [header(name) for name in chosen]
    for exact in (True, False):  # short numbers where exact ones would crowd out the shapes
        cells = Cells(report, exact=exact)
        table = [[_cell(cells, row, name) for name in chosen] for row in rows]
        widths = _natural_widths([heads, *table])
        needed = [
            min(w, _FLEXIBLE["config"]) if n == "config" else w for n, w in zip(chosen, widths, strict=True)
        ]
        if _line_width(needed) <= width:
            break
    widths = _cut(chosen, widths, width)
    lines = [_line(chosen, heads, widths, lambda name: _BOLD, paint), _rule(widths, paint)]
    for row, texts in zip(rows, table, strict=True):
        style = _row_style(cells, row)
        lines.append(_line(chosen, texts, widths, style, paint))
    lines.append(_rule(widths, paint))
    return "\n".join(lines)


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
        return lambda name: _RED
    if row.times > 1:
        return lambda name: _BOLD if name == "name" else _COLUMN_STYLE.get(name)
    return _COLUMN_STYLE.get


def _natural_widths(table: list[list[str]]) -> list[int]:
    return [max(map(cell_width, column)) for column in zip(*table, strict=True)]


def _line_width(widths: list[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _cut(chosen: list[str], widths: list[int], width: int) -> list[int]:
    """The widths with flexible columns cut until the line fits, always the one with most to spare."""
    widths = list(widths)
    for squeeze in (1, 2, 4):  # comfortable at first, then as far as it takes
        floors = {i: _FLEXIBLE[name] // squeeze for i, name in enumerate(chosen) if name in _FLEXIBLE}
        while floors and (excess := _line_width(widths) - width) > 0:
            spare, widest = max((widths[i] - floor, i) for i, floor in floors.items())
            if spare <= 0:
                break
            widths[widest] -= min(excess, max(1, spare // 4))
    return widths


def _line(
    chosen: list[str],
    texts: list[str],
    widths: list[int],
    style: Callable[[str], str | None],
    paint: Paint,
) -> str:
    parts = []
    for name, text, width in zip(chosen, texts, widths, strict=True):
        shown = fitted(text, width)
        padding = " " * (width - cell_width(shown))
        painted = paint(shown, style(name))
        parts.append(padding + painted if name in NUMBERS else painted + padding)
    return (" " * GAP).join(parts).rstrip()


def _rule(widths: list[int], paint: Paint) -> str:
    return paint("─" * _line_width(widths), _DIM)


def _totals(report: Report, width: int, paint: Paint) -> str:
    rows = totals(report)
    label_width = max(cell_width(label) for label, _ in rows) + GAP
    return "\n".join(
        paint(label.ljust(label_width), _DIM) + fitted(printable(text), max(20, width - label_width))
        for label, text in rows
    )


def _note(note: Note, width: int, paint: Paint) -> str:
    where = ", ".join(path or "(root)" for path in note.where[:4])
    more = f" and {len(note.where) - 4} more" if len(note.where) > 4 else ""
    text = f"{note.text} ({where}{more})" if where else note.text
    head = f"{note.severity} [{note.code}] "
    return paint("\n".join(_wrapped(head + printable(text), width)), _NOTE_STYLE[note.severity])


def _wrapped(text: str, width: int) -> list[str]:
    """The text in lines of `width` cells, the second and later ones indented."""
    lines, line = [], ""
    for word in text.split(" "):
        candidate = f"{line} {word}" if line.strip() else line + (word or " ")
        if line.strip() and cell_width(candidate) > width:
            lines.append(line)
            candidate = "    " + word
        line = candidate
    return [*lines, line]
