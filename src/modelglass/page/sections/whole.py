"""A report as a whole: each of its parts that has data as a section."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from modelglass.page import Block, Facts, Figures, Heading, Notes, Text
from modelglass.page.sections import checkpoint, layers, overview
from modelglass.page.sections.totals import cost_rows, count_rows, failure_lines, run_rows

if TYPE_CHECKING:
    from modelglass.report import Flow, Report, Scan, Unique


def blocks(
    report: Report, flow: Flow | None, unique: Unique | None, scan: Scan | None, tree: Mapping[str, Any]
) -> Iterator[Block]:
    """From what people ask first to what they look up. `tree` says which rows and columns layers have."""
    yield Heading(report.model.name, about=overview.kind_text(report), level=1)
    yield Text([overview.verdict(report, scan)])
    yield Figures(list(overview.figures(report)))
    yield from _noted(report)
    if report.model.tensors or len(report.model.modules) > 1:
        yield _section("Layers", "layers")
        yield layers.listed(report, **tree)
        yield Facts([*count_rows(report), *cost_rows(report)], head="total")
    yield from _flow(flow)
    yield from _memory(report)
    yield from _weights(report)
    yield from _distinct(report, unique)
    yield from _file(report, scan)
    yield from _run(report)


def _section(text: str, key: str) -> Heading:
    return Heading(text, level=2, key=key)


def _noted(report: Report) -> Iterator[Block]:
    """The reason why a run ended, and the notes by severity."""
    failure = report.run.failure
    notes = [note for note in report.notes if note.code != "forward-failed"]
    if failure is None and not notes:
        return
    yield _section("Findings and notes", "notes")
    if failure is not None:
        yield Text(failure_lines(failure), tone="alarm", quoted=True)
    if notes:
        yield Notes(overview.by_severity(notes))


def _flow(flow: Flow | None) -> Iterator[Block]:
    if flow is not None:
        from modelglass.page.sections import dataflow

        yield _section("Data flow", "flow")
        drawn = dataflow.blocks(flow, None)
        yield from (block for block in drawn if not isinstance(block, (Heading, Notes)))


def _memory(report: Report) -> Iterator[Block]:
    if report.memory is not None:
        from modelglass.page.sections import memory

        yield _section("Memory", "memory")._replace(about=memory.what_ran(report, report.memory))
        yield from memory.blocks(report, (), None)


def _weights(report: Report) -> Iterator[Block]:
    if report.stats is not None:
        from modelglass.page.sections import statistics

        rows = statistics.chosen(report)
        yield _section("Weights", "weights")
        yield Text(list(statistics.summary(report, rows)), together=True)
        yield statistics.table(rows)


def _distinct(report: Report, unique: Unique | None) -> Iterator[Block]:
    if unique is not None:
        from modelglass.page.sections.distinct import UniqueChoice, blocks

        yield _section("Distinct modules and operators", "distinct")
        yield from blocks(report, unique, UniqueChoice(sort="macs"), None)


def _file(report: Report, scan: Scan | None) -> Iterator[Block]:
    if report.checkpoint is not None:
        yield _section("File", "file")
        rows = [*checkpoint.file_rows(report, report.checkpoint)]
        yield Facts([*rows, *checkpoint.more_rows(report, report.checkpoint)])
    if scan is not None:
        from modelglass.page.sections import findings

        yield _section("Scan", "scan")
        yield from (block for block in findings.blocks(scan) if not _is_title(block))


def _is_title(block: Block) -> bool:
    return isinstance(block, Heading) and block.of_document


def _run(report: Report) -> Iterator[Block]:
    if report.checkpoint is not None:
        return  # what is known of it stands in its own section
    yield _section("Run", "run")
    if report.engine is not None:
        from modelglass.page.sections import engine

        yield from engine.blocks(report, report.engine)
    yield Facts([("made from", report.model.source), *run_rows(report)])
