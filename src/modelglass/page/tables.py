"""The table of each command that is written where only one can be, as in CSV: exact, and complete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from modelglass.page import Table, first_rows

if TYPE_CHECKING:
    from modelglass.page.sections.distinct import UniqueChoice
    from modelglass.report import Comparison, Diff, Fit, Flow, Footprint, MemorySnapshot, Report, Scan, Unique


def inspect(
    report: Report,
    *,
    depth: int | None = None,
    columns: Sequence[str] | str | None = None,
    sort: str | None = None,
    top: int | None = None,
) -> Table:
    """A row for each module, equal ones one by one."""
    from modelglass.page.sections.layers import data

    return data(report, sort, top, depth=depth, columns=columns)


def stats(
    report: Report,
    *,
    columns: Sequence[str] | str | None = None,
    sort: str | None = None,
    ascending: bool = False,
    top: int | None = None,
) -> Table:
    """A row for each tensor."""
    from modelglass.page.sections import statistics

    return statistics.table(statistics.chosen(report, sort=sort, ascending=ascending, top=top), columns)


def unique(
    report: Report,
    unique: Unique,
    choice: UniqueChoice | None = None,
    *,
    columns: Sequence[str] | str | None = None,
) -> Table:
    """A row for each distinct module and operator."""
    from modelglass.page.sections import distinct

    return distinct.data(report, unique, choice or distinct.EVERYTHING, columns)


def memory(report: Report, *, sort: str | None = None, top: int | None = None) -> Table:
    """A row for each kernel, with what is held while it runs."""
    from modelglass.page.sections.memory import timeline

    return first_rows(timeline(report), sort, top)


def flow(flow: Flow) -> Table:
    """A row for each node."""
    from modelglass.page.sections.dataflow import nodes

    return nodes(flow)


def fit(fit: Fit, *, sort: str | None = None, top: int | None = None) -> Table:
    """A row for the step as it is, and one for each change."""
    from modelglass.page.sections.fit import everything

    return first_rows(everything(fit), sort, top)


def footprint(footprint: Footprint, *, top: int | None = None) -> Table:
    """A row for each length of the context."""
    from modelglass.page.sections.footprint import lengths

    return first_rows(lengths(footprint), None, top)


def compare(
    comparison: Comparison, *, all: bool = False, sort: str | None = None, top: int | None = None
) -> Table:
    """A row for each difference; with `all`, for each part."""
    from modelglass.page.sections.differences import differences, side_by_side

    return first_rows(side_by_side(comparison) if all else differences(comparison), sort, top)


def diff(diff: Diff, *, all: bool = False, sort: str | None = None, top: int | None = None) -> Table:
    """A row for each tensor that changed; with `all`, for each tensor."""
    from modelglass.page.sections.changes import tensors

    return first_rows(tensors(diff, all=all), sort, top)


def scan(scan: Scan, *, redact: bool = False, top: int | None = None) -> Table:
    """A row for each file, each finding and each global."""
    from modelglass.page.redact import redact_noun
    from modelglass.page.sections.findings import data

    return first_rows(data(redact_noun(scan) if redact else scan), None, top)


def snapshot(snapshot: MemorySnapshot, *, sort: str | None = None, top: int | None = None) -> Table:
    """A row for each place in the code that had made what was held at a peak."""
    from modelglass.page.sections.snapshot import data

    return first_rows(data(snapshot), sort, top)
