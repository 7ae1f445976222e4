"""The figures below the table, as labels and texts for any output."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from modelglass.page.sections.checkpoint import file_rows, more_rows
from modelglass.page.sources import run_text
from modelglass.page.units import known, short, size, source_text, value_text
from modelglass.report.dtypes import bits_of

if TYPE_CHECKING:
    from modelglass.report import Cost, Counts, Failure, Memory, Report, Run, Share, Value

SHOWN_VALUES = 6


def totals(report: Report) -> list[tuple[str, str]]:
    """Label and text of each total, in reading order."""
    if report.checkpoint is not None:
        return [
            *file_rows(report, report.checkpoint),
            *count_rows(report),
            *more_rows(report, report.checkpoint),
        ]
    return [*count_rows(report), *cost_rows(report), *run_rows(report)]


def count_rows(report: Report) -> Iterator[tuple[str, str]]:
    """What the model's tensors come to."""
    if report.counts is not None:
        yield from _counts(report.counts, _share(report))


def cost_rows(report: Report) -> Iterator[tuple[str, str]]:
    """What the run comes to, if there was one."""
    if report.cost is not None and report.run.mode != "none":
        yield from _cost(report.cost, report.run)
    if report.memory is not None:
        yield from _memory(report.memory)


def run_rows(report: Report) -> Iterator[tuple[str, str]]:
    """What ran, and on what."""
    yield from _run(report.run, run_text(report.model.source, report.run.mode))


def _counts(counts: Counts, served: Share | None) -> Iterator[tuple[str, str]]:
    hole = "uninitialised" if served is None else "unknown"
    plus = f" + {hole}" if counts.uninitialised else ""
    yield "parameters", f"{counts.params:,}{plus}"
    if served is not None and served.padding:
        yield "  padding", f"{served.padding:,} of them, not weights"
    if counts.logical_params != counts.params:
        yield "  logical", f"{counts.logical_params:,} (packed weights unfolded)"
    if counts.active_params != counts.params:
        active = counts.active_params
        yield "  active", "unknown" if active is None else f"{active:,} per token"
    if counts.trainable is not None and (counts.params or not counts.buffers):
        yield "  trainable", known(counts.trainable)
        yield "  frozen", known(counts.frozen)
    if counts.tied:
        first, *rest = counts.tied.items()
        more = f" and {len(rest)} more" if rest else ""
        yield "  tied", f"{first[0]} = {first[1]}{more} (counted once)"
    yield "buffers", f"{counts.buffers:,}"
    dtypes = ", ".join(f"{name} {numel:,}" for name, numel in counts.params_by_dtype.items())
    parts = f"parameters {size(counts.param_nbytes)}, buffers {size(counts.buffer_nbytes)}"
    at_least = "≥ " if counts.unsized else ""
    yield "size", f"{at_least}{size(counts.nbytes)} ({parts})"
    if dtypes:
        yield "types", dtypes if counts.shards is None else f"{dtypes}; 1 of {counts.shards:,} shards"
    plain = {bits_of(dtype) for dtype in counts.params_by_dtype}  # packed, but of that type all the same
    if counts.bits_per_weight is not None and plain != {counts.bits_per_weight}:
        yield "bits", f"{counts.bits_per_weight:.2f} for each weight, scales and the like included"


def _cost(cost: Cost, run: Run) -> Iterator[tuple[str, str]]:
    at_least = "" if cost.complete and run.failure is None else "≥ "
    yield "MACs", at_least + _count(cost.macs, "MAC")
    if run.train:
        yield "  forward", f"{cost.forward_macs:,}"
        yield "  backward", f"{cost.backward_macs:,}"
        if cost.recompute_macs:
            yield "  recompute", f"{cost.recompute_macs:,}"
    if cost.effective_macs is not None:
        yield "  effective", f"{cost.effective_macs:,} (without pruned weights)"
    yield "FLOPs", at_least + _count(cost.flops, "FLOP")
    if cost.coverage is None:
        yield "coverage", "unknown, because the run failed"
    else:
        yield "coverage", f"{100 * cost.coverage:.0f} % of contractions have a formula"


def _share(report: Report) -> Share | None:
    if report.engine is None:
        return None
    from modelglass.page.sections.engine import listed_share

    return listed_share(report)


def _memory(memory: Memory) -> Iterator[tuple[str, str]]:
    from modelglass.page.what_if import sure_text

    yield "peak memory", f"{size(memory.peak_nbytes)}, {sure_text(memory)}"
    if memory.in_first_step is False:
        yield "  first step", size(memory.first_peak_nbytes or 0)


def _count(number: int, unit: str) -> str:
    return f"{number:,}" + (f" ({short(number)}{unit})" if number >= 1000 else "")


def _run(run: Run, text: str) -> Iterator[tuple[str, str]]:
    if run.mode != "none":
        yield "input", _values(run.inputs)
        yield "output", _values(run.outputs) if run.outputs else "–"
    train = ", forward and backward" if run.train else ""
    yield "run", text + train


def _values(values: tuple[Value, ...]) -> str:
    shown = [named_value(value) for value in values[:SHOWN_VALUES]]
    if len(values) > SHOWN_VALUES:
        shown.append(f"and {len(values) - SHOWN_VALUES} more")
    nbytes = sum(value.nbytes or 0 for value in values)
    return ", ".join(shown) + (f" ({size(nbytes)})" if nbytes else "")


def named_value(value: Value) -> str:
    """A value with its name, if it has one that is not just its place."""
    name = f"{value.name}: " if value.name and not value.name.isdigit() else ""
    more = f" {value.dtype}" if value.dtype else ""
    if value.dtype is None and value.shape:  # a text, and its tokens
        more = f" ({value.shape[0]:,} tokens)"
    return f"{name}{value_text(value)}{more}"


def failure_lines(failure: Failure) -> list[str]:
    """What stopped the run, where, and the shapes that met."""
    where = failure.module or "(root)"
    lines = [f"✗ {where} ({failure.module_type}) raised {failure.error}"]
    lines += [f"    {line}" for line in failure.message.strip().splitlines()[:6]]
    if failure.source is not None:
        lines.append(f"    at {source_text(failure.source)}")
    if failure.inputs:
        met = ", ".join(named_value(value) for value in failure.inputs[:SHOWN_VALUES])
        what = f"{failure.op} met" if failure.op else "it was called with"
        lines.append(f"    {what} {met}")
    return lines
