"""Interrupting a function at any line that it runs in files of ours, or in those that they hand over to."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from types import FrameType
from typing import Any

OURS = str(Path(__file__).parents[2] / "src" / "modelglass")


class Interrupted(KeyboardInterrupt):
    """What arrives, told from a real Ctrl-C."""


def count_lines(function: Callable[[], Any], files: Collection[str] = ()) -> int:
    """How many lines of ours a function runs."""
    counter = _Lines(sys.maxsize, files)
    with contextlib.suppress(Exception):
        counter.run(function)
    return counter.count


def interrupt(function: Callable[[], Any], at: int, files: Collection[str] = ()) -> bool:
    """Call a function and raise before it runs a line of that number; whether the interruption got out."""
    try:
        _Lines(at, files).run(function)
    except Interrupted:
        return True
    return False


class _Lines:
    def __init__(self, at: int, files: Collection[str]) -> None:
        self.count = 0
        self._at = at
        self._files = frozenset(files)

    def run(self, function: Callable[[], Any]) -> None:
        before = sys.gettrace()
        sys.settrace(self._enter)
        try:
            function()
        finally:
            sys.settrace(before)

    def _enter(self, frame: FrameType, event: str, _: Any) -> Any:
        path = frame.f_code.co_filename
        if not path.startswith(OURS) and path != contextlib.__file__:
            return None
        return None if self._files and Path(path).name not in self._files else self._step

    def _step(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            self.count += 1
            if self.count == self._at:
                raise Interrupted
        return self._step
