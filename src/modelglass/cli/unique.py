"""`modelglass unique TARGET`: which distinct modules and operators does it use?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from modelglass import api
from modelglass.cli._command import Command, option
from modelglass.cli._exit import write_stderr
from modelglass.cli._options import columns_option, sort_option, top_option
from modelglass.cli._progress import working
from modelglass.cli._target import GivenTarget, structure_options
from modelglass.cli._types import NewFolder
from modelglass.cli._view import View, view_options

EPILOG = """\b
Examples:
  modelglass unique model.py::build --input 1x3x224x224
  modelglass unique config.json --ops
  modelglass unique model.py::build --inputs model.py::batch --ops --sort macs --top 10
  modelglass unique model.py::build --input 2x16:int64 --format csv -o unique.csv
  modelglass unique model.py::build --input 1x3x224x224 --repro ops/    # then: python ops/op_000_conv2d.py
"""


@click.command(name="unique", cls=Command, epilog=EPILOG)
@structure_options
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
@view_options(api.RENDERERS["unique"])
def unique(
    given: GivenTarget,
    modules: bool,
    ops: bool,
    sort: str,
    top: int | None,
    columns: str | None,
    repro: Path | None,
    view: View,
) -> None:
    """Show distinct modules and operators.

    The tables have the shapes of each and how often it is used. TARGET is a configuration (config.json,
    model.yaml), a saved report, or file.py::function or package.module:function that returns a model. Inputs
    that are not given are found by trying. Where nothing runs, modules are grouped by type and settings, and
    there are no operators.
    """
    if columns is not None:
        api.parse_columns(columns, api.UNIQUE_DATA_COLUMNS if view.format_ == "csv" else api.UNIQUE_COLUMNS)
    inspect = api.inspect_run if ops or repro else api.inspect_modules  # operators need a run
    mode: Any = "none" if given.no_run else "fake"
    with working() as progress:
        report = inspect(*given.arguments, run=mode, **given.build, progress=progress)
        found = api.unique(report)
        made = None if repro is None else api.reproduce(report, repro)
    kinds = [kind for kind, wanted in (("modules", modules), ("ops", ops)) if wanted or modules == ops]
    choice = api.UniqueChoice(kinds, sort, top)
    options = view.options({"columns": columns})
    view.emit(api.RENDERERS["unique"][view.format_](report, found, choice, **options))
    view.tell_of_inputs(report.notes)
    if made is not None:
        _tell_files(made.files, made.missing, repro)


def _tell_files(files: Sequence[str], missing: Mapping[str, str], folder: Path | None) -> None:
    write_stderr(f"{len(files):,} operators, one file each, in {folder}")
    for id, reason in missing.items():
        write_stderr(f"no file for {id}: {reason}")
