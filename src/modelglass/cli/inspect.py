"""`modelglass inspect TARGET`: what is in this model, layer by layer."""

from __future__ import annotations

from typing import Any

import click

from modelglass import api
from modelglass.cli._command import Command, option
from modelglass.cli._exit import end_of_run
from modelglass.cli._options import (
    columns_option,
    depth_option,
    limit_option,
    parse_limits,
    run_option,
    sort_option,
    stats_option,
    top_option,
    train_option,
)
from modelglass.cli._progress import working
from modelglass.cli._serving import GivenEngine, serving_options
from modelglass.cli._target import GivenTarget, structure_options
from modelglass.cli._view import View, view_options
from modelglass.errors import UsageError

EPILOG = """\b
Examples:
  modelglass model.safetensors
  modelglass inspect checkpoint.pt --format json
  modelglass inspect config.json --depth 2
  modelglass inspect model.py::build --input 1x3x224x224
  modelglass model.py::build --inputs model.py::batch --depth 2
  modelglass mypackage.models:Net --input 2x16:int64 --input mask=2x16:bool
  modelglass model.py::build --input 1x3x224x224 --train --format markdown
  modelglass model.py::build --input 1x3x224x224 --format json -o report.json
  modelglass inspect llama-70b/config.json --framework vllm --tensor-parallel 8 --rank 3 --device-memory 80GiB
"""


@click.command(name="inspect", cls=Command, epilog=EPILOG)
@structure_options
@option("--show-inputs", is_flag=True, help="Show only the inputs of the run, as options and as Python.")
@run_option
@train_option
@depth_option
@columns_option(api.COLUMNS)
@sort_option(api.SORTS)
@top_option
@option("--no-fold", is_flag=True, help="Show equal blocks one by one.")
@stats_option
@limit_option
@serving_options
@view_options(api.RENDERERS["inspect"])
def inspect(
    given: GivenTarget,
    show_inputs: bool,
    run: Any,
    train: bool,
    depth: int | None,
    columns: str | None,
    sort: str | None,
    top: int | None,
    no_fold: bool,
    stats: bool,
    limits: tuple[str, ...],
    engine: GivenEngine,
    view: View,
) -> None:
    """Show a model layer by layer.

    The table has shapes, parameters and cost. TARGET is a checkpoint (a file or a folder), a configuration
    (config.json, model.yaml), a saved report, or file.py::function or package.module:function that returns a
    model. Inputs that are not given are found by trying, with a note.
    With --framework vllm, a configuration is built as one rank of an engine would hold it, without an engine
    and without weights.
    """
    known = api.DATA_COLUMNS if view.format_ == "csv" else api.COLUMNS
    shown = None if columns is None else api.parse_columns(columns, known)
    run = "none" if given.no_run else run
    if show_inputs:
        _show_inputs(given, run, view)
        return
    most = parse_limits(limits)
    asked = given.build | engine.options
    # What the user's code prints must not mix with the result.
    with working() as progress:
        report = api.inspect(
            *given.arguments,
            run=run,
            train=train,
            stats=stats,
            limits=most,
            **asked,
            on_failure="report",
            progress=progress,
        )
    rows = {"sort": sort, "top": top, "depth": depth, "columns": shown}
    options = view.options(rows, pages={"fold": not no_fold})
    view.emit(api.render(report, view.format_, **options))
    view.tell_of_inputs(report.notes)
    end_of_run(report, shown=view.shows_failure)


def _show_inputs(given: GivenTarget, run: Any, view: View) -> None:
    target, wanted = given.arguments
    if not isinstance(wanted, api.Automatic):
        raise UsageError("--show-inputs shows inputs that are found", hint="leave --inputs out")
    with working() as progress:
        found = api.inputs_of(target, wanted, run=run, progress=progress, **given.build)
    lines = (found.text, *((" ".join(found.options),) if found.options else ()), found.python)
    view.emit("".join(f"{line}\n" for line in lines))
