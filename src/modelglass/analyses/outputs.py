"""How much the layers hand on: an estimate of what flows through a run."""

from __future__ import annotations

from modelglass.report import Model


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
