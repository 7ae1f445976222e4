"""`modelglass flow TARGET`: how does data flow through it?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from modelglass import api
from modelglass.cli._command import Command
from modelglass.cli._options import depth_option
from modelglass.cli._progress import working
from modelglass.cli._target import GivenTarget, target_options
from modelglass.cli._view import View, view_options
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


@click.command(name="flow", cls=Command, epilog=EPILOG)
@target_options
@depth_option
@view_options(api.RENDERERS["flow"], default=None)
def flow(
    given: GivenTarget,
    depth: int | None,
    view: View,
) -> None:
    """Draw how data flows through a model.

    The drawing goes from the inputs to the outputs of a run; without --depth it is as deep as is readable.
    TARGET is a configuration (config.json, model.yaml), a saved report, or file.py::function or
    package.module:function that returns a model. Sizes that follow the inputs get names, which are found by
    running with other sizes as well.
    """
    view = replace(view, format_=view.format_ or _format_of(view.output))
    with working() as progress:
        found = api.flow(
            *given.arguments,
            depth=depth,
            **given.build,
            progress=progress,
        )
    view.emit(api.RENDERERS["flow"][view.format_](found, **view.options()))
    view.tell_of_inputs(found.notes)


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
