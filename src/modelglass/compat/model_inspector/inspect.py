"""Everything that `model-inspector` shows, found.

The model is built once, without weights where that can be; what the checkpoint holds is read, never loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from modelglass import api
from modelglass.api._inputs import REAL_NBYTES
from modelglass.api._models import BuiltModel, with_model
from modelglass.compat.model_inspector import lookup
from modelglass.compat.model_inspector.by_type import by_type, nbytes_by_dtype
from modelglass.compat.model_inspector.estimate import estimate, largest_at_peak
from modelglass.compat.model_inspector.inspection import Inspection, TypeCount
from modelglass.compat.model_inspector.normalisation import settings
from modelglass.compat.model_inspector.weight_figures import weight_figures
from modelglass.errors import ForwardError, InputsError, MissingPackageError, TargetError, UsageError
from modelglass.options import Automatic, BuildOptions, RunOptions, as_automatic
from modelglass.page.units import shape_text
from modelglass.report import AUTOCAST, Json, Report, WhatIf
from modelglass.targets.config import Config
from modelglass.targets.paths import check_exists, is_checkpoint_file, is_config_path

BATCH_SIZE = 512  # as the document has it
OPTIMIZER = "adamw"
VOCABULARY = "tokenizer."  # what metadata about words begins with: no settings of the model

Progress = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is looked at, and how.

    `config` is a configuration, `checkpoint` a file or folder of weights; at least one of them is given. A
    `builder` makes the model from what they say. Without `inputs` they are found: by its
    configuration, or by trying. Without a `batch_size` it is 512 where that can be tried.
    """

    config: Path | None = None
    checkpoint: Path | None = None
    builder: Any = None
    model_key: str | None = None
    trust: bool = False
    inputs: Any = None
    batch_size: int | None = None
    optimizer: Any = OPTIMIZER
    stats: bool = True
    progress: Progress | None = None


def inspect_model(question: Question) -> Inspection:
    """Everything that can be known of the model; what cannot is there as a reason."""
    if question.config is None and question.checkpoint is None:
        raise UsageError("nothing to inspect", hint="give --config FILE, --checkpoint FILE, or both")
    _check_roles(question.config, question.checkpoint)
    if question.config is None and question.builder is None:
        if question.model_key is not None:
            raise UsageError(
                "model_key applies only to a configuration", hint="leave it out, or give --config"
            )
        if question.inputs is not None:
            raise UsageError(
                "a checkpoint alone cannot be run with inputs",
                hint="give --builder file.py::function or --config FILE, which say how to build its model",
            )
        return _of_checkpoint(question)
    return _of_built(question, _of_checkpoint(question))


def _of_built(question: Question, found: Inspection) -> Inspection:
    """What the model shows that code builds; where no inputs are given or found, its structure."""
    target, progress = _build_from(question), question.progress
    seen: list[BuiltModel] = []

    def look(built: BuiltModel) -> Inspection:
        seen.append(built)
        return _of_model(question, found, built)

    inputs = Automatic() if question.inputs is None else question.inputs
    try:
        return with_model(target, RunOptions(inputs=inputs), look, progress=progress)
    except (InputsError, UsageError) as error:
        if seen or as_automatic(inputs) is None:
            raise
        structure = with_model(target, RunOptions(), look, own_inputs=False, progress=progress)
        return _failed(structure, str(error), "flow", "memory")


def _check_roles(config: Path | None, checkpoint: Path | None) -> None:
    """Refuse a checkpoint that is given as a configuration, and the other way round."""
    if config is not None and is_checkpoint_file(config):
        raise UsageError(
            f"{str(config)!r} is a checkpoint. A configuration is needed here (config.json or YAML)",
            hint=f"give it as --checkpoint {config}",
        )
    if checkpoint is not None and checkpoint.exists() and is_config_path(checkpoint):
        raise UsageError(
            f"{str(checkpoint)!r} is a configuration; it has no weights",
            hint=f"give it as --config {checkpoint}",
        )


def _build_from(question: Question) -> Config:
    """The model of the configuration, or that the builder makes of what the checkpoint says."""
    path = question.config or question.checkpoint
    if path is None:
        raise UsageError("nothing to inspect", hint="give --config FILE, --checkpoint FILE, or both")
    check_exists(path)
    build = BuildOptions(builder=question.builder, model_key=question.model_key, trust=question.trust)
    return Config(path, build)


def _of_checkpoint(question: Question) -> Inspection:
    """What the checkpoint alone shows, if there is one."""
    path = question.checkpoint
    if path is None:
        return Inspection(name=None)
    unknown: dict[str, str] = {}
    try:
        report = api.inspect(path, stats=question.stats, progress=question.progress)
    except MissingPackageError as error:  # statistics are not worth failing for
        unknown["stats"] = error.problem
        report = api.inspect(path, progress=question.progress)
    return Inspection(
        name=_named_by(report),
        checkpoint=report,
        config=_settings_of(path, report),
        normalisation=lookup.normalisation_in(path, report),
        by_type=_by_type(report),
        nbytes_by_dtype=_nbytes_by_dtype(report),
        weights=weight_figures(report),
        unknown=unknown,
    )


def _by_type(report: Report) -> tuple[TypeCount, ...]:
    return () if report.counts is None else by_type(report.model, report.counts)


def _nbytes_by_dtype(report: Report) -> Mapping[str, int]:
    return {} if report.counts is None else nbytes_by_dtype(report.model, report.counts)


