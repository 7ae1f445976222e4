"""Every exception modelglass raises on purpose.

Each states what happened and what to do next; the command line shows it without a traceback.
"""

from __future__ import annotations

import sys
from typing import Any

# Packages that there are not for a system, and what to do instead.
_NOT_MADE = {("mlx", "win32"): "MLX is not made for Windows: use macOS, Linux or WSL"}


class InspectError(Exception):
    """Something the user can act on."""

    exit_code = 3

    def __init__(self, problem: str, *, hint: str) -> None:
        super().__init__(f"{problem}\n  hint: {hint}")
        self.problem = problem
        self.hint = hint


class UsageError(InspectError):
    """The call itself is wrong: options that contradict each other, a spec that cannot be read."""

    exit_code = 2


class TargetError(InspectError):
    """The target cannot be found, loaded or built."""


class UntrustedError(TargetError):
    """A configuration asks for code that runs only if the user allows it: `trust=True`, `--trust`."""


class InputsError(InspectError):
    """The inputs cannot be made or do not belong to the model's framework."""


class ForwardError(InspectError):
    """The model raised while it ran.

    `report`, a `Report`, holds everything up to there, and `report.run.failure` the module, the operator and
    the shapes that met; `file` and `line` are those of the model's own code, None where no such code ran.
    """

    def __init__(self, problem: str, *, hint: str, report: Any = None) -> None:
        super().__init__(problem, hint=hint)
        failure = None if report is None else report.run.failure
        source = None if failure is None else failure.source
        self.report = report
        self.file = None if source is None else source.file
        self.line = None if source is None else source.line


class UnknownTargetError(InspectError):
    """The object is not a model of any framework modelglass knows."""


class MissingPackageError(InspectError):
    """Something that was asked for needs a package that is not there."""

    def __init__(
        self, package: str, *, wanted_by: str, extra: str | None = None, hint: str | None = None
    ) -> None:
        # Of all shells, those of Windows know only these quotes.
        install = _NOT_MADE.get((package, sys.platform)) or f'pip install "modelglass[{extra or package}]"'
        super().__init__(
            f"{wanted_by} needs the package {package!r}, which is not installed", hint=hint or install
        )


class UnsupportedVersionError(InspectError):
    """An installed package is of a version that modelglass does not work with."""


class CannotReproduceError(InspectError):
    """An operator cannot be run from a file of its own; `problem`: why."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem, hint="reproduce it by hand, from its record")


class FormulaError(InspectError):
    """A formula that the user registered does not give a count."""

    def __init__(self, name: str, trouble: str) -> None:
        super().__init__(
            f"the formula registered for {name!r} {trouble}",
            hint="it gets a Kernel and returns a whole number of multiply-accumulates, or None",
        )


class FileError(InspectError):
    """A file cannot be read, or cannot be believed. `member` is of an archive, `offset` the byte."""

    def __init__(
        self,
        problem: str,
        *,
        file: str,
        code: str,
        hint: str = "get the file again, from its source",
        member: str | None = None,
        offset: int | None = None,
    ) -> None:
        place = "".join(
            (
                f", in {member}" if member is not None else "",
                f", at byte {offset:,}" if offset is not None else "",
            )
        )
        super().__init__(f"{file}{place}: {problem}", hint=hint)
        self.text, self.file, self.code, self.member, self.offset = problem, file, code, member, offset


class CorruptFileError(FileError):
    """The file breaks the rules of its format, or can be read in two ways."""


class NotAModelError(FileError):
    """The file is something else than a model."""


class LimitError(FileError):
    """Reading stopped at a limit that keeps memory and time bounded."""

    exit_code = 4


class ReportFormatError(InspectError):
    """A saved report cannot be read back."""
