"""The classic summary: one line per layer, parameters and how many of them train, sizes in MB (2^20 bytes).

Rows hold what each layer itself owns, so that they add up to the total.
"""

from __future__ import annotations

from collections.abc import Iterator

from modelglass.renderers._escape import cell_width, fitted, printable
from modelglass.renderers._rows import calls_by_module
from modelglass.renderers._totals import failure_lines
from modelglass.renderers._units import MB, known, value_text
from modelglass.report import Call, Counts, Module, Report

_NAME, _LONGEST_NAME, _SHAPE, _COUNT = 40, 72, 22, 15


def render(report: Report, *, outputs_nbytes: int | None, verbose: int = 1) -> str:
    """The summary: 0 gives only the totals, 1 every layer, 2 every weight and bias too.

    `outputs_nbytes` is what the layers returned, the estimate of a pass's size.
    """
    counts = report.counts
    if counts is None:
        raise ValueError("a summary needs a report with counts")
    ran = report.run.mode != "none"
    head = ("Layer (type)", *(("Output Shape",) if ran else ()), "Param #", "Trainable")
    rows = [head, *(_rows(report, counts, verbose) if verbose > 0 else ())]
    name = min(_LONGEST_NAME, max(_NAME, *(cell_width(row[0]) + 2 for row in rows)))
    width = name + 2 * _COUNT + (_SHAPE if ran else 0)
    lines = ["=" * width]
    if verbose > 0:
        lines += [_line(head, name), "=" * width]
        lines += [_line(row, name) for row in rows[1:]]
        lines.append("=" * width)
    lines += _totals(counts)
    lines.append("-" * width)
    lines += _sizes(report, counts, outputs_nbytes)
    lines.append("=" * width)
    if report.run.failure is not None:
        lines += map(printable, failure_lines(report.run.failure))
    return "\n".join(lines)


def _line(cells: tuple[str, ...], name_width: int) -> str:
    name, *middle, params, trainable = cells
    text = fitted(name, name_width - 1).ljust(name_width)
    text += "".join(fitted(cell, _SHAPE - 1).ljust(_SHAPE) for cell in middle)
    return (text + params.ljust(_COUNT) + trainable).rstrip()


def _rows(report: Report, counts: Counts, verbose: int) -> Iterator[tuple[str, ...]]:
    calls = calls_by_module(report)
    ran = report.run.mode != "none"
    tensors = {tensor.name: tensor for tensor in report.model.tensors}
    for module in report.model.modules:
        if not module.path and module.children and not module.tensors:
            continue  # a root that only holds others is the whole, not a layer
        own = counts.by_module[module.path].own
        shape = _output(calls[module.path], report) if ran else None
        yield _row(_label(module, report), shape, own.params, own.trainable)
        if verbose > 1 or not module.path:
            for tensor in map(tensors.__getitem__, module.tensors):
                if tensor.kind != "buffer" and tensor.name not in counts.tied:
                    params = tensor.logical_numel or 0
                    trained = None if tensor.trainable is None else params * tensor.trainable
                    label = f"  {tensor.name.rpartition('.')[2]} {tensor.shape}"
                    yield _row(label, "" if ran else None, params, trained)


def _row(label: str, shape: str | None, params: int, trainable: int | None) -> tuple[str, ...]:
    return (printable(label), *(() if shape is None else (shape,)), f"{params:,}", known(trainable))


def _label(module: Module, report: Report) -> str:
    return f"{module.path or report.model.name} ({module.type})"


def _output(calls: list[Call], report: Report) -> str:
    if not calls:
        return "not called" if report.run.failure is None else "not reached"
    if not calls[0].completed:
        return "failed"
    return ", ".join(value_text(value) for value in calls[0].outputs)


def _totals(counts: Counts) -> list[str]:
    lines = [
        f"Total params: {counts.params:,}",
        f"Trainable params: {known(counts.trainable)}",
        f"Non-trainable params: {known(counts.frozen)}",
    ]
    if counts.uninitialised:
        lines.append(f"Uninitialised: {', '.join(counts.uninitialised)}")
    return lines


def _sizes(report: Report, counts: Counts, outputs: int | None) -> Iterator[str]:
    """Sizes in MB; an estimate with an unknown part is unknown."""
    ran = report.run.mode != "none"
    if ran:
        shapes = [str(value.shape) for value in report.run.inputs if value.shape is not None]
        yield f"Input shape: {', '.join(shapes) or 'none'}"
        yield f"Forward/backward pass size (MB): {_mb(outputs)}"
    if ran and report.cost is not None:
        at_least = "" if report.cost.complete and report.run.failure is None else "≥ "
        yield f"Mult-adds: {at_least}{report.cost.macs:,}"
    yield f"Params size (MB): {_mb(counts.param_nbytes)}"
    if ran:
        parts = [value.nbytes for value in report.run.inputs if value.dtype is not None]
        parts += [outputs, counts.param_nbytes]
        known = [part for part in parts if part is not None]
        yield f"Estimated Total Size (MB): {_mb(sum(known) if len(known) == len(parts) else None)}"


def _mb(nbytes: int | None) -> str:
    return "unknown" if nbytes is None else f"{nbytes / MB:.2f}"