def _named_by(report: Report) -> str | None:
    """The class of the model as far as its files say: by the objects in them, or the configuration beside."""
    root = report.model.modules[0].type if report.model.modules else ""
    known = None if report.checkpoint is None else report.checkpoint.architecture
    said = None if known is None else known.name or known.model_type
    return root or said


def _settings_of(path: Path, report: Report) -> dict[str, Json]:
    """What a checkpoint says of its model's configuration, in itself or in a file beside it."""
    checkpoint = report.checkpoint
    if checkpoint is None:
        return {}
    found = {part.key: part.value for part in checkpoint.parts if part.kind == "hyper-parameters"}
    if len(found) == 1:
        found = {**alone} if isinstance(alone := next(iter(found.values())), dict) else found
    metadata = {
        key: value
        for key, value in checkpoint.metadata.items()
        if key != "format" and not key.startswith(VOCABULARY)
    }
    return {**(found or lookup.settings_beside(path)), **metadata}


def _of_model(question: Question, found: Inspection, built: BuiltModel) -> Inspection:
    """What the model itself shows, beside what the checkpoint told."""
    native, given = built.native, built.inputs
    report = api.inspect(
        native, given, symbols=given is not None, on_failure="report", progress=question.progress
    )
    built.check(report)
    report = replace(report, notes=(*built.notes, *report.notes))
    config = found.config if question.config is None else lookup.settings_of(question.config)
    found = replace(
        found,
        name=report.model.name,
        report=report,
        config=config,
        normalisation={
            **settings(config),
            **_normalisation(question, native, report),
            **found.normalisation,  # what was trained with, not what it begins with
        },
        by_type=_by_type(report),
        nbytes_by_dtype=_nbytes_by_dtype(report),
    )
    found = _match(found, native, report)
    if given is None:
        return found
    _, problem = _tried(lambda: report)
    if problem:
        return _failed(found, problem, "flow", "memory")
    return _with_memory(question, _with_flow(found, report), built)


def _normalisation(question: Question, native: Any, report: Report) -> dict[str, Json]:
    """How the model's data are scaled, in the values that it is built with if it is small."""
    found = lookup.normalisation_of(native, report)
    small = report.counts is not None and report.counts.nbytes <= REAL_NBYTES
    if None not in found.values() or not small:
        return found
    try:
        with _build_from(question).open(weightless=False) as built:
            return lookup.normalisation_of(built.native, report)
    except TargetError:  # it can be built without weights alone, as it was
        return found


def _match(found: Inspection, native: Any, report: Report) -> Inspection:
    """The tensors of the checkpoint, if there is one, against those of the model."""
    if found.checkpoint is None:
        return found
    matching, notes = lookup.match(native, report, found.checkpoint)
    failures = found.failures
    if matching.reshaped:
        first = matching.reshaped[0]
        more = len(matching.reshaped) - 1
        others = f", and {more:,} more tensors" if more else ""
        shapes = f"is {shape_text(first.shape)}, the checkpoint's {shape_text(first.stored_shape)}"
        problem = f"shape mismatch: the model's {first.name} {shapes}{others}"
        hint = "build the model with the settings that the checkpoint was trained with"
        failures = (*failures, f"{problem}\n  hint: {hint}")
    report = replace(report, notes=(*report.notes, *notes))
    return replace(found, report=report, matching=matching, failures=failures)


def _without(found: Inspection, why: str, *parts: str) -> Inspection:
    return replace(found, unknown={**found.unknown, **dict.fromkeys(parts, why)})


def _failed(found: Inspection, problem: str, *parts: str) -> Inspection:
    """Something raised: what was asked of it is unknown, and that is a failure."""
    told = replace(found, failures=(*found.failures, problem))
    return _without(told, problem.partition("\n")[0], *parts)


def _with_flow(found: Inspection, report: Report) -> Inspection:
    try:
        return replace(found, flow=api.flow(report))
    except UsageError as error:  # nothing was followed, as where a run is not observed operator by operator
        return _without(found, error.problem, "flow")


def _with_memory(question: Question, found: Inspection, built: BuiltModel) -> Inspection:
    """A training step with the batch, and the same in mixed precision."""

    def step(change: WhatIf) -> Report:
        options = {"optimizer": question.optimizer, "what_if": change, "progress": question.progress}
        with lookup.in_training(built.native):
            report = api.inspect(built.native, built.inputs, train=True, on_failure="report", **options)
        if question.batch_size is not None or change.batch_size is None:  # else the batch may be to blame
            built.check(report)
        return report

    change = WhatIf(batch_size=question.batch_size or BATCH_SIZE)
    trained, problem = _tried(lambda: step(change))
    if trained is None and question.batch_size is None:  # nobody asked for it in so many words
        change = WhatIf()
        found = replace(found, batch_problem=problem.partition("\n")[0])
        trained, problem = _tried(lambda: step(change))
    if trained is None:
        return _failed(found, problem, "memory")
    found = replace(
        found,
        trained=trained,
        estimate=estimate(trained),
        largest=() if trained.memory is None else largest_at_peak(trained.memory),
        mixed_dtype=AUTOCAST[0],
    )
    try:
        mixed, problem = _tried(lambda: step(replace(change, autocast=AUTOCAST[0])))
    except UsageError as error:  # the framework has no such thing
        mixed, problem = None, error.problem
    if mixed is None:
        return _without(found, problem.partition("\n")[0], "mixed")
    return replace(found, mixed=estimate(mixed))


def _tried(run: Callable[[], Report]) -> tuple[Report | None, str]:
    """A run that reached its end, or why it did not."""
    try:
        return api.require_complete(run()), ""
    except (ForwardError, InputsError) as error:
        return None, str(error)
