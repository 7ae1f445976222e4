"""`modelglass memory TARGET`: how much memory does a pass or a training step take, and where?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from modelglass import api
from modelglass.cli._command import Command, option
from modelglass.cli._exit import INCOMPLETE, end_of_run, tell_of_inputs, write_stderr
from modelglass.cli._options import (
    budget_option,
    calibrate_option,
    color_option,
    config_options,
    format_option,
    inputs_options,
    optimizer_option,
    output_option,
    parse_optimizer,
    parse_or_find,
    plot_option,
    sort_option,
    target_argument,
    top_option,
    train_option,
    width_option,
)
from modelglass.cli._output import emit, stdout_to_stderr, wants_color, width_of
from modelglass.cli._progress import Progress
from modelglass.cli._what_if import parse_what_if, what_if_options

EPILOG = """\b
Examples:
  modelglass memory model.py::build --input 1x3x224x224
  modelglass memory config.json --train --batch-size 8
  modelglass memory model.py::build --inputs model.py::batch --train
  modelglass memory model.py::build --input 2x16:int64 --train --optimizer sgd --batch-size 64
  modelglass memory model.py::build --inputs model.py::batch --train --weights bfloat16 --master-weights
  modelglass memory model.py::build --inputs model.py::batch --train --recompute "model.layers.*"
  modelglass memory model.py::build --inputs model.py::batch --train --sharding fsdp3 --devices 8
  modelglass memory model.py::build --inputs model.py::batch --context 4096 --context 131072
  modelglass memory model.py::build --input 1x3x224x224 --train --calibrate --plot timeline.png
"""


@click.command(name="memory", cls=Command, epilog=EPILOG)
@target_argument
@inputs_options
@budget_option
@config_options
@train_option
@optimizer_option
@what_if_options
@calibrate_option
@option(
    "--context",
    "contexts",
    type=click.IntRange(1),
    metavar="N",
    multiple=True,
    help="Show the KV cache at this many tokens. Repeatable.",
)
@sort_option(("nbytes",), unsorted="largest first; kernels of CSV as they ran")
@top_option
@plot_option
@width_option
@format_option(api.RENDERERS["memory"])
@color_option
@output_option
def memory(
    target: str,
    inputs: str | None,
    specs: tuple[str, ...],
    budget: float,
    builder: str | None,
    model_key: str | None,
    trust: bool,
    train: bool,
    optimizer: str | None,
    calibrate: bool,
    contexts: tuple[int, ...],
    sort: str | None,
    top: int | None,
    plot: Path | None,
    width: int | None,
    format_: str,
    color: str,
    output: Path | None,
    **changes: Any,
) -> None:
    """Show the peak memory of a run.

    The run is a forward pass or, with --train, a training step. TARGET is a configuration (config.json,
    model.yaml), a saved report, or file.py::function or package.module:function that returns a model. Tensors
    are fake, and each is followed from the kernel that makes it until it is freed: the memory itself is not
    allocated, except with --calibrate, which runs one kernel at a time. --plot draws the timeline.
    """
    given = parse_or_find(inputs, specs, budget)
    what_if = parse_what_if(train, **changes)
    stepper = parse_optimizer(train, optimizer)
    draw = None if plot is None else api.timeline_plotter(plot)
    with Progress() as progress, stdout_to_stderr():
        report = api.inspect_run(
            target,
            given,
            train=train,
            optimizer=stepper,
            calibrate=calibrate,
            what_if=what_if,
            builder=builder,
            model_key=model_key,
            trust=trust,
            on_failure="report",
            progress=progress,
        )
        if draw is not None and report.memory is not None:
            progress("drawing")
            draw(report)
    options: dict[str, object] = {} if format_ == "json" else {"sort": sort, "top": top}
    if format_ in ("text", "markdown"):
        options |= {"contexts": contexts}
    if format_ == "text":
        options |= {"width": width_of(width, output), "color": wants_color(color, output)}
    if report.run.failure is None or format_ != "csv":  # a table of what never happened would be empty
        emit(api.RENDERERS["memory"][format_](report, **options), output)
    tell_of_inputs(report.notes, shown=format_ != "csv")
    if report.run.failure is None and report.memory is None:  # in JSON, which has a place for that
        write_stderr(*(f"{note.severity}: {note.text}" for note in report.notes if note.severity != "info"))
        raise SystemExit(INCOMPLETE)
    end_of_run(report, shown=output is None and format_ not in ("json", "csv"))
