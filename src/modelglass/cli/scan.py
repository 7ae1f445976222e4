"""`modelglass scan PATH...`: what would loading this file do?"""

from __future__ import annotations

import click

from modelglass import api
from modelglass.cli._command import Command, option
from modelglass.cli._exit import write_stderr
from modelglass.cli._fail_on import FailOn, fail_on_option
from modelglass.cli._options import limit_option, parse_limits, top_option
from modelglass.cli._progress import working
from modelglass.cli._view import View, view_options

EPILOG = """\b
Examples:
  modelglass scan pytorch_model.bin
  modelglass scan checkpoints/ --fail-on high
  modelglass scan model.pt --format sarif -o scan.sarif
  modelglass scan model.pt --limit seconds=60 --redact

\b
Exit codes:
  0  nothing at or above --fail-on was found in what was read
  1  findings at or above --fail-on
  2  wrong usage
  3  a file is invalid, ambiguous, or not a model
  4  stopped at a limit: the result is incomplete
For several files it is the first of 3, 4, 1 and 0 that applies to any of them.
"""


@click.command(name="scan", cls=Command, epilog=EPILOG)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path())
@fail_on_option({}, default="notice")
@limit_option
@option(
    "--isolate/--no-isolate",
    default=True,
    show_default=True,
    help="Read files in a process of their own, each within the limits seconds and memory_nbytes.",
)
@option("--redact", is_flag=True, help="Hide tokens, passwords and the names of home folders.")
@top_option
@view_options(api.RENDERERS["scan"])
def scan(
    paths: tuple[str, ...],
    fail_on: FailOn,
    limits: tuple[str, ...],
    isolate: bool,
    redact: bool,
    top: int | None,
    view: View,
) -> None:
    """Show what loading a file would run.

    Also shows what it would import or reach, and whether the file keeps to its format. PATH is a file or a
    folder. Nothing in a file is run, imported or unpacked to disk. The answer is what was found in the bytes
    that were read, not that a file can be trusted.
    """
    chosen = parse_limits(limits)
    with working() as progress:
        found = api.scan(paths, limits=chosen, isolate=isolate, progress=progress)
    if isolate and (lacking := api.unbounded()):
        write_stderr(f"note: this system does not bound {' and '.join(lacking)} of the process that reads")
    options = view.options({"top": top})
    view.emit(api.RENDERERS["scan"][view.format_](found, redact=redact, **options))
    code = found.exit_code(fail_on.level or api.LEVELS[0])
    if code:
        raise SystemExit(code)
