"""Models built from configurations, or by a function of the user's from what a checkpoint says of itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modelglass import targets
from modelglass.errors import MissingPackageError, TargetError, UsageError

if TYPE_CHECKING:
    from modelglass.configs import Built
    from modelglass.frameworks.request import Inputs
    from modelglass.report import Note

# What fake tensors raise where only values could tell; inputs of another size have none.
UNFAKEABLE = (
    "DataDependentOutputException",
    "DynamicOutputShapeException",
    "NeedsValuesError",
    "UnsupportedOperatorException",
)
REAL_NBYTES = 2 << 30  # of a model that may be built with its weights where values are looked at
AUTOMATIC = "auto"  # for inputs: as the model's own configuration says that they are


def is_built(target: Any, *, builder: Any = None, runs: bool = False) -> bool:
    """Whether a model has to be built for this target: a configuration, or a checkpoint with a builder.

    A folder that holds weights, too, is built from its configuration only when it is to run.
    """
    if not isinstance(target, (str, os.PathLike)) or targets.is_code_target(os.fspath(target)):
        return False
    if builder is not None or targets.is_config_target(target):
        return True
    return runs and os.path.isdir(target) and targets.config_in(Path(target)) is not None


def check_roles(config: Path | None, checkpoint: Path | None) -> None:
    """That what is given as a configuration is no checkpoint, and the other way round."""
    if config is not None and _is_checkpoint(config):
        raise UsageError(
            f"{str(config)!r} is a checkpoint, and no configuration that says how to build a model",
            hint=f"give it as --checkpoint {config}",
        )
    if checkpoint is not None and os.path.lexists(checkpoint) and targets.is_config_target(checkpoint):
        raise UsageError(
            f"{str(checkpoint)!r} is a configuration, which holds no weights",
            hint=f"give it as --config {checkpoint}",
        )


def _is_checkpoint(path: Path) -> bool:
    """Whether a file holds weights, by its first bytes, or says which files do."""
    if not os.path.isfile(path) or targets.is_config_target(path):
        return False
    from modelglass import formats
    from modelglass.formats.source import OpenFile

    with OpenFile(path) as source:
        found = formats.format_of(source.up_to(0, formats.HEAD), source)
    return path.name.endswith(".index.json") or (found is not None and found.module != "documents")


@contextmanager
def build(
    target: str | os.PathLike[str],
    *,
    builder: Any = None,
    model_key: str | None = None,
    weightless: bool = True,
    trust: bool = False,
    notes: list[Note] | None = None,
) -> Iterator[Built]:
    """The model that a configuration describes, or that a builder makes of a configuration or a checkpoint.

    Only what is proven to be a model class is called, unless the file is to be trusted. It has no weights
    where it can be built without. What is imported for it is there inside the block. Of a
    checkpoint, `model_key` says which part of what it says the builder is called with.
    """
    from modelglass import configs

    path = Path(target)
    if not os.path.lexists(path):
        raise TargetError(f"there is no file {str(path)!r}", hint=targets.nearby(path))
    with ExitStack() as stack:
        if builder is None and not trust:  # before the first import of a framework
            stack.enter_context(targets.only_installed(path))
        with _untouched():
            found: Built = stack.enter_context(
                configs.built(
                    config_path(path), builder=builder, key=model_key, weightless=weightless, trust=trust
                )
                if targets.is_config_target(path) or builder is None
                else _by_checkpoint(path, builder, model_key, weightless=weightless)
            )
        if notes is not None:
            notes.extend(_notes(found, path))
        yield found


def automatic_inputs(native: Any, own: Any = None, notes: list[Note] | None = None) -> Inputs | None:
    """What a model can be called with: as came with it, as it shows itself, or as its configuration says.

    None: nothing tells. What the model could have been given, too, goes to `notes`.
    """
    from modelglass import configs
    from modelglass.frameworks.request import Inputs, requested_inputs
    from modelglass.report import Note

    found = configs.Example(own) if own is not None else configs.example(native, _output_shapes)
    if found.left_out and notes is not None:
        text = "the model was called without what it takes, too, and could not be made for it"
        notes.append(Note(code="inputs-left-out", text=text, where=found.left_out))
    given = requested_inputs(found.inputs, None, 1, None)
    return given if isinstance(given, Inputs) else None


def config_path(path: Path) -> Path:
    """The file with the configuration: the one that is named, or the one in the folder that is named."""
    if not os.path.isdir(path):
        return path
    found = targets.config_in(path)
    if found is None:
        raise TargetError(
            f"{str(path)!r} has no {targets.CONFIG} that says how to build a model",
            hint=f"give --builder file.py::function, or name code: {targets.FORMS}",
        )
    return found


@contextmanager
def _by_checkpoint(path: Path, builder: Any, key: str | None, *, weightless: bool) -> Iterator[Built]:
    from modelglass import configs

    section = configs.section(said_by(path), key, str(path))
    with configs.built_by(builder, section, weightless=weightless) as found:
        yield found


def said_by(path: Path) -> dict[str, Any]:
    """What a checkpoint says of its model: the configuration beside it, or its hyper-parameters."""
    from modelglass import configs
    from modelglass.checkpoints import inspect_file

    beside = targets.config_in(path if os.path.isdir(path) else path.parent)
    report = inspect_file(path, limits=None, progress=lambda text: None)
    said: dict[str, Any] = {}
    for part in report.checkpoint.parts if report.checkpoint is not None else ():
        if part.kind == "hyper-parameters" and isinstance(part.value, dict):
            said |= part.value
    return said if said or beside is None else configs.read(beside)


@contextmanager
def _untouched() -> Iterator[None]:
    from modelglass import frameworks

    try:
        adapter = frameworks.adapter("torch")
    except ModuleNotFoundError as cause:
        if cause.name not in ("torch", "numpy"):
            raise
        raise MissingPackageError("torch", wanted_by="building a model", extra="torch") from cause
    with adapter.untouched_process():
        yield


def _notes(found: Built, path: Path) -> Iterator[Note]:
    from modelglass.report import Note

    for code, text in found.notes:
        yield Note(code=code, text=text)
    if not targets.is_config_target(path):
        text = "the model was built anew from its configuration; the weights of the checkpoint are not in it"
        yield Note(code="built-from-config", text=text)


def _output_shapes(native: Any, given: dict[str, Any]) -> list[tuple[str, tuple[int, ...]]] | None:
    """The shapes of what a module gives, by name, without computing; None when it cannot be called so."""
    from modelglass import frameworks
    from modelglass.frameworks.request import Inputs, Request

    request = Request(inputs=Inputs(kwargs=given), memory_only=True)
    run = frameworks.adapter("torch").observe(native, request).run
    if run.failure is not None:
        # Where values decide what runs, the inputs were good enough to come that far, and weights can be had.
        return [] if run.failure.error in UNFAKEABLE and _may_have_weights(native) else None
    return [(value.name, value.shape) for value in run.outputs if value.shape is not None]


def _may_have_weights(native: Any) -> bool:
    """Whether a model is small enough to be built with its weights where values are looked at."""
    nbytes: int = sum(each.nbytes for each in native.parameters())
    return nbytes <= REAL_NBYTES
