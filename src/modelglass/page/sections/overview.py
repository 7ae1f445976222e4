"""What a whole report comes to: one sentence, and the figures that people ask for first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from modelglass.page import Figure
from modelglass.page.sections.findings import ORDER
from modelglass.page.sections.memory import what_ran
from modelglass.page.units import short, size
from modelglass.report import FINDINGS

if TYPE_CHECKING:
    from modelglass.report import Cost, Counts, Memory, Note, Report, Scan, Severity

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")  # the most severe first
_KINDS = {"torch": "PyTorch model", "mlx": "MLX model", "vllm": "model served by vLLM"}


def kind_text(report: Report) -> str:
    """What kind of thing the report is of."""
    if report.checkpoint is not None:
        files = len(report.checkpoint.files)
        return f"{report.checkpoint.format} checkpoint" + (f" of {files:,} files" if files > 1 else "")
    return _KINDS.get(report.model.source, f"model of {report.model.source}")


def verdict(report: Report, scan: Scan | None = None) -> str:
    """What it is, what it costs, and whether there is anything to worry about, in one line."""
    return " · ".join([_size_text(report), *_cost_text(report), _notes_text(report), *_scan_text(scan)])


def _size_text(report: Report) -> str:
    modules = _number(len(report.model.modules), "module")
    if report.counts is None:
        return modules
    return f"{short(report.counts.params)} parameters in {modules}, {size(report.counts.nbytes)}"


def _cost_text(report: Report) -> Iterator[str]:
    if report.run.failure is not None:
        yield f"the run failed in {report.run.failure.module or '(root)'}"
    elif report.run.mode != "none" and report.cost is not None:
        peak = "" if report.memory is None else f" and {size(report.memory.peak_nbytes)} at the peak"
        yield f"{what_ran(report, report.memory)} takes {short(report.cost.macs)}MAC{peak}"


def _notes_text(report: Report) -> str:
    found = [note for note in report.notes if note.code in FINDINGS]
    parts = [] if report.stats is None else [_number(len(found), "finding") + " in the weights"]
    for severity in ("error", "warning"):
        number = sum(note.severity == severity and note.code not in FINDINGS for note in report.notes)
        parts += [_number(number, severity)] if number else []
    return ", ".join(parts) or "no warnings"


def _scan_text(scan: Scan | None) -> Iterator[str]:
    """What was found that ordinary files do not have."""
    if scan is not None:
        levels = Counter(finding.level for finding in scan.findings)
        found = [f"{levels[level]:,} {level}" for level in ORDER if levels[level] and level != "info"]
        yield f"scan: {', '.join(found)}" if found else "scan: nothing above info"


def _number(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{f'{number:,}' if number else 'no'} {noun}s"


def by_severity(notes: Sequence[Note]) -> list[Note]:
    """The notes, the most severe first, equals in their own order."""
    return sorted(notes, key=lambda note: SEVERITIES.index(note.severity))


def figures(report: Report) -> Iterator[Figure]:
    """Each figure short, in full, and with how it is known."""
    if report.counts is not None:
        yield from _counts(report.counts)
    if report.cost is not None and report.run.mode != "none":
        yield _macs(report.cost, in_full=report.run.failure is None)
    if report.memory is not None:
        yield from _memory(report.memory)
    if report.checkpoint is not None:
        read = f"{report.checkpoint.read_nbytes:,} of {report.checkpoint.nbytes:,} bytes"
        yield Figure("read of the file", size(report.checkpoint.read_nbytes), read, "exact")


def _counts(counts: Counts) -> Iterator[Figure]:
    known = "at least: some are uninitialised" if counts.uninitialised else "exact"
    yield Figure("parameters", short(counts.params), f"{counts.params:,}", known)
    if counts.active_params != counts.params:
        active = counts.active_params
        if active is None:
            yield Figure("active per token", "unknown", "", "unknown")
        else:
            yield Figure("active per token", short(active), f"{active:,}", "exact")
    known = "at least: some types have no size" if counts.unsized else "exact"
    yield Figure("weights and buffers", size(counts.nbytes), f"{counts.nbytes:,} bytes", known)
    if counts.bits_per_weight is not None:
        yield Figure("bits per weight", f"{counts.bits_per_weight:.2f}", "scales included", "exact")


def _macs(cost: Cost, *, in_full: bool) -> Figure:
    known = "exact" if cost.complete and in_full else "at least"
    return Figure("multiply-accumulates", f"{short(cost.macs)}MAC", f"{cost.flops:,} FLOPs", known)


def _memory(memory: Memory) -> Iterator[Figure]:
    known = {"exact": "exact for live tensors"}.get(memory.method, memory.method)
    yield Figure("peak memory", size(memory.peak_nbytes), f"{memory.peak_nbytes:,} bytes", known)
    if memory.saved_nbytes is not None:
        saved = memory.saved_nbytes
        yield Figure("saved for backward", size(saved), f"{saved:,} bytes", memory.method)
    if memory.kv_cache is not None and memory.kv_cache.nbytes_per_token:
        each = memory.kv_cache.nbytes_per_token
        yield Figure("KV cache a token", size(each), f"{each:,} bytes", memory.kv_cache.method)
