"""Parameters in three sections, a line each: what they sum up to, what they are, what their values are like.

MB are 2**20 bytes here, as always in such listings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from modelglass.page.notes import note_text
from modelglass.page.units import MB, known, megabytes
from modelglass.renderers._escape import cell_width, printable
from modelglass.report import Counts, Report, Tensor

_NAME, _SHAPE = 40, 18  # least widths


def lines(report: Report) -> Iterator[str]:
    """The listing, line by line; without parameters, only the sums."""
    tensors = report.parameters
    if report.counts is not None:
        yield "SUMMARY"
        yield from _summary(report.counts, len(tensors))
        yield ""
    if tensors:
        name = max(_NAME, *(cell_width(printable(tensor.name)) for tensor in tensors))
        yield "LAYER DETAILS"
        yield from _details(tensors, name)
        yield ""
        yield "WEIGHT STATISTICS"
        yield from _statistics(tensors, report, name)
        yield ""
    if report.notes:
        yield "NOTES"
        yield from (f"  {n.severity} [{n.code}] {printable(note_text(n))}" for n in report.notes)
        yield ""


def _summary(counts: Counts, tensors: int) -> Iterator[str]:
    yield f"  Total parameters:      {counts.params:,}"
    yield f"  Trainable params:      {known(counts.trainable)}"
    yield f"  Non-trainable params:  {known(counts.frozen)}"
    yield f"  Total memory:          {megabytes(counts.param_nbytes / MB)}"
    yield f"  Total layers:          {tensors:,}"
    if counts.buffers:
        yield f"  Buffers, not included: {counts.buffers:,} ({megabytes(counts.buffer_nbytes / MB)})"


def _details(tensors: Sequence[Tensor], name: int) -> Iterator[str]:
    shape = max(_SHAPE, *(len(_shape(tensor)) for tensor in tensors))
    yield f"{'Layer Name':<{name}}  {'Shape':<{shape}} {'Params':>15} {'Memory':>12}  Grad"
    for tensor in tensors:
        memory = "?" if tensor.nbytes is None else megabytes(tensor.nbytes / MB)
        mark = {True: "✓", False: "✗", None: "?"}[tensor.trainable]
        left = f"{_pad(tensor.name, name)}  {_shape(tensor):<{shape}}"
        yield f"{left} {known(tensor.params):>15} {memory:>12}   {mark}"


def _statistics(tensors: Sequence[Tensor], report: Report, name: int) -> Iterator[str]:
    yield f"{'Layer':<{name}} {'Mean':>13} {'Std':>13} {'Min':>13} {'Max':>13}"
    for tensor in tensors:
        stats = (report.stats or {}).get(tensor.name)
        figures = (stats.mean, stats.std, stats.min, stats.max) if stats else (None,) * 4
        yield f"{_pad(tensor.name, name)} " + " ".join(f"{_figure(figure):>13}" for figure in figures)


def _pad(name: str, width: int) -> str:
    text = printable(name)
    return text + " " * (width - cell_width(text))


def _shape(tensor: Tensor) -> str:
    if tensor.kind == "packed" and tensor.packing is not None:
        return str(tensor.packing.logical_shape)
    return "uninitialised" if tensor.shape is None else str(tensor.shape)


def _figure(figure: float | None) -> str:
    """Six decimals, or an exponent where those would show nothing."""
    if figure is None:
        return "–"
    return f"{figure:.6f}" if figure == 0 or 1e-4 <= abs(figure) < 1e5 else f"{figure:.4e}"
