"""What every kind of target offers."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from modelglass.errors import TargetError, UsageError
from modelglass.options import Options, ReadOptions

if TYPE_CHECKING:
    from modelglass.checkpoints import WithStats
    from modelglass.options import Progress
    from modelglass.report import Note, Report


_SHOWN = ("run", "framework")  # options that are named with their value
_ABOUT = {  # options that are explained by what they are for
    "serving": 'it is for a configuration built with framework="vllm"',
    "builder": "it is called with a configuration",
    "model_key": "it is the path of a model inside a configuration",
    "trust": "it is for configurations",
    "limits": "they are for files that are read",
}


class Target:
    """Something that a user named. `takes` are the options that apply to it."""

    kind: ClassVar[str]
    takes: ClassVar[frozenset[str]]
    lacks: ClassVar[frozenset[str]] = frozenset()  # asking for what it does not have is not wrong usage
    because: ClassVar[str]  # why other options do not apply
    advice: ClassVar[Mapping[str, str]] = {}  # by option; what to do instead

    def __str__(self) -> str:
        raise NotImplementedError

    def check(self, *options: Options) -> None:
        """Refuse options that do not apply to this kind of target."""
        for name, value in ((name, value) for each in options for name, value in each.given.items()):
            if name not in self.takes:
                shown = f'{name}="{value}"' if name in _SHOWN else name
                error = TargetError if name in self.lacks else UsageError
                raise error(
                    f"{shown} does not apply to {self}: {_ABOUT.get(name, self.because)}",
                    hint=self.advice.get(name, f"leave {name} out"),
                )

    def to_run(self) -> Runnable:
        """The target as a model that can run; an error where it is not one."""
        raise TargetError(f"{self} cannot be run: {self.because}", hint=self.advice["inputs"])


class Readable(Target):
    """A target that gives a report without a run. `components` are those of a pipeline."""

    @property
    def components(self) -> tuple[str, ...]:
        return ()

    def check_installed(self) -> None:
        """Fail early where what reads it is not installed."""

    def read(self, options: ReadOptions, progress: Progress, with_stats: WithStats) -> Report:
        """The report. `with_stats` adds statistics of weights while a file is open."""
        raise NotImplementedError


RUN = frozenset(
    {"inputs", "input_shape", "batch_size", "dtype", "device", "run", "train", "optimizer", "loss"}
    | {"calibrate", "what_if", "symbols"}
)


class Runnable(Target):
    """A target that gives a model."""

    has_own_inputs: ClassVar[bool] = False  # they can be made without being asked for

    def open(self, *, weightless: bool) -> AbstractContextManager[OpenModel]:
        """The model; what was imported for it is there inside the block."""
        raise NotImplementedError

    def to_run(self) -> Runnable:
        return self


@dataclass(frozen=True, kw_only=True)
class OpenModel:
    """A model and what came with it. `inputs` are those that its code or configuration gave."""

    native: Any
    inputs: Any = None
    notes: tuple[Note, ...] = ()
    is_user_object: bool = False  # the user chose its mode
    weightless: bool = False  # it may have been built without weights


def report_nothing(text: str) -> None:
    """A progress that nobody follows."""
