"""What parameters and outputs of layers take in memory."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from modelglass.report import Model, Report, Shape

_ASSUMED_NBYTES = 4  # of an element, where only a shape is known


def layer_outputs_nbytes(model: Model) -> int | None:
    """Bytes that calls without calls inside them returned, by real type; None where a size is unknown."""
    sizes = outputs_by_module(model).values()
    return None if None in sizes else sum(size for size in sizes if size is not None)


def outputs_by_module(model: Model) -> dict[str, int | None]:
    """The same for each module that was called; one that only calls others returned nothing of its own."""
    parents = {call.parent for call in model.calls}
    found: dict[str, int | None] = {}
    for call in model.calls:
        sizes = [value.nbytes for value in call.outputs if value.dtype is not None]
        if call.index in parents:
            sizes = []
        before = found.get(call.module, 0)
        unknown = before is None or None in sizes
        found[call.module] = None if unknown else (before or 0) + sum(size or 0 for size in sizes)
    return found


def outputs_with_batch(shapes: Sequence[Shape], nbytes: int | None, *, observed: int, wanted: int) -> int:
    """Bytes of a layer's outputs for another batch than the one they were observed with.

    They grow with the batch where it comes first. None stands for elements of an unknown type: of float32.
    """
    taken = _ASSUMED_NBYTES * sum(map(prod, shapes)) if nbytes is None else nbytes
    first = next((shape[0] for shape in shapes if shape), 0)
    return taken * wanted // first if first and first == observed else taken


def parameters_nbytes(report: Report) -> int:
    """Bytes of the parameters, tied ones once, with the scales and zero points of packed ones."""
    sides = sum(tensor.packing.side_nbytes for tensor in report.parameters if tensor.packing is not None)
    return sides + (0 if report.counts is None else report.counts.param_nbytes)
