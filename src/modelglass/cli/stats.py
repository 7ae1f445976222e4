"""`modelglass stats TARGET`: are the weights healthy?"""

from __future__ import annotations

from pathlib import Path

import click

from modelglass import api
from modelglass.cli._exit import tell
from modelglass.cli._options import (
    chosen_limits,
    color_option,
    config_options,
    format_option,
    limit_option,
    output_option,
    width_option,
)
from modelglass.cli._output import aside, emit, wants_color, width_of
from modelglass.cli._progress import Progress
from modelglass.errors import UsageError

FOUND = 1

EPILOG = """\b
Examples:
  modelglass stats model.safetensors
  modelglass stats model.py::load
  modelglass stats config.yaml --builder model.py::load
  modelglass stats model.py::load --filter "*.attention.*" --sort std --top 20
  modelglass stats model.py::load --fail-on nan,inf,zero
  modelglass stats model.py::load --plot weights.pdf --format markdown

\b
Findings:
""" + "\n".join(f"  {code:<13} {meaning}" for code, meaning in api.FINDINGS.items())


@click.command(name="stats", epilog=EPILOG)
@click.argument("target")
@config_options
@click.option("--filter", "pattern", metavar="PATTERN", help="Only tensors with such names: '*.weight'.")
@click.option(
    "--sort",
    type=click.Choice(api.STATS_SORTS),
    help="Largest of this figure first, instead of the model's order.",
)
@click.option("--ascending", is_flag=True, help="Smallest first.")
@click.option("--top", type=click.IntRange(1), metavar="N", help="Only the first N of them.")
@click.option(
    "--columns", metavar="NAMES", help=f"Columns of the table, by commas: {', '.join(api.STATS_COLUMNS)}."
)
@click.option("--fail-on", metavar="CODES", help="Exit with 1 on these findings, by commas, or on any.")
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Draw the distributions: .png, .svg or .pdf.",
)
@limit_option
@width_option
@format_option(api.RENDERERS["stats"])
@color_option
@output_option
def stats(
    target: str,
    builder: str | None,
    model_key: str | None,
    trust: bool,
    pattern: str | None,
    sort: str | None,
    ascending: bool,
    top: int | None,
    columns: str | None,
    fail_on: str | None,
    plot: Path | None,
    limits: tuple[str, ...],
    width: int | None,
    format_: str,
    color: str,
    output: Path | None,
) -> None:
    """Show what the weights of a model are like, and what is wrong with them.

    TARGET is a checkpoint (a file or a folder), or file.py::function or package.module:function that returns
    a model. Weights are read once, and compared where two tensors look the same. A configuration has none,
    unless a builder loads them.
    """
    unwanted = _codes(fail_on)
    if columns is not None:
        api.known_columns(columns, api.STATS_COLUMNS)
    most = chosen_limits(limits)
    draw = None if plot is None else api.plotter(plot)
    with Progress() as progress, aside():
        report = api.inspect(
            target,
            stats=pattern or True,
            limits=most,
            builder=builder,
            model_key=model_key,
            trust=trust,
            progress=progress,
        )
        if draw is not None:
            progress("drawing")
            draw(report)
    options: dict[str, object] = {}
    if format_ != "json":
        options = {"sort": sort, "ascending": ascending, "top": top, "columns": columns}
    if format_ == "text":
        options |= {"width": width_of(width, output), "color": wants_color(color, output)}
    emit(api.RENDERERS["stats"][format_](report, **options), output)
    found = [note.code for note in report.notes if note.code in unwanted]
    if found:
        tell(f"findings: {', '.join(dict.fromkeys(found))}")
        raise SystemExit(FOUND)


def _codes(text: str | None) -> frozenset[str]:
    """The codes of findings that are given by commas."""
    codes = frozenset((text or "").replace(" ", "").split(",")) - {""}
    if "any" in codes:
        return frozenset(api.FINDINGS)
    unknown = sorted(codes - api.FINDINGS.keys())
    if unknown or (text is not None and not codes):
        raise UsageError(
            f"there is no finding {unknown[0]!r}" if unknown else "--fail-on names no finding",
            hint="findings are any, " + ", ".join(api.FINDINGS),
        )
    return codes
