"""What is beside a model: its configuration, how its data are scaled, a checkpoint that fits it or not."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modelglass.api._models import adapter_of, require_extra
from modelglass.compat.model_inspector.normalisation import checkpoint_settings, constants, settings
from modelglass.errors import FileError
from modelglass.targets.kind import report_nothing
from modelglass.targets.paths import config_in

if TYPE_CHECKING:
    from modelglass.formats.reading import Reading
    from modelglass.report import (
        Json,
        Matching,
        Model,
        Note,
        Report,
        Values,
    )


def match(native: Any, report: Report, checkpoint: Report) -> tuple[Matching, tuple[Note, ...]]:
    """The tensors of a checkpoint against those that the model would load; and what could not be found out.

    Some libraries store a model under other names, or weights apart that the model holds as one.
    """
    from modelglass.analyses.matching import match, match_stored
    from modelglass.configs.stored import stored_form
    from modelglass.report import Note

    found = match(report.model, checkpoint.model, unsaved=adapter_of(native).non_persistent_names(native))
    form, problem = (None, None) if found.complete else stored_form(native)
    if problem is not None:
        text = (
            f"in which form transformers stores this model could not be found out ({problem}); tensors were"
        )
        return found, (Note(code="stored-form-unknown", text=f"{text} compared by the model's own names"),)
    if form is None:
        return found, ()
    return match_stored(report.model, form, checkpoint.model, own=found, library="transformers"), ()


def in_training(native: Any) -> AbstractContextManager[None]:
    """The model in training mode inside; afterwards each module is in the mode it was in."""
    found: AbstractContextManager[None] = adapter_of(native).training_mode(native)
    return found


def normalisation_of(native: Any, report: Report) -> dict[str, Json]:
    """How the model's data are scaled: by the settings and the small buffers that it holds."""
    said = settings(report.model.modules[0].config) if report.model.modules else {}
    values = adapter_of(native).values(native)
    return {**said, **_constants(report.model, values)}


def normalisation_in(path: Path, report: Report) -> dict[str, Json]:
    """How the data of a checkpoint's model are scaled: by what is beside the model, and by its buffers."""
    from modelglass.checkpoints import inspect_file

    said = {} if report.checkpoint is None else checkpoint_settings(report.checkpoint.parts)
    if not constants(report.model):
        return said
    found: dict[str, Json] = {}

    def look(read: Report, reading: Reading) -> Report:
        with require_extra("numpy", "reading values", extra="stats"):
            from modelglass.formats.tensors.values import values
        found.update(_constants(report.model, values(reading)))
        return read

    inspect_file(path, limits=None, progress=report_nothing, with_stats=look)
    return {**said, **found}


def settings_of(path: Path) -> dict[str, Json]:
    """What a configuration file says, or the one in a folder."""
    from modelglass import configs

    return configs.read(config_in(path) or path if path.is_dir() else path)


def settings_beside(path: Path) -> dict[str, Json]:
    """What the configuration in a checkpoint's folder says; nothing where there is none that can be read."""
    beside = config_in(path if path.is_dir() else path.parent)
    try:
        return {} if beside is None else settings_of(beside)
    except FileError:
        return {}  # the report of the checkpoint has a note on it


def _constants(model: Model, values: Mapping[str, Values | str]) -> dict[str, Json]:
    """The numbers of constants; None for those that have no values, or too many."""
    names = constants(model)
    if not names:
        return {}
    with require_extra("numpy", "reading values", extra="stats"):
        from modelglass.analyses.stats.numbers import numbers
    held = {name: values.get(name, "") for name in names}
    return {name: None if isinstance(each, str) else numbers(each) for name, each in held.items()}
