"""`modelglass info TARGET`: one JSON document that describes a model."""

from __future__ import annotations

from pathlib import Path

import click

from modelglass import api
from modelglass.cli._command import Command, option
from modelglass.cli._options import output_option
from modelglass.cli._output import emit
from modelglass.cli._progress import working
from modelglass.cli._serving import GivenEngine, serving_options
from modelglass.cli._target import GivenTarget, structure_options
from modelglass.compat import model_info

EPILOG = """\b
Examples:
  modelglass info model.py::build --input 1x3x224x224 -o model_info.json
  modelglass info model.py::build --inputs model.py::batch --name "Detector, v3"
  modelglass info config.json -o model_info.json
  modelglass info config.json --framework vllm --tensor-parallel 2 -o model_info.json
"""


@click.command(name="info", cls=Command, epilog=EPILOG)
@structure_options
@option("--name", metavar="TEXT", help="Name of the model in the document (default: its class).")
@serving_options
@output_option
def info(
    given: GivenTarget,
    name: str | None,
    engine: GivenEngine,
    output: Path | None,
) -> None:
    """Write model_info.json, for a registry.

    The document describes a model layer by layer. TARGET is a configuration (config.json, model.yaml), or
    file.py::function or package.module:function that returns a model. Inputs that are not given are found
    by trying; where nothing runs, fields that need a run are null. With --framework vllm, a
    configuration is built as one rank of an engine would hold it.
    """
    asked = given.build | engine.options
    with working() as progress:
        report = api.inspect(
            *given.arguments,
            run="none" if given.no_run else "fake",
            **asked,
            progress=progress,
        )
    emit(model_info.rendered(report, name), output)
