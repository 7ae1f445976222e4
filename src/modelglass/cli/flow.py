"""`modelglass flow TARGET`: how does data flow through it?"""

from __future__ import annotations

from pathlib import Path

import click

from modelglass import api
from modelglass.cli._options import (
    color_option,
    config_options,
    given_inputs,
    inputs_options,
    output_option,
    width_option,
)
from modelglass.cli._output import aside, emit, wants_color, width_of
from modelglass.cli._progress import Progress
from modelglass.errors import UsageError

EPILOG = """\b
Examples:
  modelglass flow config.json
  modelglass flow model.py::build --input 1x3x224x224
  modelglass flow model.py::build --inputs model.py::batch --depth 2
  modelglass flow model.py::build --inputs model.py::batch -o model.svg
  modelglass flow model.yaml --format mermaid

\b
Exit codes:
  0  done
  2  wrong usage
  3  the model could not be built or run
"""

_SUFFIXES = {
    ".svg": "svg",
    ".mmd": "mermaid",
    ".mermaid": "mermaid",
    ".dot": "dot",
    ".gv": "dot",
    ".json": "json",
    ".txt": "text",
    "": "text",
}


@click.command(name="flow", epilog=EPILOG)
@click.argument("target")
@inputs_options
@config_options
@click.option("--depth", type=click.IntRange(1), help="Modules inside modules to open; else what reads well.")
@width_option
@click.option(
    "--format",
    "format_",
    type=click.Choice(list(api.RENDERERS["flow"])),
    help="What comes out; by default what the ending of FILE says, else text.",
)
@color_option
@output_option
def flow(
    target: str,
    inputs: str | None,
    specs: tuple[str, ...],
    builder: str | None,
    model_key: str | None,
    trust: bool,
    depth: int | None,
    width: int | None,
    format_: str | None,
    color: str,
    output: Path | None,
) -> None:
    """Draw how data flows through a model, from its inputs to its outputs, as it was seen in a run.

    TARGET is a configuration (config.json, model.yaml), or file.py::function or package.module:function that
    returns a model. Sizes that follow the inputs have names, found by running with other sizes, too.
    """
    chosen = format_ or _format_of(output)
    given = given_inputs(inputs, specs)
    with Progress() as progress, aside():
        found = api.flow(
            target,
            given,
            depth=depth,
            builder=builder,
            model_key=model_key,
            trust=trust,
            progress=progress,
        )
    look: dict[str, object] = {}
    if chosen == "text":
        look = {"width": width_of(width, output), "color": wants_color(color, output)}
    emit(api.RENDERERS["flow"][chosen](found, **look), output)


def _format_of(output: Path | None) -> str:
    """What the ending of a file asks for."""
    if output is None:
        return "text"
    found = _SUFFIXES.get(output.suffix.lower())
    if found is None:
        raise UsageError(
            f"no format of a flow ends in {output.suffix!r}",
            hint=f"end it in {', '.join(each for each in _SUFFIXES if each)}, or say --format",
        )
    return found
