"""`modelglass stats TARGET`: are the weights healthy?"""

from __future__ import annotations

from pathlib import Path

import click

from modelglass import api
from modelglass.cli._command import Command, option
from modelglass.cli._exit import write_stderr
from modelglass.cli._fail_on import FailOn, fail_on_option
from modelglass.cli._options import (
    columns_option,
    limit_option,
    parse_limits,
    plot_option,
    sort_option,
    top_option,
)
from modelglass.cli._progress import working
from modelglass.cli._target import GivenTarget, weights_options
from modelglass.cli._view import View, view_options

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
@weights_options
@option("--filter", "pattern", metavar="PATTERN", help="Only tensors matching this pattern: '*.weight'.")
@sort_option(api.STATS_SORTS)
@option("--ascending", is_flag=True, help="Sort smallest first.")
@top_option
@columns_option(api.STATS_COLUMNS)
@fail_on_option(api.FINDINGS)
@plot_option
@limit_option
@view_options(api.RENDERERS["stats"])
def stats(
    given: GivenTarget,
    pattern: str | None,
    sort: str | None,
    ascending: bool,
    top: int | None,
    columns: str | None,
    fail_on: FailOn | None,
    plot: Path | None,
    limits: tuple[str, ...],
    view: View,
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
    with working() as progress:
        report = api.inspect(
            given.target,
            stats=pattern or True,
            limits=most,
            **given.build,
            progress=progress,
        )
        if draw is not None:
            progress("drawing")
            draw(report)
    options = view.options({"sort": sort, "ascending": ascending, "top": top, "columns": columns})
    view.emit(api.RENDERERS["stats"][view.format_](report, **options))
    findings = (note for note in report.notes if note.code in api.FINDINGS)
    found = [] if fail_on is None else fail_on.matching_codes(findings)
    if found:
        write_stderr(f"findings: {', '.join(found)}")
        raise SystemExit(FOUND)
