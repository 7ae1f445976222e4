"""A recording of GPU memory, which is followed and not run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NoReturn

from modelglass.errors import UnknownTargetError
from modelglass.options import BuildOptions, ReadOptions
from modelglass.targets.kind import RUN, Readable
from modelglass.targets.paths import check_exists

if TYPE_CHECKING:
    from modelglass.checkpoints import WithStats
    from modelglass.options import Progress
    from modelglass.report import MemorySnapshot


@dataclass(frozen=True)
class Recorded(Readable):
    """The path of a file that `torch.cuda.memory._dump_snapshot` wrote."""

    path: Path

    kind = "recorded"
    takes = frozenset()
    because = "a recording of GPU memory is followed as it was made"
    advice: ClassVar[Mapping[str, str]] = dict.fromkeys(RUN, "give the model that was recorded")

    def __str__(self) -> str:
        return f"the recording {str(self.path)!r}"

    def snapshot(self) -> MemorySnapshot:
        """What it shows of each device."""
        from modelglass.analyses.memory.replay import memory_snapshot
        from modelglass.formats import snapshots

        return memory_snapshot(str(self.path), snapshots.read(self.path))

    def read(self, options: ReadOptions, progress: Progress, with_stats: WithStats) -> NoReturn:
        raise UnknownTargetError(
            f"{str(self.path)!r} is a recording of GPU memory, not a model",
            hint=f"modelglass memory {self.path} shows what it holds",
        )


def resolve(target: str | os.PathLike[str], build: BuildOptions) -> Recorded:
    path = Path(target)
    check_exists(path)
    return Recorded(path)
