"""Where the inputs of a model have their batch and sequence; it runs again where one run does not tell."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from modelglass.api._models import BuiltModel
    from modelglass.frameworks.shared.request import Request
    from modelglass.report import Axes, Model, Note, Observation, WhatIf


def axes_of(built: BuiltModel, request: Request, first: Observation) -> tuple[Axes, list[Note]]:
    """The axes of the inputs of a run, and what is to be said about them."""
    from modelglass.analyses.sizes.axes import Seen, find_axes
    from modelglass.frameworks.shared.request import Detail
    from modelglass.report import WhatIf

    quiet = replace(request, train=False, optimizer=None, other_optimizers=(), calibrate=False)
    quiet = replace(quiet, progress=None, detail=Detail.FULL)

    def look() -> Seen | None:
        found: Observation = built.adapter.run_resized(built.native, quiet, {})
        return None if found.run.failure is not None else (found.model, found.run, found.dataflow)

    def resize(axes: Axes, batch_size: int) -> Model | None:
        asked = replace(quiet, axes=axes, what_if=WhatIf(batch_size=batch_size), detail=Detail.CALLS)
        found: Observation = built.adapter.observe(built.native, asked)
        return None if found.run.failure is not None else found.model

    return find_axes((first.model, first.run, first.dataflow), look, resize)


def axes_for(built: BuiltModel, request: Request, what_if: WhatIf | None) -> Axes | None:
    """The axes where a change of sizes needs them, found by a run without it."""
    resizes = what_if is not None and (what_if.batch_size, what_if.seq_len) != (None, None)
    if not resizes or not request.runs:
        return None
    from modelglass.frameworks.shared.request import Detail

    as_given = replace(request.what_if, batch_size=None, seq_len=None)
    asked = replace(
        request, what_if=as_given, train=False, optimizer=None, detail=Detail.CALLS, progress=None
    )
    first: Observation = built.adapter.observe(built.native, asked)
    return None if first.run.failure is not None else axes_of(built, asked, first)[0]
