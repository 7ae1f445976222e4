"""How data flows through a model that ran."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from modelglass.api._inspect import inspect_run, require_complete
from modelglass.errors import UsageError
from modelglass.gc_pause import paused_gc

if TYPE_CHECKING:
    from modelglass.report import Flow

# Notes on parameters, cost and memory, of which a flow shows nothing.
_ABOUT_NUMBERS = frozenset(
    {
        "active-unknown",
        "hidden-weights",
        "other-arithmetic",
        "scratch-unknown",
        "shared-memory",
        "uninitialised",
        "unknown-ops",
        "unknown-size",
    }
)


@paused_gc()
def flow(target: Any, inputs: Any = None, *, depth: int | None = None, **options: Any) -> Flow:
    """The dataflow between modules, and operators where no module did the work, found in a run.

    `target` is a report, or anything that `inspect` takes, with its inputs and options; without inputs, they
    are made from the model's own configuration. `depth` counts modules inside modules; without it, the flow
    is as deep as stays readable. Sizes that follow the inputs have names where the report was made with
    `symbols=True`, as it is here unless `symbols=False` is given.

    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU())
    >>> [node.label for node in flow(model, torch.ones(2, 4)).nodes]
    ['input', '0', '1', 'output']
    """
    from modelglass.analyses.flow import flow

    if depth is not None and (type(depth) is not int or depth < 1):
        raise UsageError(f"depth must be 1 or more, got {depth!r}", hint="leave it out for a readable depth")
    report = require_complete(inspect_run(target, inputs, **{"symbols": True, **options}))
    if report.dataflow is None and report.engine is not None:
        raise UsageError(
            f"{report.model.name!r} is served by an engine, and data cannot be followed inside it",
            hint="pass its configuration, which transformers builds: modelglass flow config.json",
        )
    if report.dataflow is None and report.run.mode == "real":
        raise UsageError(
            f"{report.model.name!r} has value-dependent control flow; its operators could not be recorded",
            hint="modelglass inspect shows its calls",
        )
    if report.dataflow is None:
        raise UsageError(
            f"{report.model.name!r} was not run; flow needs inputs",
            hint="give inputs or their shapes; for a file, name code or a config that builds its model",
        )
    found = flow(
        report.model,
        report.run,
        report.dataflow,
        symbols=report.symbols,
        counts=report.counts,
        depth=depth,
    )
    notes = [note for note in report.notes if note.code not in _ABOUT_NUMBERS]
    return replace(found, notes=(*notes, *found.notes))
