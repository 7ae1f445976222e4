"""What did the user name? Only this room decides, once for each call.

A kind of target is a file here and a row of `OBJECTS` or `PATHS`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from modelglass.options import ASKS, SERVING, BuildOptions, ReadOptions, RunOptions, as_automatic
from modelglass.report import Report
from modelglass.targets.kind import OpenModel, Readable, Runnable, Target
from modelglass.targets.paths import (
    has_weights_and_config,
    is_code_name,
    is_config_path,
    is_pipeline,
    is_recording,
    is_saved,
)
from modelglass.user_code import FACTORIES

if TYPE_CHECKING:
    from modelglass.targets.recorded import Recorded

__all__ = ["OpenModel", "Readable", "Runnable", "Target", "as_recording", "as_saved_report", "resolve"]


class _ByType(NamedTuple):
    """A kind of object."""

    type: type | tuple[type, ...]
    file: str


class _Asked(NamedTuple):
    """What kinds of path are recognised by."""

    path: str | os.PathLike[str]
    build: BuildOptions
    runs: bool


class _ByPath(NamedTuple):
    """A kind of path or name."""

    fits: Callable[[_Asked], bool]
    file: str


# The first that fits wins; the file is imported for a target of its kind.
OBJECTS = (_ByType(Report, "saved"), _ByType(FACTORIES, "code"), _ByType(object, "live"))
PATHS = (
    _ByPath(lambda asked: is_code_name(os.fspath(asked.path)), "code"),
    _ByPath(lambda asked: asked.build.framework == SERVING, "served"),
    _ByPath(lambda asked: asked.build.builder is None and is_saved(Path(asked.path)), "saved"),
    _ByPath(lambda asked: asked.build.builder is None and is_pipeline(Path(asked.path)), "pipeline"),
    _ByPath(lambda asked: asked.build.builder is not None or is_config_path(Path(asked.path)), "config"),
    # A folder of weights is built from its configuration only where it is to run.
    _ByPath(lambda asked: asked.runs and has_weights_and_config(Path(asked.path)), "config"),
    _ByPath(lambda asked: is_recording(Path(asked.path)), "recorded"),
    _ByPath(lambda asked: True, "checkpoint"),
)
NO_BUILD, NO_RUN, NO_READ = BuildOptions(), RunOptions(), ReadOptions()


def resolve(
    target: Any,
    build: BuildOptions = NO_BUILD,
    run: RunOptions = NO_RUN,
    read: ReadOptions = NO_READ,
    *,
    runs: bool = False,
    check: bool = True,
) -> Readable | Runnable:
    """The kind of target that this is, with everything that is needed to open it.

    Options that do not apply to it are refused, unless that is not to be checked. `runs`: it will run even
    where `run` does not ask. A target that was resolved before stays what it is.
    """
    if isinstance(target, (Readable, Runnable)):
        found = target
    else:
        if isinstance(target, (str, os.PathLike)):
            asked = _Asked(target, build, runs or run.needs_run)
            file = next(kind.file for kind in PATHS if kind.fits(asked))
        else:
            file = next(kind.file for kind in OBJECTS if isinstance(target, kind.type))
        found = import_module(f"modelglass.targets.{file}").resolve(target, build)
    wanted = as_automatic(run.inputs) if isinstance(run.inputs, ASKS) else None
    if wanted is not None and wanted.needed and not wanted.given:  # a run is asked for, with whatever inputs
        found = found.to_run()
    if check and not (build.given.keys() | run.given.keys() | read.given.keys()) <= found.takes:
        found.check(build, run, read)
    return found


def as_saved_report(target: Target) -> Report | None:
    """The report that a target holds; None for every other kind."""
    from modelglass.targets.saved import SavedReport

    return target.report if isinstance(target, SavedReport) else None


def as_recording(target: Target) -> Recorded | None:
    """The recording of GPU memory that a target is; None for every other kind."""
    from modelglass.targets.recorded import Recorded

    return target if isinstance(target, Recorded) else None
