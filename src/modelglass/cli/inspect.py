"""`modelglass inspect TARGET`: what is in this model, layer by layer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from modelglass import api
from modelglass.cli._command import Command, option
from modelglass.cli._exit import end_of_run
from modelglass.cli._options import (
    color_option,
    columns_option,
    config_options,
    depth_option,
    format_option,
    inputs_options,
    limit_option,
    output_option,
    parse_inputs,
    parse_limits,
    run_option,
    sort_option,
    stats_option,
    target_argument,
    top_option,
    train_option,
    width_option,
)
from modelglass.cli._output import emit, stdout_to_stderr, wants_color, width_of
from modelglass.cli._progress import Progress
from modelglass.cli._serving import parse_serving, serving_options

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
@target_argument
@inputs_options
@config_options
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
    sort: str | None,
    top: int | None,
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
    """Show a model layer by layer.

    The table has shapes, parameters and cost. TARGET is a checkpoint (a file or a folder), a configuration
    (config.json, model.yaml), a saved report, or file.py::function or package.module:function that returns a
    model. Without inputs only the structure is read; a Hugging Face configuration has inputs of its own.
    With --framework vllm, a configuration is built as one rank of an engine would hold it, without an engine
    and without weights.
    """
    known = api.DATA_COLUMNS if format_ == "csv" else api.COLUMNS
    shown = None if columns is None else api.parse_columns(columns, known)
    given = parse_inputs(inputs, specs)
    most = parse_limits(limits)
    serving = parse_serving(framework, engine)
    # What the user's code prints must not mix with the result.
    with Progress() as progress, stdout_to_stderr():
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
        options = {"sort": sort, "top": top, "depth": depth, "columns": shown}
    if format_ in ("text", "markdown", "html"):
        options["fold"] = not no_fold
    if format_ == "text":
        options |= {"width": width_of(width, output), "color": wants_color(color, output)}
    emit(api.render(report, format_, **options), output)
    end_of_run(report, shown=output is None and format_ not in ("json", "csv"))
