"""What a file holds that a careful reader wants to know before loading it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from modelglass.printing import Printed
from modelglass.report.model import Json

# "info" is how ordinary files look. "notice": loading needs or runs something beyond tensors. "high":
# loading runs what the file names, or reaches outside of it. "invalid": the file breaks the rules of its
# format, can be read in two ways, or is not a model. "limit": reading stopped at a limit, incomplete.
Level: TypeAlias = Literal["info", "notice", "high", "invalid", "limit"]
LEVELS: tuple[Level, ...] = ("info", "notice", "high")  # those that --fail-on chooses from, in rising order

# What a global that a pickle names may do: "core" builds tensors and containers, "data" is plain data of a
# known package, "class" is somebody's class, "call" is a function that loading would call, and "dynamic"
# is one whose name the file computes.
GlobalKind: TypeAlias = Literal["core", "data", "class", "call", "dynamic"]
Verdict: TypeAlias = Literal["accepts", "refuses"]

_LONGEST_INTEGER = 13_000  # bits; Python refuses to write much longer ones in decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was found, and where. `code` is stable; `text` is for people."""

    code: str
    level: Level
    text: str
    file: str
    member: str | None = None  # of an archive
    offset: int | None = None  # bytes from the start of the file or member
    details: Mapping[str, Json] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "details", _json_value(self.details))


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalUse:
    """A function or class that a pickle names, and what it does with it."""

    name: str  # "os.system"
    kind: GlobalKind
    file: str
    member: str | None = None
    offset: int  # of its first use
    count: int = 1
    called: bool = False
    arguments: str | None = None  # of the first call, shortened
    package: str | None = None  # that loading would import; None: nothing beyond Python and torch


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedFile:
    """One file: what it is, how much of it was read, and what was found."""

    path: str
    format: str | None  # None: not recognised
    nbytes: int | None  # None: it could not be opened
    read_nbytes: int
    weights_only: Verdict | None = None  # of torch.load(weights_only=True); None: not a file torch loads
    refusal: str | None = None  # why it would refuse
    globals: tuple[GlobalUse, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def unread_nbytes(self) -> int | None:
        return None if self.nbytes is None else max(0, self.nbytes - self.read_nbytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan(Printed):
    """What was found in one or more files."""

    files: tuple[ScannedFile, ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(finding for file in self.files for finding in file.findings)

    def exit_code(self, fail_on: Level = "notice") -> int:
        """3: a file is invalid or no model; 4: a limit was met; 1: findings at `fail_on` or above."""
        levels = {finding.level for finding in self.findings}
        if "invalid" in levels or not self.files:
            return 3
        if "limit" in levels:
            return 4
        return 1 if levels & set(LEVELS[LEVELS.index(fail_on) :]) else 0


def _json_value(value: Any) -> Json:
    """A value of a file as JSON can hold it: what JSON does not have is a text."""
    if isinstance(value, Mapping):
        return {str(key): _json_value(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_json_value(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and value.bit_length() > _LONGEST_INTEGER:
        return hex(value)
    return value
