"""The files of a report, and what they hold besides tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from modelglass.report.architecture import Architecture
    from modelglass.report.execution import Value
    from modelglass.report.model import Json
    from modelglass.report.parts import CheckpointPart


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """One file that was read."""

    path: str
    nbytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The files a report was read from, and what they hold."""

    format: str
    files: tuple[File, ...]
    read_nbytes: int
    metadata: Mapping[str, Json] = field(default_factory=dict)
    parts: tuple[CheckpointPart, ...] = ()
    prefix: str = ""  # that all names had and that was taken off
    inputs: tuple[Value, ...] = ()  # of a graph
    outputs: tuple[Value, ...] = ()
    architecture: Architecture | None = None

    @property
    def nbytes(self) -> int:
        return sum(file.nbytes for file in self.files)
