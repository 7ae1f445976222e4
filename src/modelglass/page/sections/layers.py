"""The modules of a model as a table: a tree, equal blocks in one row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from modelglass.page import Cell, Column, RowTone, Table, Tone, first_rows, known_columns
from modelglass.page.columns import COLUMNS, NUMBERS, default_columns, header
from modelglass.page.sections.layer_cells import Cells, Row, rows_of
from modelglass.page.units import shape_text

if TYPE_CHECKING:
    from modelglass.report import Report, Shape

# Narrowest useful width of the columns that may be cut; the others are numbers and stay whole.
_LEAST = {
    "name": 18,
    "type": 10,
    "input": 12,
    "output": 14,
    "tensors": 16,
    "part": 44,
    "config": 12,
    "path": 16,
}
_TONES: dict[str, Tone] = {
    "type": "accent",
    "input": "quiet",
    "tensors": "quiet",
    "part": "quiet",
    "config": "quiet",
    "share": "quiet",
}
_DATA = (
    "path",
    "type",
    "input",
    "output",
    "params",
    "trainable",
    "share",
    "buffers",
    "nbytes",
    "macs",
    "flops",
    "saved_nbytes",
    "calls",
)
_FIGURES = {"size": "nbytes"}  # columns of the table that data has by another name
SORTS = ("params", "trainable", "buffers", "size", "macs", "calls", "type", "path")


def tree(
    report: Report, *, width: int, depth: int | None, fold: bool, columns: Sequence[str] | None
) -> Table:
    """The table as a tree, with columns that fit into a line of that width unless others are asked for."""
    rows = rows_of(report, depth=depth, fold=fold)
    table = _table(report, rows, known_columns(columns or default_columns(report, width), COLUMNS))
    return table._replace(guides=[row.guides for row in rows])


def by_figure(
    report: Report, sort: str | None, top: int | None, *, width: int, columns: Sequence[str] | None
) -> Table:
    """Every module by its path, the largest of a figure first."""
    known_columns([sort] if sort else [], SORTS)
    rows = [row for row in rows_of(report, fold=False) if row.alias_of is None]
    records = {layer["path"]: dict(layer) for layer in report.layers}
    names = known_columns(columns or default_columns(report, width), COLUMNS)
    names = ["path", *(name for name in names if name not in ("name", "path"))]
    if sort is not None and sort not in names:
        names.append(sort)
    table = _table(report, rows, names)
    place = names.index(sort) if sort else 0
    values = [records[row.module.path].get(_FIGURES.get(names[place], names[place])) for row in rows]
    cells = [
        [*row[:place], Cell(str(row[place]), value), *row[place + 1 :]]
        for row, value in zip(table.rows, values, strict=True)
    ]
    return first_rows(table._replace(rows=cells, brief=None), sort, top)


def data(report: Report, sort: str | None, top: int | None) -> Table:
    """A row for each module, with exact figures."""
    sort = None if sort is None else _FIGURES.get(sort, sort)
    rows = [[_datum(dict(layer)[name]) for name in _DATA] for layer in report.layers]
    return first_rows(Table([Column(name, name) for name in _DATA], rows), sort, top)


def _datum(value: object) -> Cell:
    text = _shapes(value) if isinstance(value, tuple) else value
    return Cell("" if text is None else str(text), text)


def _shapes(shapes: tuple[Shape | None, ...]) -> str:
    return ", ".join(map(shape_text, shapes))


def _table(report: Report, rows: Sequence[Row], names: Sequence[str]) -> Table:
    cells = Cells(report)
    columns = [
        Column(name, header(name), number=name in NUMBERS, least=_LEAST.get(name), tone=_TONES.get(name))
        for name in names
    ]
    return Table(
        columns,
        _texts(cells, rows, names),
        tones=[_tone(cells, row) for row in rows],
        brief=lambda: _texts(Cells(report, exact=False), rows, names),
    )


def _texts(cells: Cells, rows: Sequence[Row], names: Sequence[str]) -> Sequence[Sequence[str]]:
    return [[cells.text(row, name) for name in names] for row in rows]


def _tone(cells: Cells, row: Row) -> RowTone:
    if cells.failed(row):
        return "alarm"
    return {"name": "strong"} if row.times > 1 else None
