"""What one inspection is put together from: counts by type, memory, how data are scaled, what fits what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modelglass.api._models import adapter_of, require_extra
from modelglass.errors import FileError
from modelglass.targets.kind import report_nothing
from modelglass.targets.paths import config_in

if TYPE_CHECKING:
    from modelglass.formats.reading import Reading
    from modelglass.report import (
        AlikeTensors,
        Estimate,
        Json,
        Matching,
        Model,
        Note,
        Report,
        Shape,
        TypeCount,
        Values,
        WeightFigures,
    )


def by_type(report: Report) -> tuple[TypeCount, ...]:
    """The parameters by the type of the module that owns them; they add up to the total."""
    from modelglass.compat.model_inspector.by_type import by_type

    return () if report.counts is None else by_type(report.model, report.counts)


def nbytes_by_dtype(report: Report) -> Mapping[str, int]:
    """The bytes that parameters take, by element type."""
    from modelglass.compat.model_inspector.by_type import nbytes_by_dtype

    return {} if report.counts is None else nbytes_by_dtype(report.model, report.counts)


def estimate(report: Report) -> Estimate | None:
    """What a training step keeps in memory, added up; None: it did not run to its end."""
    from modelglass.compat.model_inspector.estimate import estimate

    return estimate(report)


def outputs_by_module(report: Report) -> Mapping[str, int | None]:
    """Bytes that each module's calls returned, as far as no module inside them did; None: not known."""
    from modelglass.compat.outputs import outputs_by_module

    return outputs_by_module(report.model)


def outputs_with_batch(shapes: Sequence[Shape], nbytes: int | None, *, observed: int, wanted: int) -> int:
    """Bytes of a layer's outputs for another batch than the one they were observed with."""
    from modelglass.compat.outputs import outputs_with_batch

    return outputs_with_batch(shapes, nbytes, observed=observed, wanted=wanted)


def weight_figures(report: Report) -> WeightFigures | None:
    """The values of a checkpoint's weights in a few figures; None: they were not read."""
    from modelglass.compat.model_inspector.weight_figures import weight_figures

    return weight_figures(report)


def largest_at_peak(report: Report) -> tuple[AlikeTensors, ...]:
    """The tensors that take most at the peak of a run."""
    from modelglass.compat.model_inspector.estimate import largest_at_peak

    return () if report.memory is None else largest_at_peak(report.memory)


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
    from modelglass.compat.model_inspector.normalisation import settings

    said = settings(report.model.modules[0].config) if report.model.modules else {}
    values = adapter_of(native).values(native)
    return {**said, **_constants(report.model, values)}


def normalisation_in(path: Path, report: Report) -> dict[str, Json]:
    """How the data of a checkpoint's model are scaled: by what is beside the model, and by its buffers."""
    from modelglass.checkpoints import inspect_file
    from modelglass.compat.model_inspector.normalisation import constants, said_by

    said = {} if report.checkpoint is None else said_by(report.checkpoint.parts)
    if not constants(report.model):
        return said
    found: dict[str, Json] = {}

    def look(read: Report, reading: Reading) -> Report:
        with require_extra("numpy", "reading values", extra="stats"):
            from modelglass.formats.values import values
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


def scaling_in(config: Json) -> dict[str, Json]:
    """What a configuration says about how data are scaled."""
    from modelglass.compat.model_inspector.normalisation import settings

    return settings(config)


def _constants(model: Model, values: Mapping[str, Values | str]) -> dict[str, Json]:
    """The numbers of constants; None for those that have no values, or too many."""
    from modelglass.compat.model_inspector.normalisation import constants

    names = constants(model)
    if not names:
        return {}
    with require_extra("numpy", "reading values", extra="stats"):
        from modelglass.analyses.stats.numbers import numbers
    held = {name: values.get(name, "") for name in names}
    return {name: None if isinstance(each, str) else numbers(each) for name, each in held.items()}
