"""`modelglass stats TARGET`: are the weights healthy?"""

from __future__ import annotations

from pathlib import Path

import click

from modelglass import api
from modelglass.cli._command import Command, option
from modelglass.cli._exit import write_stderr
from modelglass.cli._fail_on import FailOn, fail_on_option
from modelglass.cli._options import (
    color_option,
    columns_option,
    config_options,
    format_option,
    limit_option,
    output_option,
    parse_limits,
    plot_option,
    sort_option,
    target_argument,
    top_option,
    width_option,
)
from modelglass.cli._output import emit, stdout_to_stderr, wants_color, width_of
from modelglass.cli._progress import Progress

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


@click.command(name="stats", cls=Command, epilog=EPILOG)
@target_argument
@config_options
@option("--filter", "pattern", metavar="PATTERN", help="Only tensors matching this pattern: '*.weight'.")
@sort_option(api.STATS_SORTS)
@option("--ascending", is_flag=True, help="Sort smallest first.")
@top_option
@columns_option(api.STATS_COLUMNS)
@fail_on_option(api.FINDINGS)
@plot_option
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
    fail_on: FailOn | None,
    plot: Path | None,
    limits: tuple[str, ...],
    width: int | None,
    format_: str,
    color: str,
    output: Path | None,
) -> None:
    """Show statistics and problems of weights.

    TARGET is a checkpoint (a file or a folder), or file.py::function or package.module:function that returns
    a model. Weights are read once, and a second time where two tensors seem equal. A configuration has no
    weights, unless a builder loads them. --plot draws the distributions.
    """
    if columns is not None:
        api.parse_columns(columns, api.STATS_COLUMNS)
    most = parse_limits(limits)
    draw = None if plot is None else api.plotter(plot)
    with Progress() as progress, stdout_to_stderr():
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
    findings = (note for note in report.notes if note.code in api.FINDINGS)
    found = [] if fail_on is None else fail_on.matching_codes(findings)
    if found:
        write_stderr(f"findings: {', '.join(found)}")
        raise SystemExit(FOUND)
