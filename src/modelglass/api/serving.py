"""Models as an engine serves them: what is asked of a framework, and what an engine's ranks add up to."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from modelglass import targets
from modelglass.errors import TargetError, UsageError

if TYPE_CHECKING:
    from modelglass.frameworks.request import Observation, Progress
    from modelglass.report import Engine, Serving

ENGINES = "vllm"  # whose classes are built without an engine, for any number of ranks


def is_served(target: Any, framework: Any, serving: Any) -> bool:
    """Whether a configuration is to be built as an engine would serve it; what contradicts it is an error."""
    from modelglass import frameworks
    from modelglass.report import Serving

    if framework is not None and framework not in frameworks.FRAMEWORKS:
        raise UsageError(
            f"framework={framework!r} is not known",
            hint="frameworks are " + ", ".join(frameworks.FRAMEWORKS),
        )
    if serving is not None and not isinstance(serving, Serving):
        raise UsageError(f"serving={serving!r} is no setup", hint="write mg.Serving(tensor_parallel=8)")
    if framework == ENGINES and _is_path(target):
        return True
    if serving is not None:
        raise UsageError(
            "how a model would be served is for the path of a configuration that vLLM builds",
            hint='give the path and framework="vllm"; an engine that runs is set up already',
        )
    return False


def check_there(target: Any, framework: Any) -> None:
    """That what is to build this is installed: it is asked before anything else takes its time."""
    if is_served(target, framework, None):
        from modelglass.frameworks.vllm import versions

        versions.require("a configuration as vLLM builds it")


def check_unread(target: Any, framework: str | None) -> None:
    """That nobody asks for a framework where a file is read without one."""
    if framework is not None:
        raise UsageError(
            f"{os.fspath(target)!r} is read as a file, and by no framework",
            hint='leave the framework out; framework="vllm" is for a configuration',
        )


def check_agrees(framework: str | None, adapter: ModuleType) -> None:
    """That a model is of the framework that was asked for."""
    found = adapter.__name__.rpartition(".")[2]
    if framework not in (None, found):
        raise UsageError(
            f"this is a model of {found}, not of {framework}",
            hint=f'leave the framework out, or say framework="{found}"',
        )


def check_alone(**others: Any) -> None:
    """That nothing else is asked for where vLLM builds a model."""
    asked = [name for name, value in others.items() if value is not None and value is not False]
    if asked:
        raise UsageError(
            f"{asked[0]} does not go with a configuration that vLLM builds: nothing runs there",
            hint="leave it out, or leave out the framework: then transformers builds the model",
        )


def check_seen(found: Observation) -> None:
    """That the calls of modules were seen; an engine does not show them."""
    if found.engine is not None and not found.model.calls:
        raise UsageError(
            "an engine does not show how its modules are called",
            hint="pass the configuration, which transformers builds: its modules can be watched",
        )


def built(target: str | os.PathLike[str], serving: Serving | None, progress: Progress) -> Observation:
    """What a rank of an engine would hold, that is not running."""
    from modelglass.frameworks.vllm import building
    from modelglass.report import Serving

    path = _configuration(Path(target))
    found: Observation = building.built(path, serving or Serving(), progress=progress)
    return found


def engine_of(observation: Observation) -> Engine | None:
    """What serves the model, with the figures that follow from what its ranks hold."""
    from modelglass.analyses.serving import completed

    if observation.engine is None:
        return None
    return completed(observation.engine, observation.ranks, observation.whole)


def _is_path(target: Any) -> bool:
    return isinstance(target, (str, os.PathLike)) and not targets.is_code_target(os.fspath(target))


def _configuration(path: Path) -> Path:
    """The file or folder that says what the model is."""
    if not os.path.lexists(path):
        raise TargetError(f"there is no file {str(path)!r}", hint=targets.nearby(path))
    found = targets.config_in(path) if path.is_dir() else path if path.suffix == ".json" else None
    if found is None:
        raise TargetError(
            f"{str(path)!r} is no configuration that vLLM could build a model from",
            hint=f"give a {targets.CONFIG} of Hugging Face, or a folder with one",
        )
    return path
