"""Runs with other sizes, as whoever asks makes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from modelglass.report import Dataflow, Model, Run

TrialRun: TypeAlias = tuple[Model, Run, Dataflow]
Sizes: TypeAlias = Mapping[tuple[int, int], int]  # by input, in the order of `Run.inputs`, and dimension
Vary: TypeAlias = Callable[[Sizes], "TrialRun | None"]  # None: the model does not run with these


def run_resized(vary: Vary, sizes: Sizes) -> TrialRun | None:
    """A run with these sizes; what cannot be given in another size (packed, nested) has not run with it."""
    seen = vary(sizes)
    if seen is None:
        return None
    shapes = [value.shape or () for value in seen[1].inputs]
    return (
        seen if all(shapes[index][dim : dim + 1] == (size,) for (index, dim), size in sizes.items()) else None
    )
