"""A word on stderr when something takes longer than a second, and none when it does not."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from modelglass import api
from modelglass.cli._output import stdout_to_stderr

FIRST_WORD = 1.0  # seconds of silence before the first word
ON_TERMINAL = 0.1  # seconds between two words on a terminal, where they overwrite each other
LONGEST = 200  # characters of a text
IN_LOG = 10.0  # and in a log, where they pile up


class Progress:
    """Shows what is going on and for how long; call it with a text when that changes."""

    def __init__(self, command: str = "modelglass") -> None:
        self._command = command
        self._text = "starting"
        self._begun = time.monotonic()
        self._done = threading.Event()
        self._terminal = sys.stderr.isatty()
        self._shown = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __call__(self, text: str) -> None:
        self._text = api.told(text)[:LONGEST]  # names of files are in it

    def __enter__(self) -> Progress:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._done.set()
        self._thread.join()
        if self._shown and self._terminal:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def _run(self) -> None:
        pause = FIRST_WORD
        while not self._done.wait(pause):
            self._say(f"{self._command}: {self._text}, {time.monotonic() - self._begun:.0f} s")
            pause = ON_TERMINAL if self._terminal else IN_LOG

    def _say(self, line: str) -> None:
        sys.stderr.write(f"\r\x1b[K{line}" if self._terminal else f"{line}\n")
        sys.stderr.flush()
        self._shown = True


@contextmanager
def working(command: str = "modelglass") -> Iterator[Progress]:
    """Work with its progress shown; what others print meanwhile does not mix with the result."""
    with Progress(command) as progress, stdout_to_stderr():
        yield progress
