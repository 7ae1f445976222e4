"""`modelglass info TARGET`: one JSON document that says what a model is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from modelglass import api
from modelglass.cli._options import config_options, given_inputs, inputs_options, output_option
from modelglass.cli._output import aside, emit
from modelglass.cli._progress import Progress
from modelglass.cli._serving import chosen_serving, serving_options
from modelglass.compat import model_info

EPILOG = """\b
Examples:
  modelglass info model.py::build --input 1x3x224x224 -o model_info.json
  modelglass info model.py::build --inputs model.py::batch --name "Detector, v3"
  modelglass info config.json -o model_info.json
  modelglass info config.json --framework vllm --tensor-parallel 2 -o model_info.json
"""


@click.command(name="info", epilog=EPILOG)
@click.argument("target")
@inputs_options
@config_options
@click.option("--name", metavar="TEXT", help="The model's name in the document, instead of its class.")
@serving_options
@output_option
def info(
    target: str,
    inputs: str | None,
    specs: tuple[str, ...],
    builder: str | None,
    model_key: str | None,
    trust: bool,
    name: str | None,
    framework: str | None,
    output: Path | None,
    **engine: Any,
) -> None:
    """Describe a model for a registry, layer by layer, as model_info.json.

    TARGET is a configuration (config.json, model.yaml), or file.py::function or package.module:function that
    returns a model. Without inputs, which a configuration may tell itself, nothing runs, and what only a
    run can tell is null. With --framework vllm, a configuration is built as one rank of an engine would hold
    it.
    """
    given = given_inputs(inputs, specs)
    serving = chosen_serving(framework, engine)
    with Progress() as progress, aside():
        report = api.inspect(
            target,
            given,
            builder=builder,
            model_key=model_key,
            trust=trust,
            framework=framework,
            serving=serving,
            progress=progress,
        )
    emit(model_info.rendered(report, name), output)
