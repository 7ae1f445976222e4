"""The classic summary: one line per layer, parameters and how many of them train, sizes in MB (2^20 bytes).

Rows hold what each layer itself owns, so that they add up to the total. Lists and dicts of layers have a row
only when they own something.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from modelglass.page.notes import note_text
from modelglass.page.sections.totals import failure_lines
from modelglass.page.units import MB, known, value_text
from modelglass.renderers._escape import cell_width, fitted, printable, unspoken
from modelglass.report import Call, Counts, Module, Note, Report, Tensor
from modelglass.report.layers import calls_by_module

_LONGEST_NAME, _SHAPE = 72, 22
_CONTAINERS = ("builtins.list", "builtins.tuple", "builtins.dict")
_LAYER_WIDTHS = (40, 15, 15)


class _Layout(NamedTuple):
    """Widths of the columns, the first at least so wide; and what is shown."""

    name: int
    params: int
    trainable: int
    outputs: bool

    def width(self, name: int) -> int:
        return name + self.params + self.trainable + (_SHAPE if self.outputs else 0)


def render(report: Report, *, outputs_nbytes: int | None, params_nbytes: int, verbose: int = 1) -> str:
    """The summary: 0 gives only the totals, 1 every layer, 2 every weight and bias too.

    `outputs_nbytes` is what the layers returned, the estimate of a pass's size; `params_nbytes` what the
    parameters take with all that belongs to them.
    """
    layout = _Layout(40, 15, 15, outputs=_ran(report))
    sizes = _sizes(report, outputs_nbytes, params_nbytes, full=True)
    return _text(report, layout, sizes, _about_failure(report), verbose)


def render_short(report: Report, *, outputs_nbytes: int | None, params_nbytes: int, verbose: int = 1) -> str:
    """The same in three columns: layer, parameters, trainable. 2 adds shapes of outputs, and every array.

    Its total is what parameters and outputs take. What is odd about the model follows the table.
    """
    layout = _Layout(32, 16, 14, outputs=verbose > 1 and _ran(report))
    sizes = _sizes(report, outputs_nbytes, params_nbytes, full=False)
    odd = [note for note in report.notes if note.severity == "warning"]
    return _text(report, layout, sizes, [*_about_failure(report), *odd], verbose)


def render_layers(layers: Iterable[tuple[str, int, int]]) -> str:
    """A table of layers alone: what each is called, its parameters, and how many of them train."""
    head = _pad(("Layer (type)", "Param #", "Trainable"))
    rows = [_pad((printable(name), f"{params:,}", f"{trained:,}")) for name, params, trained in layers]
    rule = "=" * sum(_LAYER_WIDTHS)
    return unspoken("\n".join((rule, head, rule, *rows, rule)))


def is_layer(module: Module) -> bool:
    """Whether a module has a row: all but the lists, and the root, that only hold others.

    A root that holds nothing at all is the one layer there is.
    """
    only_holds = module.qualified_type in _CONTAINERS or bool(not module.path and module.children)
    return bool(module.tensors) or not only_holds


def _pad(cells: tuple[str, ...]) -> str:
    pairs = zip(cells, _LAYER_WIDTHS, strict=True)
    return "".join(fitted(cell, width - 1).ljust(width) for cell, width in pairs).rstrip()


def _ran(report: Report) -> bool:
    return report.run.mode != "none"


def _about_failure(report: Report) -> list[Note]:
    """What is said about where the run ended, beyond that it did."""
    failure = report.run.failure
    if failure is None:
        return []
    return [note for note in report.notes if note.where == (failure.module,) and note.severity == "info"]


def _text(report: Report, layout: _Layout, sizes: list[str], notes: list[Note], verbose: int) -> str:
    counts = report.counts
    if counts is None:
        raise ValueError("a summary needs a report with counts")
    head = ("Layer (type)", *(("Output Shape",) if layout.outputs else ()), "Param #", "Trainable")
    rows = [head, *(_rows(report, counts, verbose, layout.outputs) if verbose > 0 else ())]
    name = min(_LONGEST_NAME, max(layout.name, *(cell_width(row[0]) + 2 for row in rows)))
    width = layout.width(name)
    lines = ["=" * width]
    if verbose > 0:
        lines += [_line(head, name, layout), "=" * width]
        lines += [_line(row, name, layout) for row in rows[1:]]
        lines.append("=" * width)
    lines += [*_totals(counts), "-" * width, *sizes, "=" * width]
    if report.run.failure is not None:
        lines += map(printable, failure_lines(report.run.failure))
    lines += (printable(f"note: {note_text(note)}") for note in notes)
    return unspoken("\n".join(lines))


def _line(cells: tuple[str, ...], name_width: int, layout: _Layout) -> str:
    name, *middle, params, trainable = cells
    text = fitted(name, name_width - 1).ljust(name_width)
    text += "".join(fitted(cell, _SHAPE - 1).ljust(_SHAPE) for cell in middle)
    return (text + params.ljust(layout.params) + trainable).rstrip()


def _rows(report: Report, counts: Counts, verbose: int, outputs: bool) -> Iterator[tuple[str, ...]]:
    calls = calls_by_module(report)
    tensors = {tensor.name: tensor for tensor in report.model.tensors}
    for module in filter(is_layer, report.model.modules):
        own = counts.by_module[module.path].own
        shape = _output(calls[module.path], report) if outputs else None
        yield _row(_label(module, report), shape, own.params, own.trainable)
        if verbose > 1 or not module.path:
            for tensor in map(tensors.__getitem__, module.tensors):
                if tensor.kind != "buffer" and tensor.name not in counts.tied:
                    params = tensor.logical_numel or 0
                    trained = None if tensor.trainable is None else params * tensor.trainable
                    name = tensor.name.removeprefix(f"{module.path}.") if module.path else tensor.name
                    yield _row(f"  {name} {_form(tensor)}", "" if outputs else None, params, trained)


def _form(tensor: Tensor) -> str:
    """The shape of a weight, for a packed one that which it stands for, and how it is packed."""
    packing = tensor.packing
    return str(tensor.shape) if packing is None else f"{packing.logical_shape} {packing.scheme}"


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


def _sizes(report: Report, outputs: int | None, params: int, *, full: bool) -> list[str]:
    """Sizes in MB; an estimate with an unknown part is unknown, and a run that failed has no size."""
    if not _ran(report):
        return [f"Params size (MB): {_mb(params)}"]
    outputs = None if report.run.failure is not None else outputs
    inputs = [value for value in report.run.inputs if value.dtype is not None]
    shapes = [str(value.shape) for value in inputs if value.shape is not None]
    lines = [
        f"Input shape: {', '.join(shapes) or 'none'}",
        f"Forward/backward pass size (MB): {_mb(outputs)}",
    ]
    if report.cost is not None and full:
        at_least = "" if report.cost.complete and report.run.failure is None else "≥ "
        lines.append(f"Mult-adds: {at_least}{report.cost.macs:,}")
    lines.append(f"Params size (MB): {_mb(params)}")
    parts = [outputs, params, *(value.nbytes for value in inputs if full)]
    known = [part for part in parts if part is not None]
    lines.append(f"Estimated Total Size (MB): {_mb(sum(known) if len(known) == len(parts) else None)}")
    return lines


def _mb(nbytes: int | None) -> str:
    return "unknown" if nbytes is None else f"{nbytes / MB:.2f}"
