"""`modelglass diff A B`: what changed, and what explains it?"""

from __future__ import annotations

from typing import NamedTuple

import click

from modelglass import api
from modelglass.cli._command import Command, option
from modelglass.cli._exit import write_stderr
from modelglass.cli._fail_on import FailOn, fail_on_option
from modelglass.cli._options import all_option, sort_option, top_option, trust_option
from modelglass.cli._progress import working
from modelglass.cli._types import TargetName
from modelglass.cli._view import View, view_options

DIFFERENT = 1
UNREAD, STOPPED = 3, 4  # some values could not be read, or only up to a limit
SEVERITIES = {"derived": "warning", "unrelated": "error", "incomparable": "error"}
FAILURES = {
    "derived": "b follows from a by some operations",
    "unrelated": "nothing connects their values",
    "incomparable": "not all values were compared",
}


class _Judged(NamedTuple):
    """A verdict as `FailOn` takes findings."""

    code: str
    severity: str


EPILOG = """\b
Examples:
  modelglass diff base.safetensors tuned.safetensors
  modelglass diff base/ model-Q4_K_M.gguf
  modelglass diff model.py::build checkpoint.pt
  modelglass diff a.safetensors b.safetensors --ignore "*.rotary_emb.*" --tolerance 1e-6
  modelglass diff base/ merged/ --with other/
  modelglass diff base/ merged/ --format markdown --fail-on unrelated,incomparable

\b
Exit codes:
  0  identical, or equivalent: the same values written in another way
  1  derived, unrelated or incomparable (--fail-on chooses)
  2  wrong usage
  3  one of them could not be read or built, or some of its values could not be read
  4  stopped at a limit
"""


@click.command(name="diff", cls=Command, epilog=EPILOG)
@click.argument("a", type=TargetName())
@click.argument("b", type=TargetName())
@option(
    "--with",
    "with_",
    metavar="C",
    multiple=True,
    type=TargetName(),
    help="A further model that B may be merged of. Repeatable.",
)
@option("--ignore", metavar="PATTERN", multiple=True, help="Leave out tensors of this name. Repeatable.")
@option(
    "--tolerance",
    type=click.FloatRange(0),
    default=0.0,
    metavar="R",
    help="Relative difference (L2) within which a tensor counts as the same.",
)
@fail_on_option(FAILURES, default="any")
@trust_option
@all_option
@sort_option(("relative_l2", "changed", "max_abs", "snr_db", "a", "b"), unsorted="what changed most first")
@top_option
@view_options(api.RENDERERS["diff"])
def diff(
    a: str,
    b: str,
    with_: tuple[str, ...],
    ignore: tuple[str, ...],
    tolerance: float,
    fail_on: FailOn,
    trust: bool,
    all_: bool,
    sort: str | None,
    top: int | None,
    view: View,
) -> None:
    """Show what changed between two models' values.

    A and B are checkpoints of any format or their folders, or file.py::function or package.module:function
    that return a model. Tensors are lined up as `compare` does, whatever their names, and values are read a
    piece at a time. Configurations and saved reports have no values, and the answer says so.
    """
    with working() as progress:
        found = api.diff(
            a, b, with_=with_, ignore=ignore, tolerance=tolerance, trust=trust, progress=progress
        )
    options = view.options({"all": all_, "sort": sort, "top": top})
    view.emit(api.RENDERERS["diff"][view.format_](found, **options))
    if found.failures:
        first = found.failures[0]
        write_stderr(f"error: {first.file}: {first.tensor or ''}: {first.text}", f"  hint: {first.hint}")
        raise SystemExit(STOPPED if all(each.limit for each in found.failures) else UNREAD)
    judged = [_Judged(found.verdict, SEVERITIES[found.verdict])] if found.verdict in SEVERITIES else []
    if fail_on.matching_codes(judged):
        raise SystemExit(DIFFERENT)
