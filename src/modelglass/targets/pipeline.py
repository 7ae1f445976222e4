"""A folder of a pipeline: `model_index.json`, and a folder with weights for each part that has any."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from modelglass.errors import NotAModelError
from modelglass.options import BuildOptions, ReadOptions
from modelglass.targets.checkpoint import Checkpoint
from modelglass.targets.paths import PIPELINE, check_exists, has_weights

if TYPE_CHECKING:
    from collections.abc import Mapping

    from modelglass.checkpoints import WithStats
    from modelglass.options import Progress
    from modelglass.report import Report


@dataclass(frozen=True)
class Pipeline(Checkpoint):
    """The folder of a pipeline, whose parts are read as one model with a module for each."""

    kind = "pipeline"
    takes = frozenset({"limits", "run"})
    because = "the parts of a pipeline are read and not run"  # type: ignore[assignment]
    advice: ClassVar[Mapping[str, str]] = {
        **Checkpoint.advice,
        **dict.fromkeys(("inputs", "input_shape", "train"), "pass the folder of one part: PIPELINE/unet"),
        "stats": "pass the folder of one part: PIPELINE/unet",
    }

    @cached_property
    def _index(self) -> Mapping[str, object]:
        from modelglass.checkpoints import read_document

        found = read_document(self.path / PIPELINE)
        if not isinstance(found, dict):
            raise NotAModelError(
                "it does not name the parts of a pipeline",
                file=str(self.path / PIPELINE),
                code="pipeline.index",
                hint="pass the folder of one part",
            )
        return found

    @property
    def components(self) -> tuple[str, ...]:
        """The parts that have weights, in the order of the index."""
        return tuple(self._classes)

    @cached_property
    def _classes(self) -> Mapping[str, str]:
        """The class of each part that has weights: an index has a library and a class for every part."""
        return {
            name: value[-1] if value and isinstance(value[-1], str) else ""
            for name, value in self._index.items()
            if isinstance(value, list) and _is_plain(name) and has_weights(self.path / name)
        }

    def read(self, options: ReadOptions, progress: Progress, with_stats: WithStats) -> Report:
        from modelglass.checkpoints import inspect_pipeline

        name = self._index.get("_class_name")
        return inspect_pipeline(
            self.path,
            self._classes,
            name=name if isinstance(name, str) else None,
            limits=options.limits,
            progress=progress,
        )


def _is_plain(name: str) -> bool:
    """Whether a part's name is that of a folder right here, and not a way to another place."""
    return bool(name) and not name.startswith("_") and not set(name) & {"/", "\\", "\0", ":", "."}


def resolve(target: str | os.PathLike[str], build: BuildOptions) -> Pipeline:
    path = Path(target)
    check_exists(path)
    return Pipeline(path if os.path.isdir(path) else path.parent)
