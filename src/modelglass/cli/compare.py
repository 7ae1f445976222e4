"""`modelglass compare A B`: is the one a port of the other, and where do they differ?"""

from __future__ import annotations

from typing import Any

import click

from modelglass import api
from modelglass.cli._command import Command, option
from modelglass.cli._options import (
    all_option,
    inputs_options,
    parse_inputs,
    sort_option,
    top_option,
    trust_option,
)
from modelglass.cli._progress import working
from modelglass.cli._serving import parse_serving, rank_options
from modelglass.cli._types import TargetName
from modelglass.cli._view import View, view_options
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
  0  equal (framework and storage conventions aside)
  1  different
  2  wrong usage
  3  one of them could not be read, built or run
"""


@click.command(name="compare", cls=Command, epilog=EPILOG)
@click.argument("a", type=TargetName())
@click.argument("b", required=False, type=TargetName())
@inputs_options
@option("--inputs-a", metavar="CODE", type=TargetName(), help="As --inputs, for A only.")
@option("--inputs-b", metavar="CODE", type=TargetName(), help="As --inputs, for B only.")
@option("--input-a", "specs_a", metavar="SPEC", multiple=True, help="As --input, for A only.")
@option("--input-b", "specs_b", metavar="SPEC", multiple=True, help="As --input, for B only.")
@option("--framework-a", metavar="NAME", help="Framework that builds A: torch, mlx or vllm.")
@option("--framework-b", metavar="NAME", help="Framework that builds B, or A again if there is no B.")
@trust_option
@rank_options
@all_option
@sort_option(("times", "a", "b"))
@top_option
@view_options(api.RENDERERS["compare"])
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
    sort: str | None,
    top: int | None,
    view: View,
    **engine: Any,
) -> None:
    """Show where two models differ.

    Compares a port with its original, a checkpoint with the model that would load it, or two versions of a
    model. A and B are file.py::function or package.module:function that return a model, configurations,
    checkpoints or saved reports, each of any framework. Models are run only if inputs are given.
    `--framework-b vllm` without B compares vLLM's build of A with transformers'.
    """
    both = parse_inputs(inputs, specs)
    given_a, given_b = _own("a", inputs_a, specs_a, both), _own("b", inputs_b, specs_b, both)
    served = "vllm" if "vllm" in (framework_a, framework_b) else None
    serving = parse_serving(served, engine, option="--framework-b")
    with working() as progress:
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
    options = view.options({"all": all_, "sort": sort, "top": top})
    view.emit(api.RENDERERS["compare"][view.format_](found, **options))
    if not found.same:
        raise SystemExit(DIFFERENT)


def _own(side: str, inputs: str | None, specs: tuple[str, ...], both: Any) -> Any:
    """What one of the two is called with."""
    own = parse_inputs(inputs, specs, f"-{side}")
    if own is not None and both is not None:
        raise UsageError(
            f"--inputs or --input is for both models and cannot be combined with one for {side} only",
            hint="give --input-a and --input-b, or --input alone",
        )
    return both if own is None else own
