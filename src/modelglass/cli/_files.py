"""What `fit` and `memory` show of weights in files: nothing runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from modelglass import api
from modelglass.cli._command import option
from modelglass.cli._progress import working
from modelglass.cli._types import Tokens
from modelglass.errors import UsageError

if TYPE_CHECKING:
    from modelglass.cli._target import GivenTarget
    from modelglass.cli._view import View
    from modelglass.cli._what_if import GivenRun

_GROUP = "Options for files of weights"

context_option = option(
    "--context",
    "contexts",
    type=Tokens(),
    metavar="N",
    multiple=True,
    help="Show the KV cache at this many tokens: 8192, or 8k. Repeatable.",
)
experts_option = option(
    "--experts-on-host",
    is_flag=True,
    group=_GROUP,
    help="Keep the experts of a file of weights in the host's memory.",
)


def is_of_files(given: GivenTarget, run: GivenRun) -> bool:
    """Whether only weights in files are asked about, and no run of a model that is built for them."""
    runs = given.inputs or given.specs or given.builder or given.model_key or given.trust
    return not runs and not run.is_asked and api.asks_of_files(given.target)


def show_footprint(
    given: GivenTarget,
    view: View,
    *,
    contexts: tuple[int, ...],
    experts_on_host: bool,
    top: int | None,
    device_memory: int | None = None,
) -> Any:
    """Show what the files take, and give it back."""
    with working() as progress:
        found = api.footprint(
            given.target,
            device_memory=device_memory,
            context=contexts,
            experts_on_host=experts_on_host,
            progress=progress,
        )
    view.emit(api.RENDERERS["footprint"][view.format_](found, **view.options({"top": top})))
    return found


def refuse_for_runs(**given: Any) -> None:
    """Refuse options that only files of weights have."""
    for name, value in given.items():
        if value:
            raise UsageError(
                f"--{name.replace('_', '-')} applies only to weights in files, and not to a run",
                hint="pass a .gguf file or a folder of weights; of a run, --seq-len is the length",
            )
