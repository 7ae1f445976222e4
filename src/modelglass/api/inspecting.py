"""Reports: of a live model, of code that builds one, of a file."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from modelglass import targets
from modelglass.api.building import UNFAKEABLE, config_path, is_built
from modelglass.api.making import (
    Recipe,
    Subject,
    change_of,
    check_no_config,
    chosen_optimizer,
    needing,
    silently,
    with_model,
)
from modelglass.api.serving import (
    built,
    check_agrees,
    check_alone,
    check_seen,
    check_unread,
    engine_of,
    is_served,
)
from modelglass.api.sizing import axes_for
from modelglass.api.varying import with_symbols
from modelglass.collector import without_gc
from modelglass.errors import ForwardError, TargetError, UnknownTargetError, UsageError
from modelglass.renderers._units import pace
from modelglass.report import OnFailure, Report, RunMode

if TYPE_CHECKING:
    from modelglass.formats.reading import Reading
    from modelglass.frameworks.request import Observation, Progress, Request
    from modelglass.report import Axes, Memory, Note, Scan, Serving, Tensor, Values, WhatIf


def inspect(
    target: Any,
    inputs: Any = None,
    *,
    input_shape: Sequence[Any] | None = None,
    batch_size: int = 1,
    dtype: Any = None,
    device: Any = None,
    run: RunMode = "fake",
    train: bool = False,
    optimizer: Any = None,
    loss: Callable[[Any], Any] | None = None,
    calibrate: bool = False,
    what_if: WhatIf | None = None,
    stats: bool | str = False,
    symbols: bool = False,
    limits: Mapping[str, int] | None = None,
    builder: Any = None,
    model_key: str | None = None,
    trust: bool = False,
    framework: str | None = None,
    serving: Serving | None = None,
    on_failure: OnFailure = "raise",
    progress: Progress | None = None,
) -> Report:
    """Everything about a model: a module, an engine, code that builds one ("file.py::function"), a
    checkpoint's path, or that of a configuration ("config.json", "model.yaml").

    `inputs` is a tensor, a tuple (positional), a dict (keyword), `Inputs`, or code that makes them; "auto"
    makes them from the model's own configuration, which is done without asking when the target is one. For
    an engine, a text is a prompt that it answers.
    `input_shape` with `batch_size` and `dtype` replaces them when a shape says it all. Without either, only
    the structure is read. `builder` is a function of a configuration, or code that names it, and `model_key`
    says which part of a configuration is the model ("a.b"). Of what a configuration names, only model classes
    of installed packages are built; `trust=True` runs whatever it names, also from its own folder.
    `run="fake"` computes nothing; `"real"` computes on copies; `"none"` does not run. `train=True` observes
    the backward pass too. `stats=True` reads every weight and describes it; a pattern such as "*.weight" says
    which. `symbols=True` runs with other sizes, to see which can change and what follows them. The model is
    left exactly as it was. Of a file, only the description of its tensors is read, and nothing in it is run;
    `limits` changes how much work it may cause.
    Where the model raises, a `ForwardError` is raised, whose `report` holds everything up to there;
    `on_failure="report"` returns that report instead.
    `framework="vllm"` builds a configuration as a rank of an engine would hold it, without an engine, and
    `serving` says how many ranks there are, which one is meant, and so on.

    >>> import torch
    >>> report = inspect(torch.nn.Linear(3, 8), inputs=torch.ones(5, 10, 3))
    >>> report.counts.params, report.cost.macs
    (32, 1200)
    """
    if run not in get_args(RunMode):
        raise UsageError(f"run={run!r} is not known", hint='use "fake", "real" or "none"')
    if on_failure not in get_args(OnFailure):
        raise UsageError(f"on_failure={on_failure!r} is not known", hint='use "raise" or "report"')
    finish = completed if on_failure == "raise" else unchanged
    if is_served(target, framework, serving):
        check_alone(inputs=inputs, input_shape=input_shape, dtype=dtype, device=device, train=train)
        check_alone(optimizer=optimizer, loss=loss, calibrate=calibrate, what_if=what_if, stats=stats)
        check_alone(symbols=symbols, limits=limits, builder=builder, model_key=model_key)
        check_alone(trust=trust or None)
        check_alone(**{'run="real"': run == "real"})
        return finish(report_of(built(target, serving, progress or silently), change_of(None)))
    runs = inputs is not None or input_shape is not None or train
    if _is_read(target, builder, runs, stats):
        path = _file_target(target, runs)
        check_unread(target, framework)
        check_no_config(builder, model_key)
        return _inspect_file(path, stats, limits, progress or silently)
    from modelglass.analyses.formulas import costs_nothing
    from modelglass.analyses.what_if import needs_run
    from modelglass.frameworks.request import Request, requested_inputs

    changed = change_of(what_if)

    def look(subject: Subject) -> Report:
        check_agrees(framework, subject.adapter)
        with subject.mode_for(train), chosen_optimizer(changed.optimizer or optimizer) as step:
            request = Request(
                inputs=requested_inputs(subject.inputs, input_shape, batch_size, dtype),
                mode=run,
                train=train,
                optimizer=step,
                loss=loss,
                calibrate=calibrate,
                what_if=needs_run(changed),
                device=None if device is None else str(device),
                progress=progress,
                is_free=costs_nothing,
            )
            _check_training(request)
            request = replace(request, axes=axes_for(subject, request, changed))
            with without_gc():
                report = report_of(subject.observe(request), changed, request.axes)
            report = replace(report, notes=(*subject.notes, *report.notes))
            if symbols:
                report = with_symbols(report, subject.adapter, subject.native, request)
        if stats:
            values = subject.adapter.values(subject.native)
            report = _with_stats(report, values, stats, progress or silently)
        return report

    recipe = Recipe(
        target=target,
        inputs=inputs,
        builder=builder,
        model_key=model_key,
        trust=trust,
        automatic=run != "none" and input_shape is None,
        progress=progress,
    )
    return finish(with_model(recipe, look, weightless=not stats and run != "real"))


def _is_read(target: Any, builder: Any, runs: bool, stats: bool | str) -> bool:
    """Whether the target is a file that is read, rather than a model, or something that makes one."""
    if is_built(target, builder=builder, runs=runs):
        if stats and builder is None:
            raise TargetError(
                f"{os.fspath(target)!r} says how a model is built, and holds no weights to describe",
                hint="pass the file with the weights, or code that loads them: file.py::function",
            )
        return False
    return isinstance(target, (str, os.PathLike)) and not targets.is_code_target(os.fspath(target))


def _check_training(request: Request) -> None:
    if request.train and not request.runs:
        raise UsageError(
            "a training step needs a run, and a run needs inputs",
            hint="give inputs or their shapes, and a run that is fake or real",
        )
    if request.optimizer is not None and not request.train:
        raise UsageError("an optimizer steps only in training", hint="add train=True, or leave it out")


def _file_target(target: str | os.PathLike[str], runs: bool) -> Path:
    """The path of a file that is to be read; code without a function, and files to be run, are errors."""
    name = os.fspath(target)
    if name.endswith(".py"):
        raise UnknownTargetError(
            f"{name!r} is Python code, and names no function in it", hint=f"name code: {targets.FORMS}"
        )
    if not os.path.lexists(name):
        raise TargetError(f"there is no file {name!r}", hint=targets.nearby(Path(target)))
    if runs:
        config_path(Path(target))
        raise UsageError(
            f"{name!r} is a file, which cannot be run with inputs",
            hint=f"name code that builds the model: {targets.FORMS}",
        )
    return Path(target)


def _inspect_file(path: Path, stats: bool | str, limits: Mapping[str, int] | None, tell: Progress) -> Report:
    from modelglass.checkpoints import inspect_file

    def with_stats(report: Report, reading: Reading) -> Report:
        with needing("numpy", "weight statistics", extra="stats"):
            from modelglass.formats.values import values
        return _with_stats(report, values(reading, report.model.tensors), stats, tell)

    return inspect_file(path, limits=limits, progress=tell, with_stats=with_stats if stats else None)


def inspect_calls(
    target: Any,
    inputs: Any,
    *,
    builder: Any = None,
    model_key: str | None = None,
    trust: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Structure and calls of a whole run, without operators and cost: at half the price of `inspect`."""
    from modelglass.analyses.counts import count
    from modelglass.frameworks.request import Request, requested_inputs

    def look(subject: Subject) -> Report:
        given = requested_inputs(subject.inputs, None, 1, None)
        found = subject.observe(Request(inputs=given, progress=progress, calls_only=True))
        check_seen(found)
        notes = (*subject.notes, *found.notes)
        return Report(model=found.model, run=found.run, counts=count(found.model), notes=notes)

    recipe = Recipe(
        target=target, inputs=inputs, builder=builder, model_key=model_key, trust=trust, progress=progress
    )
    return completed(with_model(recipe, look))


