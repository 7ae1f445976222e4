"""`modelglass view TARGET`: the page of a report, in the browser."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import mkstemp
from typing import Any

import click

from modelglass.cli._command import Command
from modelglass.cli._exit import end_of_run, write_stderr
from modelglass.cli._output import emit
from modelglass.cli._target import GivenTarget
from modelglass.cli.report import whole_options, whole_page

EPILOG = """\b
Examples:
  modelglass view model.py::build --input 1x3x224x224
  modelglass view config.json --train
  modelglass view model.safetensors --stats
"""


@click.command(name="view", cls=Command, epilog=EPILOG)
@whole_options
def view(given: GivenTarget, **asked: Any) -> None:
    """Show a report in the browser.

    The page is what `modelglass report` writes, in a file of its own among the system's temporary ones. The
    file's name is printed, also where no browser can be opened.
    """
    found, page = whole_page(given, **asked)
    handle, name = mkstemp(prefix="modelglass-", suffix=".html")  # which nobody else may read
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(page)
    path = Path(name)
    emit(f"{path}\n", None)
    if not _opened(path):
        write_stderr("no browser was found: open that file where there is one")
    end_of_run(found, shown=False)


def _opened(path: Path) -> bool:
    """Whether a browser with a window of its own shows the file."""
    import webbrowser

    has_windows = not sys.platform.startswith("linux") or any(
        map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))
    )
    return has_windows and webbrowser.open(path.as_uri())
