"""`tt-model-analysis`: the distinct modules and operators of a model, as two JSON files in a folder."""

from __future__ import annotations

from pathlib import Path

import click

from modelglass import api
from modelglass.cli._output import emit, wants_color, width_of
from modelglass.cli._progress import working
from modelglass.cli._types import NewFolder
from modelglass.cli.main import run
from modelglass.compat import unique_modules

NAME = "tt-model-analysis"
SHOWN_OPS = 5

EPILOG = """\b
Example:
  tt-model-analysis --model-path model.py::load_model --inputs-path model.py::get_inputs

Exit codes: 0 done; 2 wrong usage; 3 the model could not be loaded or run.
"""


@click.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--model-path", required=True, metavar="F.py::FN", help="The function that returns the model.")
@click.option(
    "--inputs-path",
    required=True,
    metavar="F.py::FN",
    help="The function that returns its inputs: a tensor, a tuple or list (positional), a dict (by keyword).",
)
@click.option(
    "--dir",
    "folder",
    type=NewFolder(),
    help="Where the two files go. By default a folder named after the model's class.",
)
def tt_model_analysis(model_path: str, inputs_path: str, folder: Path | None) -> None:
    """Write unique_modules.json and pytorch_ops.json: which distinct modules and operators a model uses.

    No device is needed, and nothing is computed unless values decide what runs. Only the code you name runs.
    """
    with working(NAME) as progress:
        found = unique_modules.analyse(model_path, inputs_path, folder, progress)
    summary = api.RENDERERS["unique"]["text"](
        found.report,
        found.unique,
        api.UniqueChoice(["ops"], "macs", SHOWN_OPS),
        width=width_of(None, None),
        color=wants_color("auto", None),
    )
    modules = f"{len(found.report.model.modules):,} modules, {len(found.unique.modules):,} distinct"
    emit(f"{api.told(found.report.model.name)}: {modules}\n{summary}\n", None)
    for file in found.files:
        emit(f"{api.told(str(file))}\n", None)


def main(arguments: list[str] | None = None) -> None:
    """Run the command and exit with its code."""
    run(tt_model_analysis, NAME, arguments)