def report_of(observation: Observation, what_if: WhatIf, axes: Axes | None = None) -> Report:
    """What follows from an observation: counts, cost, memory, and remarks on them."""
    from modelglass.analyses.cost import cost, priced
    from modelglass.analyses.counts import count
    from modelglass.analyses.remarks import remarks, remarks_on_changes, remarks_on_memory

    lifetimes = observation.lifetimes
    model = priced(observation.model)
    counts = count(model)
    costs = None if observation.untold else cost(model, observation.run)
    memory = _memory(replace(observation, model=model), what_if, axes)
    return Report(
        model=model,
        run=observation.run,
        counts=counts,
        cost=costs,
        memory=memory,
        dataflow=observation.dataflow,
        engine=engine_of(observation),
        notes=(
            *observation.notes,
            *(note for note in remarks(counts, costs) if not _is_told(note, observation)),
            *(remarks_on_memory(lifetimes) if lifetimes is not None else ()),
            *remarks_on_changes(memory),
        ),
    )


def _is_told(note: Note, observation: Observation) -> bool:
    """Whether the adapter has said it better: an engine empties parameters, none of them is lazy."""
    return note.code == "uninitialised" and observation.engine is not None


def _sizes(observation: Observation, axes: Axes | None) -> tuple[int | None, int | None]:
    """The batch size and the sequence length that the inputs of a run show."""
    from modelglass.analyses.axes import find_axes, sizes_at

    run = observation.run
    if axes is None:
        axes, _ = find_axes((observation.model, run, observation.dataflow))
    return sizes_at(axes, run)


