"""The page of each command: which sections it has, in which order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from modelglass.page import Block, Facts, Heading, Notes, Page, Text, sort_page

if TYPE_CHECKING:
    from modelglass.page.sections.distinct import UniqueChoice
    from modelglass.report import Comparison, Diff, Fit, Flow, Footprint, MemorySnapshot, Report, Scan, Unique


def inspect(
    report: Report,
    *,
    width: int = 110,
    depth: int | None = None,
    fold: bool = True,
    columns: Sequence[str] | str | None = None,
    sort: str | None = None,
    top: int | None = None,
) -> Page:
    """What is in a model, layer by layer. `width` of a line says how many columns there are."""
    from modelglass.page.sections import layers
    from modelglass.page.sections.totals import totals

    table = layers.listed(report, width=width, depth=depth, fold=fold, columns=columns, sort=sort, top=top)
    heading = Heading(report.model.name, of_document=True)
    return Page([heading, table, Facts(totals(report), head="total", most=4), *_inspect(report)])


def whole(
    report: Report,
    flow: Flow | None = None,
    unique: Unique | None = None,
    scan: Scan | None = None,
    width: int = 120,
    **layers: Any,
) -> Page:
    """Everything that a report has, and what was worked out from it, one section below the other.

    `layers` says which rows and columns of them there are, as `inspect` has it.
    """
    from modelglass.page.sections.whole import blocks

    return Page(list(blocks(report, flow, unique, scan, {"width": width, **layers})))


def _inspect(report: Report) -> Iterator[Block]:
    if report.engine is not None:
        from modelglass.page.sections import engine

        yield from engine.blocks(report, report.engine)
    yield from _failure(report)
    if report.stats is not None:
        from modelglass.page.sections import statistics

        yield statistics.table(statistics.chosen(report))
    yield from _notes(report)


def memory(
    report: Report, *, contexts: Sequence[int] = (), sort: str | None = None, top: int | None = None
) -> Page:
    """What a pass or a training step takes in memory; `contexts` are lengths in tokens for the cache."""
    return sort_page(Page(list(_memory(report, contexts, top))), sort, top)


def _memory(report: Report, contexts: Sequence[int], top: int | None) -> Iterator[Block]:
    from modelglass.page.sections import memory

    ran = memory.what_ran(report, report.memory)
    yield Heading(f"{report.model.name} ({report.model.source}): {ran}", cut=True)
    if report.run.failure is None:
        yield from memory.blocks(report, contexts, top)
    yield from _failure(report)
    yield from _notes(report)


def _failure(report: Report) -> Iterator[Block]:
    if report.run.failure is not None:
        from modelglass.page.sections.totals import failure_lines

        yield Text(failure_lines(report.run.failure), tone="alarm", quoted=True)


def _notes(report: Report) -> Iterator[Block]:
    notes = [note for note in report.notes if note.code != "forward-failed"]
    if notes:
        yield Notes(notes)


def fit(fit: Fit, *, sort: str | None = None, top: int | None = None) -> Page:
    """Whether it fits, and what would make it fit."""
    from modelglass.page.sections.fit import blocks

    return sort_page(Page(list(blocks(fit))), sort, top)


def footprint(footprint: Footprint, *, top: int | None = None) -> Page:
    """What the files of a model take in memory, and what of it fits."""
    from modelglass.page.sections.footprint import blocks

    return sort_page(Page(list(blocks(footprint))), None, top)


def compare(
    comparison: Comparison, *, all: bool = False, sort: str | None = None, top: int | None = None
) -> Page:
    """Two models side by side."""
    from modelglass.page.sections.differences import blocks

    return sort_page(Page(list(blocks(comparison, all=all))), sort, top)


def diff(diff: Diff, *, all: bool = False, sort: str | None = None, top: int | None = None) -> Page:
    """What changed between the values of two models."""
    from modelglass.page.sections.changes import blocks

    return sort_page(Page(list(blocks(diff, all=all))), sort, top)


def stats(
    report: Report,
    *,
    columns: Sequence[str] | str | None = None,
    sort: str | None = None,
    ascending: bool = False,
    top: int | None = None,
) -> Page:
    """What the weights are like, and what was found in them."""
    from modelglass.page.sections import statistics

    rows = statistics.chosen(report, sort=sort, ascending=ascending, top=top)
    return Page(
        [
            Heading(report.model.name, of_document=True),
            statistics.table(rows, columns),
            Text(list(statistics.summary(report, rows)), together=True),
            *([Notes(report.notes)] if report.notes else []),
        ]
    )


def unique(
    report: Report,
    unique: Unique,
    choice: UniqueChoice | None = None,
    *,
    columns: Sequence[str] | str | None = None,
) -> Page:
    """The distinct modules and operators."""
    from modelglass.page.sections.distinct import EVERYTHING, blocks

    notes = [Notes(report.notes)] if report.notes else []
    return Page([*blocks(report, unique, choice or EVERYTHING, columns), *notes])


def scan(scan: Scan, *, redact: bool = False, top: int | None = None) -> Page:
    """What was found in files."""
    from modelglass.page.redact import redact_noun
    from modelglass.page.sections.findings import SHOWN, blocks

    return Page(list(blocks(redact_noun(scan) if redact else scan, top)), longest=SHOWN)


def flow(flow: Flow, *, words: Mapping[str, str] | None = None) -> Page:
    """How data flows through a model."""
    from modelglass.page.sections.dataflow import blocks

    return Page(list(blocks(flow, words)))


def snapshot(snapshot: MemorySnapshot, *, sort: str | None = None, top: int | None = None) -> Page:
    """What a recording of GPU memory shows."""
    from modelglass.page.sections.snapshot import blocks

    notes = [Notes(snapshot.notes)] if snapshot.notes else []
    return sort_page(Page([*blocks(snapshot, top), *notes]), sort, top)
