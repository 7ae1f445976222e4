"""The columns a module table may have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modelglass.page.sections.layer_cells import saw_calls

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
NUMBERS = frozenset({"params", "trainable", "share", "buffers", "size", "macs", "calls"})
_HEADERS = {"share": "%", "macs": "MACs", "part": "of the whole"}


def header(column: str) -> str:
    """What stands above the column."""
    return _HEADERS.get(column, column)


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
    """Of a file, what its tensors are like; few files say what type a module is of."""
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
