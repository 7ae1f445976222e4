"""`modelglass inspect TARGET`: what is in this model, layer by layer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from modelglass import api
from modelglass.cli._exit import end_of_run
from modelglass.cli._options import (
    chosen_limits,
    color_option,
    config_options,
    format_option,
    given_inputs,
    inputs_options,
    limit_option,
    output_option,
    width_option,
)
from modelglass.cli._output import aside, emit, wants_color, width_of
from modelglass.cli._progress import Progress
from modelglass.cli._serving import chosen_serving, serving_options

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
  modelglass inspect llama-70b/config.json --framework vllm --tensor-parallel 8 --rank 3 --memory 80GiB
"""


@click.command(name="inspect", epilog=EPILOG)
@click.argument("target")
@inputs_options
@config_options
@click.option(
    "--run",
    type=click.Choice(["fake", "real", "none"]),
    default="fake",
    show_default=True,
    help="Compute nothing, compute on copies, or read the structure alone.",
)
@click.option("--train", is_flag=True, help="Observe the backward pass too.")
@click.option("--depth", type=click.IntRange(0), help="Levels of the tree to show.")
@click.option(
    "--columns", metavar="NAMES", help=f"Columns of the table, by commas: {', '.join(api.COLUMNS)}."
)
@click.option("--no-fold", is_flag=True, help="Show repeated identical blocks one by one.")
@click.option("--stats", is_flag=True, help="Read every weight and describe it, too.")
@limit_option
@serving_options
@width_option
@format_option(api.RENDERERS["inspect"])
@color_option
@output_option
def inspect(
    target: str,
    inputs: str | None,
    specs: tuple[str, ...],
    builder: str | None,
    model_key: str | None,
    trust: bool,
    run: Any,
    train: bool,
    depth: int | None,
    columns: str | None,
    no_fold: bool,
    stats: bool,
    limits: tuple[str, ...],
    framework: str | None,
    width: int | None,
    format_: str,
    color: str,
    output: Path | None,
    **engine: Any,
) -> None:
    """Show what is in a model, layer by layer: shapes, parameters, cost.

    TARGET is a checkpoint (a file or a folder), a configuration (config.json, model.yaml), or
    file.py::function or package.module:function that returns a model. Without inputs, which a configuration
    may tell itself, only the structure is read. With --framework vllm, a configuration is built as one rank
    of an engine would hold it, without an engine and without weights.
    """
    shown = None if columns is None else api.known_columns(columns, api.COLUMNS)
    given = given_inputs(inputs, specs)
    most = chosen_limits(limits)
    serving = chosen_serving(framework, engine)
    # What the user's code prints must not mix with the result.
    with Progress() as progress, aside():
        report = api.inspect(
            target,
            given,
            run=run,
            train=train,
            stats=stats,
            limits=most,
            builder=builder,
            model_key=model_key,
            trust=trust,
            framework=framework,
            serving=serving,
            on_failure="report",
            progress=progress,
        )
    options: dict[str, Any] = {}
    if format_ != "json":
        options = {"depth": depth, "fold": not no_fold, "columns": shown}
    if format_ == "text":
        options |= {"width": width_of(width, output), "color": wants_color(color, output)}
    emit(api.render(report, format_, **options), output)
    end_of_run(report, shown=output is None and format_ != "json")
