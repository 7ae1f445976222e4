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
    limit_option,
    optimizer_option,
    output_option,
    parse_limits,
    parse_optimizer,
    run_option,
    stats_option,
    train_option,
)
from modelglass.cli._output import emit
from modelglass.cli._progress import working
from modelglass.cli._serving import GivenEngine, serving_options
from modelglass.cli._target import GivenTarget, structure_options

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
    structure_options,
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
def report(given: GivenTarget, output: Path | None, **asked: Any) -> None:
    """Write a report as one HTML page.

    Everything about a model is on it. The page is a single file that needs no network and can be read
    without JavaScript. TARGET is a checkpoint (a file or a folder), a configuration (config.json,
    model.yaml), a saved report or page, or file.py::function or package.module:function that returns a model.
    Files of a checkpoint are scanned as well. The report is inside: mg.load("page.html") gives it back.
    """
    found, page = whole_page(given, **asked)
    emit(page, output)
    end_of_run(found, shown=False)


def whole_page(
    given: GivenTarget,
    *,
    train: bool,
    optimizer: str | None,
    limits: tuple[str, ...],
    run: Any,
    calibrate: bool,
    stats: bool,
    symbols: bool,
    engine: GivenEngine,
) -> tuple[Any, str]:
    """The report of a target, and the page of it."""
    most = parse_limits(limits)
    run = "none" if given.no_run else run
    stepper = parse_optimizer(train, optimizer)
    asked = given.build | engine.options
    with working() as progress:
        found = api.inspect(
            *given.arguments,
            run=run,
            train=train,
            optimizer=stepper,
            calibrate=calibrate,
            stats=stats,
            symbols=symbols,
            limits=most,
            **asked,
            on_failure="report",
            progress=progress,
        )
        scan = api.scan_of(found, given.target, limits=most, progress=progress)
        progress("writing the page")
        return found, api.page(found, scan)
