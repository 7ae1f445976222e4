"""A configuration as a rank of an engine would hold it: the engine's own classes are built, and never run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from modelglass.errors import TargetError
from modelglass.options import SERVING, BuildOptions, ReadOptions
from modelglass.targets.kind import RUN, Readable
from modelglass.targets.paths import CONFIG, check_exists, config_file

if TYPE_CHECKING:
    from modelglass.checkpoints import WithStats
    from modelglass.options import Progress
    from modelglass.report import Report, Serving


@dataclass(frozen=True)
class Served(Readable):
    """The path of a configuration, and how an engine would be set up."""

    path: Path
    serving: Serving | None

    kind = "served"
    takes = frozenset({"framework", "serving"})
    advice: ClassVar[Mapping[str, str]] = dict.fromkeys(
        RUN, "leave it out, or leave the framework out: transformers can run it"
    )
    because = f'framework="{SERVING}" builds the model of a configuration and does not run it'

    def __str__(self) -> str:
        return repr(str(self.path))

    def check_installed(self) -> None:
        """Fail early where vLLM is not installed."""
        from modelglass.frameworks.vllm import versions

        versions.require_vllm("a configuration as vLLM builds it")

    def read(self, options: ReadOptions, progress: Progress, with_stats: WithStats) -> Report:
        """What a rank of the engine would hold."""
        from modelglass.analyses.analyse import analyse
        from modelglass.frameworks.vllm import build
        from modelglass.report import Serving

        return analyse(build.build_rank(self.path, self.serving or Serving(), progress=progress))


def resolve(target: str | os.PathLike[str], build: BuildOptions) -> Served:
    path = Path(target)
    _check_config(path)
    return Served(path, build.serving)


def _check_config(path: Path) -> None:
    check_exists(path)
    found = config_file(path)
    if found is None or found.suffix.lower() != ".json":
        raise TargetError(
            f"{str(path)!r} is not a configuration that vLLM could build a model from",
            hint=f"give a {CONFIG} of Hugging Face, or a folder with one",
        )
