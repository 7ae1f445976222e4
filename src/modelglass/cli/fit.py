"""`modelglass fit TARGET --device-memory 24GiB`: does it fit, and what would make it fit?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from modelglass import api
from modelglass.cli._command import Command, option
from modelglass.cli._exit import tell_of_inputs
from modelglass.cli._options import (
    budget_option,
    calibrate_option,
    color_option,
    config_options,
    device_memory_option,
    format_option,
    inputs_options,
    optimizer_option,
    output_option,
    parse_optimizer,
    parse_or_find,
    sort_option,
    target_argument,
    top_option,
    train_option,
    width_option,
)
from modelglass.cli._output import emit, stdout_to_stderr, wants_color, width_of
from modelglass.cli._progress import Progress
from modelglass.cli._what_if import parse_what_if, what_if_options

DOES_NOT_FIT = 1

EPILOG = """\b
Examples:
  modelglass fit model.py::build --input 1x3x224x224 --device-memory 512MiB
  modelglass fit config.json --device-memory 24GiB --train
  modelglass fit model.py::build --inputs model.py::batch --device-memory 24GiB --train
  modelglass fit model.py::build --inputs model.py::batch --device-memory 80GB --train --optimizer sgd
  modelglass fit config.json --device-memory 24GiB --train --sharding fsdp3 --devices 8
  modelglass fit model.py::build --input 2x16:int64 --device-memory 24GiB --format json -o fit.json

\b
Exit codes:
  0  it fits
  1  it does not fit
  2  wrong usage
  3  the model could not be built or run
"""


@click.command(name="fit", cls=Command, epilog=EPILOG)
@target_argument
@inputs_options
@budget_option
@config_options
@device_memory_option(required=True)
@train_option
@optimizer_option
@what_if_options
@calibrate_option
@option("--no-options", is_flag=True, help="Do not search for changes that would make it fit.")
@sort_option(("peak_nbytes", "left_nbytes"), unsorted="the least peak first")
@top_option
@width_option
@format_option(api.RENDERERS["fit"])
@color_option
@output_option
def fit(
    target: str,
    inputs: str | None,
    specs: tuple[str, ...],
    budget: float,
    builder: str | None,
    model_key: str | None,
    trust: bool,
    device_memory: int,
    train: bool,
    optimizer: str | None,
    calibrate: bool,
    no_options: bool,
    sort: str | None,
    top: int | None,
    width: int | None,
    format_: str,
    color: str,
    output: Path | None,
    **changes: Any,
) -> None:
    """Show whether a model fits into a device.

    Also finds the largest batch and sequence that fit, and changes that would make it fit. TARGET is a
    configuration (config.json, model.yaml), or file.py::function or package.module:function that returns a
    model. Sizes are searched for by runs on fake tensors, which do not allocate the memory.
    """
    given = parse_or_find(inputs, specs, budget)
    what_if = parse_what_if(train, **changes)
    stepper = parse_optimizer(train, optimizer)
    with Progress() as progress, stdout_to_stderr():
        found = api.fit(
            target,
            given,
            device_memory=device_memory,
            train=train,
            optimizer=stepper,
            calibrate=calibrate,
            what_if=what_if,
            options=not no_options,
            builder=builder,
            model_key=model_key,
            trust=trust,
            progress=progress,
        )
    look: dict[str, object] = {} if format_ == "json" else {"sort": sort, "top": top}
    if format_ == "text":
        look |= {"width": width_of(width, output), "color": wants_color(color, output)}
    emit(api.RENDERERS["fit"][format_](found, **look), output)
    tell_of_inputs(found.notes, shown=format_ != "csv")
    if not found.fits:
        raise SystemExit(DOES_NOT_FIT)
