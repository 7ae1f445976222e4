"""The modules of a model as a table: a tree with equal blocks in one row, or the largest first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from modelglass.page import Cell, Column, RowTone, Table, Tone, parse_columns, sort_key, value_of
from modelglass.page.sections.layer_cells import Cells, Row, rows_of
from modelglass.page.units import shape_text
from modelglass.report.layers import saw_calls

if TYPE_CHECKING:
    from modelglass.report import Report

COLUMNS = (
    "name",
    "type",
    "path",
    "input",
    "output",
    "tensors",
    "part",
    "dtype",
    "params",
    "trainable",
    "share",
    "buffers",
    "size",
    "macs",
    "calls",
    "config",
)
SORTS = ("params", "trainable", "buffers", "size", "macs", "calls", "type", "path")
_NUMBERS = frozenset({"params", "trainable", "share", "buffers", "size", "macs", "calls"})
_HEADS = {"share": "%", "macs": "MACs", "part": "of the whole"}
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
DATA_COLUMNS = (*COLUMNS, *(name for name in _DATA if name not in COLUMNS))
_RECORDED = {"size": "nbytes"}  # columns that a record has under another name


def listed(
    report: Report,
    *,
    width: int,
    depth: int | None = None,
    fold: bool = True,
    columns: Sequence[str] | str | None = None,
    sort: str | None = None,
    top: int | None = None,
) -> Table:
    """The table as a tree, or by a figure where an order or a number of rows is asked for."""
    if sort or top:
        return by_figure(report, sort, top, width=width, depth=depth, columns=columns)
    return tree(report, width=width, depth=depth, fold=fold, columns=columns)


def tree(
    report: Report, *, width: int, depth: int | None, fold: bool, columns: Sequence[str] | str | None
) -> Table:
    """The table as a tree, with columns that fit into a line of that width unless others are asked for."""
    rows = rows_of(report, depth=depth, fold=fold)
    table = _table(report, rows, parse_columns(columns or default_columns(report, width), COLUMNS))
    return table._replace(guides=[row.guides for row in rows])


def by_figure(
    report: Report,
    sort: str | None,
    top: int | None,
    *,
    width: int,
    depth: int | None,
    columns: Sequence[str] | str | None,
) -> Table:
    """Every module by its path, the largest of a figure first."""
    names = parse_columns(columns or default_columns(report, width), COLUMNS)
    names = ["path", *(name for name in names if name not in ("name", "path"))]
    if sort is not None and sort not in names:
        names.append(sort)
    modules = {module.path: module for module in report.model.modules}
    records = _records(report, sort, depth)
    table = _table(report, [Row((modules[each["path"]],), "", ()) for each in records[:top]], names)
    return table._replace(more=f"{top:,} of {len(records):,} modules" if top and top < len(records) else "")


def data(
    report: Report,
    sort: str | None,
    top: int | None,
    *,
    depth: int | None,
    columns: Sequence[str] | str | None,
) -> Table:
    """A row for each module, with exact figures."""
    names = parse_columns(columns or _DATA, DATA_COLUMNS)
    cells = Cells(report)
    modules = {module.path: module for module in report.model.modules}

    def cell(record: dict[str, Any], name: str) -> Cell:
        recorded = _RECORDED.get(name, name)
        if recorded in record:
            value = record[recorded]
        else:
            value = value_of(cells.cell(Row((modules[record["path"]],), record["name"], ()), name))
        return Cell("", ", ".join(map(shape_text, value)) if isinstance(value, tuple) else value)

    records = _records(report, sort, depth)[:top]
    rows = [[cell(record, name) for name in names] for record in records]
    return Table([Column(name, name) for name in names], rows)


def default_columns(report: Report, width: int) -> list[str]:
    """As many columns as a line of that width holds well."""
    if report.checkpoint is not None:
        return _file_columns(report, width)
    ran = saw_calls(report)
    columns = ["name"]
    if width >= 60:
        columns.append("type")
    if report.engine is not None and report.engine.shards and width >= 90:
        columns.append("part")
    if ran:
        columns += ["input", "output"] if width >= 110 else ["output"]
    columns.append("params")
    if width >= (120 if "part" in columns else 60):
        columns.append("share")
    if ran:
        columns.append("macs")
    roomy = 180 if "part" in columns else 130 if ran else 100
    if width >= roomy:
        columns.append("config")
    return columns


def _file_columns(report: Report, width: int) -> list[str]:
    """Of a file, what its tensors are like; few files have the types of modules."""
    columns = ["name"]
    if width >= 60 and any(module.type for module in report.model.modules):
        columns.append("type")
    if width >= 60:
        columns.append("tensors")
    if width >= 100:
        columns.append("dtype")
    columns.append("params")
    if width >= 60:
        columns.append("share")
    if width >= 80:
        columns.append("size")
    return columns


def _records(report: Report, sort: str | None, depth: int | None) -> list[dict[str, Any]]:
    """The modules down to a depth as records, the largest of a figure first."""
    parse_columns([sort] if sort else [], SORTS)
    records = [dict(layer) for layer in report.layers if depth is None or _depth(layer["path"]) <= depth]
    if sort is not None:
        records.sort(key=lambda record: sort_key(record[_RECORDED.get(sort, sort)]))
    return records


def _depth(path: str) -> int:
    return path.count(".") + 1 if path else 0


def _table(report: Report, rows: Sequence[Row], names: Sequence[str]) -> Table:
    cells = Cells(report)
    columns = [
        Column(
            name,
            _HEADS.get(name, name),
            number=name in _NUMBERS,
            least=_LEAST.get(name),
            tone=_TONES.get(name),
        )
        for name in names
    ]
    texts = [[cells.cell(row, name) for name in names] for row in rows]
    return Table(columns, texts, tones=[_tone(cells, row) for row in rows])


def _tone(cells: Cells, row: Row) -> RowTone:
    if cells.has_failed(row):
        return "alarm"
    return {"name": "strong"} if row.times > 1 else None
