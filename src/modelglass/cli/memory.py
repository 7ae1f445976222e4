"""`modelglass memory TARGET`: how much memory does a pass or a training step take, and where?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from modelglass import api
from modelglass.cli._exit import INCOMPLETE, end_of_run, tell
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

EPILOG = """\b
Examples:
  modelglass memory model.py::build --input 1x3x224x224
  modelglass memory config.json --train --batch-size 8
  modelglass memory model.py::build --inputs model.py::batch --train
  modelglass memory model.py::build --input 2x16:int64 --train --optimizer sgd --batch-size 64
  modelglass memory model.py::build --inputs model.py::batch --train --dtype bfloat16 --master-weights
  modelglass memory model.py::build --inputs model.py::batch --train --checkpoint "model.layers.*"
  modelglass memory model.py::build --inputs model.py::batch --train --sharding fsdp3 --devices 8
  modelglass memory model.py::build --inputs model.py::batch --context 4096 --context 131072
  modelglass memory model.py::build --input 1x3x224x224 --train --calibrate --plot timeline.png
"""


@click.command(name="memory", epilog=EPILOG)
@click.argument("target")
@inputs_options
@config_options
@click.option("--train", is_flag=True, help="A training step: forward, loss, backward, optimizer.")
@optimizer_option
@click.option("--batch-size", type=click.IntRange(1), metavar="N", help="As if so many samples were given.")
@click.option("--seq-len", type=click.IntRange(1), metavar="N", help="As if sequences were so long.")
@click.option(
    "--dtype", type=click.Choice(api.WEIGHTS), help="As if weights and floating inputs were of this type."
)
@click.option(
    "--autocast", type=click.Choice(api.AUTOCAST), help="Operators compute in this type under autocast."
)
@click.option("--master-weights", is_flag=True, help="The optimizer keeps float32 copies of the weights.")
@click.option("--accumulate", type=click.IntRange(1), metavar="N", help="Passes before an optimizer step.")
@click.option(
    "--checkpoint",
    metavar="PATTERN",
    multiple=True,
    help="Modules that run again in backward instead of saving: 'model.layers.*'. Repeatable.",
)
@click.option(
    "--sharding", type=click.Choice(["ddp", "fsdp2", "fsdp3", "tensor"]), help="How --devices share the work."
)
@click.option("--devices", type=click.IntRange(1), metavar="N", help="With --sharding: over how many.")
@click.option("--calibrate", is_flag=True, help="Run each kernel once for real and include its own scratch.")
@click.option(
    "--context",
    "contexts",
    type=click.IntRange(1),
    metavar="N",
    multiple=True,
    help="Show the KV cache at so many tokens. Repeatable.",
)
@click.option(
    "--plot", type=click.Path(path_type=Path), metavar="FILE", help="Draw the timeline: .png, .svg or .pdf."
)
@width_option
@format_option(api.RENDERERS["memory"])
@color_option
@output_option
def memory(
    target: str,
    inputs: str | None,
    specs: tuple[str, ...],
    builder: str | None,
    model_key: str | None,
    trust: bool,
    train: bool,
    optimizer: str | None,
    calibrate: bool,
    contexts: tuple[int, ...],
    plot: Path | None,
    width: int | None,
    format_: str,
    color: str,
    output: Path | None,
    **changes: Any,
) -> None:
    """Show how much memory a forward pass or a training step takes: its peak, what is held there, and when.

    TARGET is a configuration (config.json, model.yaml), or file.py::function or package.module:function that
    returns a model. Tensors are fake, and each is followed from the kernel that makes it to its end: none of
    the memory is taken to find out, unless with --calibrate, which runs one kernel at a time.
    """
    given = given_inputs(inputs, specs)
    what_if = _what_if(train, **changes)
    stepper = chosen_optimizer(train, optimizer)
    draw = None if plot is None else api.timeline_plotter(plot)
    with Progress() as progress, aside():
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
    options: dict[str, object] = {} if format_ in ("json", "csv") else {"contexts": contexts}
    if format_ == "text":
        options |= {"width": width_of(width, output), "color": wants_color(color, output)}
    if report.run.failure is None or format_ != "csv":  # a table of what never happened would be empty
        emit(api.RENDERERS["memory"][format_](report, **options), output)
    if report.run.failure is None and report.memory is None:  # in JSON, which has a place for that
        tell(*(f"{note.severity}: {note.text}" for note in report.notes if note.severity != "info"))
        raise SystemExit(INCOMPLETE)
    end_of_run(report, shown=output is None and format_ not in ("json", "csv"))


def _what_if(
    train: bool,
    *,
    batch_size: int | None,
    seq_len: int | None,
    dtype: str | None,
    autocast: str | None,
    master_weights: bool,
    accumulate: int | None,
    checkpoint: tuple[str, ...],
    sharding: Any,
    devices: int | None,
) -> Any:
    """What the options change about the run; None: nothing."""
    if not train:
        for option, given in (
            ("--master-weights", master_weights),
            ("--accumulate", accumulate),
            ("--checkpoint", checkpoint),
        ):
            if given:
                raise UsageError(f"{option} is for a training step", hint="add --train")
    if (sharding is None) != (devices is None):
        raise UsageError(
            "--sharding and --devices belong together", hint="give both, as in --sharding fsdp3 --devices 8"
        )
    changed = api.WhatIf(
        batch_size=batch_size,
        seq_len=seq_len,
        weights=dtype,
        autocast=autocast,
        master_weights=master_weights,
        accumulate=accumulate or 1,
        checkpoint=checkpoint,
        sharding=sharding,
        devices=devices or 1,
    )
    return None if changed == api.WhatIf() else changed
