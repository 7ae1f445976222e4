"""`modelglass unique TARGET`: which distinct modules and operators does it use?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from modelglass import api
from modelglass.cli._command import Command, option
from modelglass.cli._exit import tell_of_inputs, write_stderr
from modelglass.cli._options import (
    budget_option,
    color_option,
    columns_option,
    config_options,
    format_option,
    inputs_options,
    no_run_option,
    output_option,
    parse_or_find,
    sort_option,
    target_argument,
    top_option,
    width_option,
)
from modelglass.cli._output import emit, stdout_to_stderr, wants_color, width_of
from modelglass.cli._progress import Progress
from modelglass.cli._types import NewFolder

EPILOG = """\b
Examples:
  modelglass unique model.py::build --input 1x3x224x224
  modelglass unique config.json --ops
  modelglass unique model.py::build --inputs model.py::batch --ops --sort macs --top 10
  modelglass unique model.py::build --input 2x16:int64 --format csv -o unique.csv
  modelglass unique model.py::build --input 1x3x224x224 --repro ops/    # then: python ops/op_000_conv2d.py
"""


@click.command(name="unique", cls=Command, epilog=EPILOG)
@target_argument
@inputs_options
@budget_option
@no_run_option
@config_options
@option("--modules", is_flag=True, help="Show only modules.")
@option("--ops", is_flag=True, help="Show only operators.")
@sort_option(api.UNIQUE_SORTS, default="count")
@top_option
@columns_option(api.UNIQUE_COLUMNS)
@option(
    "--repro",
    type=NewFolder(),
    metavar="DIR",
    help="Write a Python file for each distinct operator; it runs the operator alone.",
)
@width_option
@format_option(api.RENDERERS["unique"])
@color_option
@output_option
def unique(
    target: str,
    inputs: str | None,
    specs: tuple[str, ...],
    budget: float,
    no_run: bool,
    builder: str | None,
    model_key: str | None,
    trust: bool,
    modules: bool,
    ops: bool,
    sort: str,
    top: int | None,
    columns: str | None,
    repro: Path | None,
    width: int | None,
    format_: str,
    color: str,
    output: Path | None,
) -> None:
    """Show distinct modules and operators.

    The tables have the shapes of each and how often it is used. TARGET is a configuration (config.json,
    model.yaml), a saved report, or file.py::function or package.module:function that returns a model. Inputs
    that are not given are found by trying. Where nothing runs, modules are grouped by type and settings, and
    there are no operators.
    """
    if columns is not None:
        api.parse_columns(columns, api.UNIQUE_DATA_COLUMNS if format_ == "csv" else api.UNIQUE_COLUMNS)
    given = parse_or_find(inputs, specs, budget, needed=bool(ops or repro))
    inspect = api.inspect_run if ops or repro else api.inspect_modules  # operators need a run
    mode: Any = "none" if no_run else "fake"
    with Progress() as progress, stdout_to_stderr():
        report = inspect(
            target,
            given,
            run=mode,
            builder=builder,
            model_key=model_key,
            trust=trust,
            progress=progress,
        )
        found = api.unique(report)
        made = None if repro is None else api.reproduce(report, repro)
    kinds = [kind for kind, wanted in (("modules", modules), ("ops", ops)) if wanted or modules == ops]
    look: dict[str, object] = {} if format_ == "json" else {"columns": columns}
    if format_ == "text":
        look |= {"width": width_of(width, output), "color": wants_color(color, output)}
    choice = api.UniqueChoice(kinds, sort, top)
    emit(api.RENDERERS["unique"][format_](report, found, choice, **look), output)
    tell_of_inputs(report.notes, shown=format_ != "csv")
    if made is not None:
        _tell_files(made.files, made.missing, repro)


def _tell_files(files: Sequence[str], missing: Mapping[str, str], folder: Path | None) -> None:
    write_stderr(f"{len(files):,} operators, one file each, in {folder}")
    for id, reason in missing.items():
        write_stderr(f"no file for {id}: {reason}")
