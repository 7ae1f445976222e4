"""What a run must leave as it was of Python itself: warnings, random states, settings of the process."""

from __future__ import annotations

import gc
import os
import random
import sys
import warnings
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from modelglass.undo import UndoLog

_STREAMS = ("stdin", "stdout", "stderr", "excepthook", "displayhook")


def keep_python_state(log: UndoLog) -> None:
    """Have all of it be as it is now in the end."""
    keep_warnings(log)
    keep_random_states(log)
    log.record(_restore_members, sys.path, list(sys.path))
    log.record(_restore_environment, dict(os.environ))
    log.record(sys.setrecursionlimit, sys.getrecursionlimit())
    log.record(_restore_threshold, gc.get_threshold())
    log.record(_restore_attributes, sys, {name: getattr(sys, name) for name in (*_STREAMS, "path")})
    with suppress(OSError):  # a folder that is gone
        log.record(_restore_folder, os.getcwd())


def _restore_threshold(before: tuple[int, ...]) -> None:
    if gc.get_threshold() != before:  # setting it also begins a count anew
        gc.set_threshold(*before)


def keep_random_states(log: UndoLog) -> None:
    """Python's own random generator, and numpy's where anybody has loaded it."""
    log.record(random.setstate, random.getstate())
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        log.record(numpy.random.set_state, numpy.random.get_state())


def seed_python(seed: int) -> None:
    """Have random numbers of Python and numpy begin at the same point each time."""
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)


def keep_warnings(log: UndoLog) -> None:
    """Filters, and which warnings were shown: those of the run are shown again in a later one."""
    shown = {name: getattr(warnings, name) for name in ("showwarning", "_showwarnmsg_impl")}
    log.record(_forget_shown)
    log.record(_restore_members, warnings.filters, list(warnings.filters))
    log.record(_restore_attributes, warnings, {"filters": warnings.filters, **shown})
    _forget_shown()


def _forget_shown() -> None:
    """What was warned of "once" or by "default" is kept for one version of the filters."""
    forget = getattr(warnings, "_filters_mutated", None)
    if forget is not None:
        forget()


def _restore_attributes(holder: Any, before: Mapping[str, Any]) -> None:
    for name, value in before.items():
        if getattr(holder, name, None) is not value:
            setattr(holder, name, value)


def _restore_members(holder: Any, before: list[Any]) -> None:
    if list(map(id, holder)) != list(map(id, before)):
        holder[:] = before


def _restore_environment(before: Mapping[str, str]) -> None:
    if os.environ != before:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


def _restore_folder(before: str) -> None:
    if os.getcwd() != before:
        os.chdir(before)
