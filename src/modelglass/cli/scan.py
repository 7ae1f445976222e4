"""`modelglass scan PATH...`: what would loading this file do?"""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Literal

import click

from modelglass import api
from modelglass.cli._options import color_option, format_option, output_option, width_option
from modelglass.cli._output import emit, wants_color, width_of
from modelglass.cli._progress import Progress
from modelglass.errors import UsageError

FAIL_ON = ("info", "notice", "high")

EPILOG = """\b
Examples:
  modelglass scan pytorch_model.bin
  modelglass scan checkpoints/ --fail-on high
  modelglass scan model.pt --format sarif -o scan.sarif
  modelglass scan model.pt --limit pickle_opcodes=1000000 --redact

\b
Exit codes:
  0  nothing at or above --fail-on was found in what was read
  1  findings at or above --fail-on
  2  wrong usage
  3  a file is invalid, can be read in two ways, or is no model
  4  stopped at a limit: the result is incomplete
For several files it is the first of 3, 4, 1 and 0 that applies to any of them.
"""


@click.command(name="scan", epilog=EPILOG)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option(
    "--fail-on",
    type=click.Choice(FAIL_ON),
    default="notice",
    show_default=True,
    help="Exit with 1 from this level on.",
)
@click.option(
    "--limit",
    "limits",
    metavar="NAME=VALUE",
    multiple=True,
    help=f"How much work a file may cause: {', '.join(api.LIMITS)}. Repeatable.",
)
@click.option("--redact", is_flag=True, help="Hide tokens, passwords and the names of home folders.")
@width_option
@format_option(api.SCAN_RENDERERS)
@color_option
@output_option
def scan(
    paths: tuple[str, ...],
    fail_on: Literal["info", "notice", "high"],
    limits: tuple[str, ...],
    redact: bool,
    width: int | None,
    format_: str,
    color: str,
    output: Path | None,
) -> None:
    """Show what loading files would run, import or reach, and whether they keep to their format.

    PATH is a file or a folder. Nothing in a file is run, imported or unpacked to disk. The answer is what
    was found in the bytes that were read, not that a file can be trusted.
    """
    chosen = _limits(limits)
    with Progress() as progress, redirect_stdout(sys.stderr):
        found = api.scan(paths, limits=chosen, progress=progress)
    look: dict[str, object] = {"redact": redact}
    if format_ == "text":
        look |= {"width": width_of(width, output), "color": wants_color(color, output)}
    emit(api.SCAN_RENDERERS[format_](found, **look), output)
    code = found.exit_code(fail_on)
    if code:
        raise SystemExit(code)


def _limits(given: tuple[str, ...]) -> dict[str, int] | None:
    """The limits that are given as NAME=VALUE; None when there are none."""
    chosen = {}
    for each in given:
        name, _, text = each.partition("=")
        if name not in api.LIMITS:
            raise UsageError(f"there is no limit {name!r}", hint="limits are " + ", ".join(api.LIMITS))
        if not (text.isascii() and text.isdigit() and len(text) <= 18 and int(text) > 0):
            raise UsageError(
                f"--limit {name}={text} is no whole number above 0",
                hint=f"write --limit {name}={api.LIMITS[name]}, which is the default, or another number",
            )
        chosen[name] = int(text)
    return chosen or None
