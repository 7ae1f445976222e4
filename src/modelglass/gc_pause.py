"""Python's garbage collector, paused."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from modelglass.undo import UndoLog, undoing


@contextmanager
def paused_gc() -> Iterator[None]:
    """For work that makes many small objects and hardly any cycles: searching for those takes time."""
    with undoing() as log:
        pause_gc(log)
        yield


def pause_gc(log: UndoLog) -> None:
    """The same, until a log is undone."""
    if gc.isenabled():
        log.record(gc.enable)
        gc.disable()
