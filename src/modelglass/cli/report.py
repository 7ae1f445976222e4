"""`modelglass report TARGET`: everything about it on one page, to send around."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from modelglass import api
from modelglass.cli._command import Command, option, options
from modelglass.cli._exit import end_of_run
from modelglass.cli._options import (
    calibrate_option,
    config_options,
    inputs_options,
    limit_option,
    optimizer_option,
    output_option,
    parse_inputs,
    parse_limits,
    parse_optimizer,
    run_option,
    stats_option,
    target_argument,
    train_option,
)
from modelglass.cli._output import emit, stdout_to_stderr
from modelglass.cli._progress import Progress
from modelglass.cli._serving import parse_serving, serving_options

EPILOG = """\b
Examples:
  modelglass report model.py::build --input 1x3x224x224 -o page.html
  modelglass report model.py::build --inputs model.py::batch --train --stats --symbols -o page.html
  modelglass report config.json --train --calibrate -o page.html
  modelglass report model.safetensors --stats -o page.html
  modelglass report report.json -o page.html
  modelglass page.html
"""

whole_options = options(
    target_argument,
    inputs_options,
    config_options,
    run_option,
    train_option,
    optimizer_option,
    calibrate_option,
    stats_option,
    option("--symbols", is_flag=True, help="Run with other sizes, to name those that can change."),
    limit_option,
    serving_options,
)


@click.command(name="report", cls=Command, epilog=EPILOG)
@whole_options
@output_option
def report(target: str, output: Path | None, **asked: Any) -> None:
    """Write a report as one HTML page.

    Everything about a model is on it. The page is one file that asks nothing of any network and can be read without a script. TARGET is a
    checkpoint (a file or a folder), a configuration (config.json, model.yaml), a saved report or page, or
    file.py::function or package.module:function that returns a model. Files of a checkpoint are scanned, too.
    The report itself is inside: mg.load("page.html") gives it back.
    """
    found, page = whole_page(target, **asked)
    emit(page, output)
    end_of_run(found, shown=False)


def whole_page(
    target: str,
    *,
    inputs: str | None,
    specs: tuple[str, ...],
    train: bool,
    optimizer: str | None,
    limits: tuple[str, ...],
    framework: str | None,
    run: Any,
    calibrate: bool,
    stats: bool,
    symbols: bool,
    builder: str | None,
    model_key: str | None,
    trust: bool,
    **engine: Any,
) -> tuple[Any, str]:
    """The report of a target, and the page of it."""
    most = parse_limits(limits)
    with Progress() as progress, stdout_to_stderr():
        found = api.inspect(
            target,
            parse_inputs(inputs, specs),
            run=run,
            train=train,
            optimizer=parse_optimizer(train, optimizer),
            calibrate=calibrate,
            stats=stats,
            symbols=symbols,
            limits=most,
            builder=builder,
            model_key=model_key,
            trust=trust,
            framework=framework,
            serving=parse_serving(framework, engine),
            on_failure="report",
            progress=progress,
        )
        scan = api.scan_of(found, target, limits=most, progress=progress)
        progress("writing the page")
        return found, api.page(found, scan)
