"""What did the user name? Only this room decides, once for each call.

A kind of target is a file here and a row of `KINDS`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from modelglass.options import SERVING, BuildOptions, ReadOptions, RunOptions, is_automatic
from modelglass.report import Report
from modelglass.targets.kind import OpenModel, Readable, Runnable, Target
from modelglass.targets.paths import has_weights_and_config, is_code_name, is_config_path, is_saved
from modelglass.user_code import is_factory

__all__ = ["OpenModel", "Readable", "Runnable", "Target", "recognise", "resolve", "saved_report"]


def _is_text(target: Any) -> bool:
    return isinstance(target, (str, os.PathLike))


def _is_code(target: Any) -> bool:
    return is_code_name(os.fspath(target)) if _is_text(target) else is_factory(target)


class _Asked(NamedTuple):
    """What a kind is recognised by."""

    target: Any
    build: BuildOptions
    runs: bool


class _Kind(NamedTuple):
    file: str  # imported for a target of this kind
    fits: Callable[[_Asked], bool]


KINDS = (  # the first that fits wins
    _Kind("saved", lambda asked: isinstance(asked.target, Report)),
    _Kind("code", lambda asked: _is_code(asked.target)),
    _Kind("live", lambda asked: not _is_text(asked.target)),
    # All that follows is a path.
    _Kind("served", lambda asked: asked.build.framework == SERVING),
    _Kind("saved", lambda asked: asked.build.builder is None and is_saved(Path(asked.target))),
    _Kind("config", lambda asked: asked.build.builder is not None or is_config_path(Path(asked.target))),
    # A folder of weights is built from its configuration only where it is to run.
    _Kind("config", lambda asked: asked.runs and has_weights_and_config(Path(asked.target))),
    _Kind("checkpoint", lambda asked: True),
)


def resolve(
    target: Any,
    build: BuildOptions | None = None,
    run: RunOptions | None = None,
    read: ReadOptions | None = None,
    *,
    runs: bool = False,
) -> Target:
    """The kind of target that this is, with everything that is needed to open it.

    Options that do not apply to it are refused. `runs` says that it will run even where `run` does not ask.
    """
    build, run, read = build or BuildOptions(), run or RunOptions(), read or ReadOptions()
    found = recognise(target, build, runs=runs or run.needs_run)
    if is_automatic(run.inputs):  # a run is asked for, with whatever inputs
        found = found.to_run()
    found.check(build, run, read)
    return found


def saved_report(target: Any) -> Report | None:
    """The report that a target is, or that its file holds; None: it is another kind of target."""
    from modelglass.targets.saved import SavedReport

    found = recognise(target, BuildOptions())
    return found.report if isinstance(found, SavedReport) else None


def recognise(target: Any, build: BuildOptions, *, runs: bool = False) -> Target:
    """The kind of target that this is, whether or not the options apply to it."""
    asked = _Asked(target, build, runs)
    kind = next(kind for kind in KINDS if kind.fits(asked))
    found: Target = import_module(f"modelglass.targets.{kind.file}").resolve(target, build)
    return found
