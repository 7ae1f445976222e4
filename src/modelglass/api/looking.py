"""What a model that code builds, and a checkpoint beside it, have to do with each other."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modelglass import targets
from modelglass.api.making import adapter_of, needing, silently
from modelglass.errors import FileError

if TYPE_CHECKING:
    from modelglass.formats.reading import Reading
    from modelglass.report import Estimate, Json, Matching, Model, Report, TypeCount, Values


def by_type(report: Report) -> tuple[TypeCount, ...]:
    """The parameters by the type of the module that owns them; they add up to the total."""
    from modelglass.analyses.by_type import by_type

    return () if report.counts is None else by_type(report.model, report.counts)


def nbytes_by_dtype(report: Report) -> Mapping[str, int]:
    """The bytes that parameters take, by element type."""
    from modelglass.analyses.by_type import nbytes_by_dtype

    return {} if report.counts is None else nbytes_by_dtype(report.model, report.counts)


def estimate(report: Report) -> Estimate | None:
    """What a training step keeps in memory, added up; None: it did not run to its end."""
    from modelglass.analyses.estimate import estimate

    return estimate(report)


def match(native: Any, report: Report, checkpoint: Report) -> Matching:
    """The tensors of a checkpoint against those that the model would load.

    Some libraries store a model under other names, or weights apart that the model holds as one. A checkpoint
    may be in either form: the one that leaves fewer tensors over counts.
    """
    from modelglass.analyses.matching import match

    found = match(report.model, checkpoint.model, unsaved=adapter_of(native, native).unsaved(native))
    stored = None if found.complete else _as_stored(native, report.model)
    if stored is None:
        return found
    other = replace(match(stored, checkpoint.model), library="transformers")
    return min(found, other, key=_left_over)


def _as_stored(native: Any, model: Model) -> Model | None:
    """The model with the tensors that its library would write; None: they are its own."""
    from modelglass.configs.stored import stored_form
    from modelglass.report import Tensor

    own = {tensor.name: tensor for tensor in model.tensors}
    form = stored_form(native)
    if form is None:
        return None
    tensors = []
    for name, each in form.items():
        known = own.get(each.name or "")
        made = Tensor(
            name=name, kind="parameter", shape=each.shape, dtype=each.dtype, storage=f"stored {name}"
        )
        tensors.append(made if known is None else replace(known, name=name))
    return replace(model, tensors=tuple(tensors))


def _left_over(matching: Matching) -> int:
    return len(matching.missing) + len(matching.unexpected) + len(matching.reshaped)


def in_training(native: Any) -> AbstractContextManager[None]:
    """The model in training mode inside; afterwards each module is in the mode it was in."""
    found: AbstractContextManager[None] = adapter_of(native, native).in_training(native)
    return found


def normalisation_of(native: Any, report: Report) -> dict[str, Json]:
    """How the model's data are scaled: by the settings and the small buffers that it holds."""
    from modelglass.analyses.normalisation import settings

    said = settings(report.model.modules[0].config) if report.model.modules else {}
    values = adapter_of(native, native).values(native)
    return {**said, **_constants(report.model, values)}


def normalisation_in(path: Path, report: Report) -> dict[str, Json]:
    """How the data of a checkpoint's model are scaled: by what is beside the model, and by its buffers."""
    from modelglass.analyses.normalisation import constants, settings
    from modelglass.checkpoints import inspect_file

    said: dict[str, Json] = {}
    for part in () if report.checkpoint is None else report.checkpoint.parts:
        if part.kind == "normalisation":
            said[part.key] = part.value
        elif part.kind == "hyper-parameters":
            said |= settings({part.key: part.value})
    if not constants(report.model):
        return said
    found: dict[str, Json] = {}

    def look(read: Report, reading: Reading) -> Report:
        with needing("numpy", "reading values", extra="stats"):
            from modelglass.formats.values import values
        found.update(_constants(report.model, values(reading)))
        return read

    inspect_file(path, limits=None, progress=silently, with_stats=look)
    return {**said, **found}


def settings_of(path: Path) -> dict[str, Json]:
    """What a configuration file says, or the one in a folder."""
    from modelglass import configs

    return configs.read(targets.config_in(path) or path if path.is_dir() else path)


def settings_beside(path: Path) -> dict[str, Json]:
    """What the configuration in a checkpoint's folder says; nothing where there is none that can be read."""
    beside = targets.config_in(path if path.is_dir() else path.parent)
    try:
        return {} if beside is None else settings_of(beside)
    except FileError:
        return {}  # the report of the checkpoint has a note on it


def scaling_in(config: Json) -> dict[str, Json]:
    """What a configuration says about how data are scaled."""
    from modelglass.analyses.normalisation import settings

    return settings(config)


def _constants(model: Model, values: Mapping[str, Values | str]) -> dict[str, Json]:
    """The numbers of constants; None for those that have no values, or too many."""
    from modelglass.analyses.normalisation import constants

    names = constants(model)
    if not names:
        return {}
    with needing("numpy", "reading values", extra="stats"):
        from modelglass.analyses.stats.numbers import numbers
    held = {name: values.get(name, "") for name in names}
    return {name: None if isinstance(each, str) else numbers(each) for name, each in held.items()}
