"""How much the layers hand on: an estimate of what flows through a run."""

from __future__ import annotations

from modelglass.report import Model


def layer_outputs_nbytes(model: Model) -> int | None:
    """Bytes that calls without calls inside them returned, by real type; None where a size is unknown."""
    parents = {call.parent for call in model.calls}
    sizes = [
        value.nbytes
        for call in model.calls
        if call.index not in parents
        for value in call.outputs
        if value.dtype is not None
    ]
    return None if None in sizes else sum(size for size in sizes if size is not None)
