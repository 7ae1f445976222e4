"""Where a command's result goes, and how it looks there."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

from modelglass import api
from modelglass.files import write_whole

PIPED_WIDTH = 100
_STDOUT, _STDERR = 1, 2


def emit(text: str, output: Path | None) -> None:
    """Write the result to a file, whole or not at all, or to stdout, where no line of it is a command."""
    if output is None:
        from click import echo  # the quick listing writes by itself

        # Colour was decided when the text was made. The stream is named: click would choose another encoding.
        echo(api.unspoken(text), file=sys.stdout, nl=False, color=True)
        return
    write_whole(output, text)


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """What others print goes to stderr, so that it does not mix with the result.

    Processes that they start, and libraries that write past Python, know the stream by its number alone.
    """
    kept = _duplicate(_STDOUT)
    if kept is not None and _duplicate(_STDERR, _STDOUT) is None:
        os.close(kept)
        kept = None
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        if kept is not None:
            os.dup2(kept, _STDOUT)
            os.close(kept)


def _duplicate(stream: int, place: int | None = None) -> int | None:
    """The stream under another number, or under that one; None: it is closed."""
    try:
        return os.dup(stream) if place is None else os.dup2(stream, place)
    except OSError:
        return None


def wants_color(choice: str, output: Path | None) -> bool:
    """Colour on a terminal, unless NO_COLOR or an option decides otherwise."""
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
