"""The entry points. A file alone is listed at once; anything else goes to the commands.

Listing a small file takes less time than loading what reads options, which is not done where there are none.
"""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

COMPLETING = "_MODELGLASS_COMPLETE"  # set while a shell asks for completions


def main() -> None:
    """Run the command line and exit with its code."""
    _put_current_folder_last()
    args = sys.argv[1:]
    if len(args) == 1 and _is_file(args[0]) and COMPLETING not in os.environ:
        from modelglass.cli._exit import exit_code

        sys.exit(exit_code(lambda: _inspect_file_fast(args[0])))
    from modelglass.cli.main import main as commands

    commands()


def model_inspector() -> None:
    """Run `model-inspector` and exit with its code."""
    _put_current_folder_last()
    from modelglass.cli.model_inspector import main as command

    command()


def tt_model_analysis() -> None:
    """Run `tt-model-analysis` and exit with its code."""
    _put_current_folder_last()
    from modelglass.cli.tt_model_analysis import main as command

    command()


def _put_current_folder_last() -> None:
    """With PYTHONPATH=. files of a downloaded folder may be called like packages; these come first."""
    sys.path.sort(key=lambda path: _is_here(path or os.curdir))


def _is_here(path: str) -> bool:
    try:
        return os.path.samefile(path, os.curdir)
    except (OSError, ValueError):  # nothing is there, or the current folder is gone
        return False


def _is_file(arg: str) -> bool:
    # A command is a bare word, so a file of such a name is left to those that know the commands.
    # A configuration is built, and its run may fail: that is not a listing.
    if not any(mark in arg for mark in "./\\"):
        return False
    from modelglass import api

    return api.is_plain_file(Path(arg))


def _inspect_file_fast(path: str) -> None:
    """What `modelglass inspect` prints of a file when it is given no option."""
    from modelglass import api
    from modelglass.cli._output import wants_color, width_of
    from modelglass.cli._progress import Progress

    gc.disable()  # nothing is thrown away here that a collection would find,
    with Progress() as progress:
        report = api.inspect(path, progress=progress)
    text = api.render(report, "text", width=width_of(None, None), color=wants_color("auto", None))
    sys.stdout.write(text)
    sys.stdout.flush()
    gc.freeze()  # nor at the end, when Python looks through all objects again
