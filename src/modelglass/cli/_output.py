"""Where a command's result goes, and how it looks there."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from modelglass.files import write_whole

PIPED_WIDTH = 100


def emit(text: str, output: Path | None) -> None:
    """Write the result to a file, whole or not at all, or to stdout."""
    if output is None:
        from click import echo  # the quick listing writes by itself

        echo(text, nl=False, color=True)  # colour was decided when the text was made
        return
    write_whole(output, text)


def wants_color(choice: str, output: Path | None) -> bool:
    """Colour on a terminal, unless NO_COLOR or the user says otherwise."""
    if choice != "auto":
        return choice == "always"
    return output is None and sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def width_of(choice: int | None, output: Path | None) -> int:
    """The terminal's width, or a fixed one where there is no terminal."""
    if choice is not None:
        return choice
    if output is None and (sys.stdout.isatty() or "COLUMNS" in os.environ):
        from shutil import get_terminal_size  # which brings every compression there is

        return get_terminal_size((PIPED_WIDTH, 24)).columns
    return PIPED_WIDTH
