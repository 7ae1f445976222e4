"""`modelglass compare A B`: is the one a port of the other, and where do they differ?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from modelglass import api
from modelglass.cli._options import (
    color_option,
    format_option,
    given_inputs,
    inputs_options,
    output_option,
    trust_option,
    width_option,
)
from modelglass.cli._output import aside, emit, wants_color, width_of
from modelglass.cli._progress import Progress
from modelglass.cli._serving import chosen_serving, rank_options
from modelglass.errors import UsageError

DIFFERENT = 1

EPILOG = """\b
Examples:
  modelglass compare model.py::build port.py::build
  modelglass compare config.json port.py::build --all
  modelglass compare model.safetensors port.py::build
  modelglass compare config.json --framework-b vllm --tensor-parallel 8
  modelglass compare model.py::build port.py::build --input-a 1x3x224x224 --input-b 1x224x224x3
  modelglass compare model.py::build port.py::build --input 1x16:int64 --format json -o compared.json

\b
Exit codes:
  0  they are the same, but for what frameworks and storage explain
  1  they differ
  2  wrong usage
  3  one of them could not be read, built or run
"""


@click.command(name="compare", epilog=EPILOG)
@click.argument("a")
@click.argument("b", required=False)
@inputs_options
@click.option("--inputs-a", metavar="CODE", help="Code that makes the inputs of A alone.")
@click.option("--inputs-b", metavar="CODE", help="Code that makes the inputs of B alone.")
@click.option("--input-a", "specs_a", metavar="SPEC", multiple=True, help="An input of A alone. Repeatable.")
@click.option("--input-b", "specs_b", metavar="SPEC", multiple=True, help="An input of B alone. Repeatable.")
@click.option("--framework-a", metavar="NAME", help="What A is built with: torch, mlx or vllm.")
@click.option("--framework-b", metavar="NAME", help="What B is built with, or A again where there is no B.")
@trust_option
@rank_options
@click.option("--all", "all_", is_flag=True, help="Show everything side by side, not only what differs.")
@width_option
@format_option(api.RENDERERS["compare"])
@color_option
@output_option
def compare(
    a: str,
    b: str | None,
    inputs: str | None,
    specs: tuple[str, ...],
    inputs_a: str | None,
    inputs_b: str | None,
    specs_a: tuple[str, ...],
    specs_b: tuple[str, ...],
    framework_a: str | None,
    framework_b: str | None,
    trust: bool,
    all_: bool,
    width: int | None,
    format_: str,
    color: str,
    output: Path | None,
    **engine: Any,
) -> None:
    """Line up two models, part by part, and say where they differ: a port and its original, a checkpoint and
    the model that would load it, two versions of one model.

    A and B are file.py::function or package.module:function that return a model, configurations, checkpoints
    or saved reports, of any framework each. Without inputs nothing runs. With --framework-b vllm, a
    configuration is built as an engine would; without B, that is compared with what transformers builds.
    """
    both = given_inputs(inputs, specs)
    given_a, given_b = _own("a", inputs_a, specs_a, both), _own("b", inputs_b, specs_b, both)
    served = "vllm" if "vllm" in (framework_a, framework_b) else None
    serving = chosen_serving(served, engine, option="--framework-b")
    with Progress() as progress, aside():
        found = api.compare(
            a,
            b,
            inputs_a=given_a,
            inputs_b=given_b,
            framework_a=framework_a,
            framework_b=framework_b,
            serving=serving,
            trust=trust,
            progress=progress,
        )
    look: dict[str, object] = {} if format_ == "json" else {"all": all_}
    if format_ == "text":
        look |= {"width": width_of(width, output), "color": wants_color(color, output)}
    emit(api.RENDERERS["compare"][format_](found, **look), output)
    if not found.same:
        raise SystemExit(DIFFERENT)


def _own(side: str, inputs: str | None, specs: tuple[str, ...], both: Any) -> Any:
    """What one of the two is called with."""
    if inputs and specs:
        raise UsageError(f"--inputs-{side} and --input-{side} exclude each other", hint="give one of them")
    own = given_inputs(inputs, specs)
    if own is not None and both is not None:
        raise UsageError(
            f"inputs are given for both models and again for {side}",
            hint="give --input-a and --input-b, or --input alone",
        )
    return both if own is None else own
