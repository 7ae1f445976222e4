"""`modelglass flow TARGET`: how does data flow through it?"""

from __future__ import annotations

from pathlib import Path

import click

from modelglass import api
from modelglass.cli._command import Command
from modelglass.cli._exit import tell_of_inputs
from modelglass.cli._options import (
    budget_option,
    color_option,
    config_options,
    depth_option,
    format_option,
    inputs_options,
    output_option,
    parse_or_find,
    target_argument,
    width_option,
)
from modelglass.cli._output import emit, stdout_to_stderr, wants_color, width_of
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

_WITH_NOTES = ("text", "markdown", "json")  # drawings have none
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


@click.command(name="flow", cls=Command, epilog=EPILOG)
@target_argument
@inputs_options
@budget_option
@config_options
@depth_option
@width_option
@format_option(api.RENDERERS["flow"], default=None)
@color_option
@output_option
def flow(
    target: str,
    inputs: str | None,
    specs: tuple[str, ...],
    budget: float,
    builder: str | None,
    model_key: str | None,
    trust: bool,
    depth: int | None,
    width: int | None,
    format_: str | None,
    color: str,
    output: Path | None,
) -> None:
    """Draw how data flows through a model.

    The drawing goes from the inputs to the outputs of a run; without --depth it is as deep as is readable.
    TARGET is a configuration (config.json, model.yaml), a saved report, or file.py::function or
    package.module:function that returns a model. Sizes that follow the inputs get names, which are found by
    running with other sizes as well.
    """
    chosen = format_ or _format_of(output)
    given = parse_or_find(inputs, specs, budget)
    with Progress() as progress, stdout_to_stderr():
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
    tell_of_inputs(found.notes, shown=chosen in _WITH_NOTES)


def _format_of(output: Path | None) -> str:
    """The format that the suffix of a file names."""
    if output is None:
        return "text"
    found = _SUFFIXES.get(output.suffix.lower())
    if found is None:
        raise UsageError(
            f"the suffix {output.suffix!r} does not name a format of flow",
            hint=f"use {', '.join(each for each in _SUFFIXES if each)}, or give --format",
        )
    return found
