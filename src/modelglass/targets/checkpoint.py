"""A file or folder with weights, which is read and never run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from modelglass.errors import UnknownTargetError
from modelglass.options import BuildOptions, ReadOptions
from modelglass.targets.kind import RUN, Readable
from modelglass.targets.paths import check_exists
from modelglass.user_code import FORMS

if TYPE_CHECKING:
    from modelglass.checkpoints import WithStats
    from modelglass.options import Progress
    from modelglass.report import Report

_MOST_LISTED = 8  # functions in a message


@dataclass(frozen=True)
class Checkpoint(Readable):
    """The path of a file or folder with weights."""

    path: Path

    kind = "checkpoint"
    takes = frozenset({"stats", "limits", "run"})
    advice: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(RUN, f"name code that builds the model ({FORMS}), or give its configuration"),
        **dict.fromkeys(("builder", "model_key", "trust"), "leave it out, or pass a configuration"),
        "framework": 'leave the framework out; framework="vllm" is for a configuration',
    }

    @property
    def because(self) -> str:  # type: ignore[override]
        what = "a folder without config.json" if os.path.isdir(self.path) else "a file with weights"
        return f"{what} is read and not run"

    def __str__(self) -> str:
        return repr(str(self.path))

    def read(self, options: ReadOptions, progress: Progress, with_stats: WithStats) -> Report:
        from modelglass.checkpoints import inspect_file

        add = with_stats if options.stats else None
        return inspect_file(self.path, limits=options.limits, progress=progress, with_stats=add)


def _suggest_functions(path: Path) -> UnknownTargetError:
    """Which functions of a file of code could be the target; it is read, not run."""
    from modelglass.targets.python_file import factories_in, roles_in

    models = [f"{path}::{name}" for name in factories_in(path)]
    inputs = [f"{path}::{name}" for name, role in roles_in(path).items() if role == "inputs"]
    hint = f"it could be {_list_names(models)}" if models else f"name code: {FORMS}"
    return UnknownTargetError(
        f"{str(path)!r} is Python code; name a function in it",
        hint=f"{hint}; inputs could be {_list_names(inputs)}" if inputs else hint,
    )


def _list_names(names: list[str]) -> str:
    return ", ".join(names[:_MOST_LISTED]) + (", …" if len(names) > _MOST_LISTED else "")


def resolve(target: str | os.PathLike[str], build: BuildOptions) -> Checkpoint:
    path = Path(target)
    check_exists(path)
    if path.suffix.lower() == ".py":
        raise _suggest_functions(path)
    return Checkpoint(path)