def _memory(observation: Observation, what_if: WhatIf, axes: Axes | None) -> Memory | None:
    """What the run took in memory, with the parts of a change that need no run of their own."""
    from modelglass.analyses.kv_cache import kv_cache
    from modelglass.analyses.what_if import memory_with, needs_run

    lifetimes = observation.lifetimes
    if lifetimes is None or not _stepped(observation):
        return None
    found = memory_with(lifetimes, what_if, observation.model, optimizer=observation.optimizer)
    batch_size, seq_len = _sizes(observation, axes)
    found = replace(found, batch_size=batch_size, seq_len=seq_len)
    cache, dtype = observation.kv_cache, needs_run(what_if).weights or observation.cache_dtype
    if cache is None and observation.config is not None and dtype is not None:
        cache = kv_cache(observation.config, dtype)
    return replace(found, kv_cache=cache)


def _stepped(observation: Observation) -> bool:
    """Whether the optimizer that was asked for took its step: without it the figures are not of a step."""
    lifetimes = observation.lifetimes
    return observation.optimizer is None or (
        lifetimes is not None and observation.optimizer in lifetimes.tails
    )


_LONGEST = 200  # characters of a value in a message: a prompt may be long
_VALUES = "what runs depends on values, which models on meta and inputs of another size do not have"


def completed(report: Report) -> Report:
    """The report of a run that reached its end; one that did not is an error here."""
    failure = report.run.failure
    if failure is None:
        return report
    from modelglass.renderers._escape import fitted
    from modelglass.renderers._totals import named_value
    from modelglass.renderers._units import source_text

    met = ", ".join(fitted(named_value(value), _LONGEST) for value in failure.inputs)
    given = f"{failure.op or 'it'} was given {met}" if met else "check the inputs"
    place = f"\n    {source_text(failure.source)}" if failure.source is not None else ""
    raise ForwardError(
        f"{failure.module or '(root)'} raised {failure.error}: {failure.message}{place}",
        hint=_VALUES if failure.error in UNFAKEABLE else given,
        report=report,
    )


def unchanged(report: Report) -> Report:
    """The report as it is, whether the run reached its end or not."""
    return report


def _with_stats(
    report: Report, values: Mapping[str, Values | str], wanted: bool | str, tell: Progress
) -> Report:
    with needing("numpy", "weight statistics", extra="stats"):
        from modelglass.analyses.stats.findings import findings
        from modelglass.analyses.stats.statistics import statistics
    begun = time.monotonic()

    def advance(done: int, total: int) -> None:
        tell(f"reading weights, {pace(done, total, time.monotonic() - begun)}")

    pattern = "*" if wanted is True else str(wanted)
    found = statistics(report.model, values, pattern=pattern, advance=advance)
    tell("drawing conclusions")
    notes = findings(report.model, found, values)
    return replace(report, stats=found, notes=(*report.notes, *notes))


def scan(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    limits: Mapping[str, int] | None = None,
    isolate: bool = True,
    progress: Progress | None = None,
) -> Scan:
    """What loading files would run, import or reach, and whether they keep to the rules of their format.

    Nothing in them is run. The answer is what was found in the bytes that were read, never that a file is
    harmless. `limits` changes how much work a file may cause. Files are read in a process of their own, which
    has so much time and memory for each of them; with `isolate=False` in this one, without those two bounds.
    """
    from modelglass.checkpoints import scan_files

    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    files = [Path(path) for path in given]
    return scan_files(files, limits=limits, progress=progress or silently, isolate=isolate)


def seeded() -> AbstractContextManager[None]:
    """The same random numbers each time inside; outside, random states are as if nothing had happened."""
    from modelglass import frameworks

    return frameworks.seeded()


def held(report: Report) -> Mapping[str, tuple[Tensor, ...]]:
    """By module, the tensors of it and of all it contains, as the framework itself would list them."""
    from modelglass.analyses.tree import held

    return held(report.model)


def contained(report: Report) -> Mapping[str, Sequence[tuple[str, str]]]:
    """By module, the names of what hangs below it, each with the path that it is known by."""
    from modelglass.analyses.tree import contents

    return contents(report.model)
