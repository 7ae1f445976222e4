"""`modelglass fit TARGET --memory 24GiB`: does it fit, and what would make it fit?"""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import click

from modelglass import api
from modelglass.cli._options import (
    chosen_optimizer,
    color_option,
    config_options,
    format_option,
    given_inputs,
    inputs_options,
    optimizer_option,
    output_option,
    width_option,
)
from modelglass.cli._output import aside, emit, wants_color, width_of
from modelglass.cli._progress import Progress
from modelglass.errors import UsageError

DOES_NOT_FIT = 1

_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([a-z]*)", re.ASCII | re.IGNORECASE)
_UNITS = {"": 1, "b": 1} | {
    f"{letter}{ending}": base**power
    for power, letter in enumerate("kmgt", start=1)
    for ending, base in (("b", 1000), ("ib", 1024))
}

EPILOG = """\b
Examples:
  modelglass fit model.py::build --input 1x3x224x224 --memory 512MiB
  modelglass fit config.json --memory 24GiB --train
  modelglass fit model.py::build --inputs model.py::batch --memory 24GiB --train
  modelglass fit model.py::build --inputs model.py::batch --memory 80GB --train --optimizer sgd
  modelglass fit model.py::build --inputs model.py::batch --memory 24GiB --train --format json -o fit.json

\b
Exit codes:
  0  it fits
  1  it does not fit
  2  wrong usage
  3  the model could not be built or run
"""


@click.command(name="fit", epilog=EPILOG)
@click.argument("target")
@inputs_options
@config_options
@click.option(
    "--memory",
    metavar="SIZE",
    required=True,
    help="Of the device: 24GiB (2^30 bytes each), 24GB (10^9), 512MiB, or bytes.",
)
@click.option("--train", is_flag=True, help="A training step: forward, loss, backward, optimizer.")
@optimizer_option
@click.option("--dtype", type=click.Choice(api.WEIGHTS), help="As if the weights were of this type.")
@click.option("--calibrate", is_flag=True, help="Run each kernel once for real and include its own scratch.")
@click.option("--no-options", is_flag=True, help="Do not look for changes that would make it fit.")
@width_option
@format_option(api.RENDERERS["fit"])
@color_option
@output_option
def fit(
    target: str,
    inputs: str | None,
    specs: tuple[str, ...],
    builder: str | None,
    model_key: str | None,
    trust: bool,
    memory: str,
    train: bool,
    optimizer: str | None,
    dtype: str | None,
    calibrate: bool,
    no_options: bool,
    width: int | None,
    format_: str,
    color: str,
    output: Path | None,
) -> None:
    """Say whether a model fits into a device, with which batch and sequence, and what would make it fit.

    TARGET is a configuration (config.json, model.yaml), or file.py::function or package.module:function that
    returns a model. Sizes are searched for by runs on fake tensors, which take none of the memory.
    """
    device_nbytes = parsed_size(memory)
    given = given_inputs(inputs, specs)
    stepper = chosen_optimizer(train, optimizer)
    with Progress() as progress, aside():
        found = api.fit(
            target,
            given,
            device_nbytes=device_nbytes,
            train=train,
            optimizer=stepper,
            calibrate=calibrate,
            what_if=None if dtype is None else api.WhatIf(weights=dtype),
            options=not no_options,
            builder=builder,
            model_key=model_key,
            trust=trust,
            progress=progress,
        )
    look: dict[str, object] = {}
    if format_ == "text":
        look = {"width": width_of(width, output), "color": wants_color(color, output)}
    emit(api.RENDERERS["fit"][format_](found, **look), output)
    if not found.fits:
        raise SystemExit(DOES_NOT_FIT)


def parsed_size(text: str) -> int:
    """Bytes from a number and a unit; a letter alone could mean either of two units, and is none."""
    match = _SIZE.fullmatch(text.strip())
    unit = None if match is None else _UNITS.get(match[2].lower())
    if match is None or unit is None:
        raise UsageError(
            f"{text!r} is no amount of memory", hint="write 24GiB, 24GB, 512MiB or a number of bytes"
        )
    nbytes = int(Fraction(match[1]) * unit)
    if nbytes < 1:
        raise UsageError(f"{text!r} is no memory at all", hint="give what the device has, such as 24GiB")
    return nbytes
