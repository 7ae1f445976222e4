"""Reports: of a live model, of code that builds one, of a file."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modelglass.api._inputs import NEEDS_VALUES, shown_inputs
from modelglass.api._models import BuiltModel, require_extra, with_model
from modelglass.errors import ForwardError, UsageError
from modelglass.gc_pause import paused_gc
from modelglass.options import (
    Automatic,
    BuildOptions,
    OnFailure,
    Progress,
    ReadOptions,
    RunOptions,
    as_needed,
    check_on_failure,
)
from modelglass.page.units import pace
from modelglass.report import Report
from modelglass.targets import Readable, Runnable, as_saved_report, resolve
from modelglass.targets.kind import report_nothing

if TYPE_CHECKING:
    from modelglass.api._found import FoundInputs
    from modelglass.formats.reading import Reading
    from modelglass.frameworks.shared.request import Request
    from modelglass.report import RunMode, Scan, Serving, Tensor, Values, WhatIf


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
    if on_failure != "raise":
        check_on_failure(on_failure)
    build = BuildOptions(
        builder=builder, model_key=model_key, trust=trust, framework=framework, serving=serving
    )
    asked = RunOptions(
        inputs=inputs,
        input_shape=input_shape,
        batch_size=batch_size,
        dtype=dtype,
        device=device,
        mode=run,
        train=train,
        optimizer=optimizer,
        loss=loss,
        calibrate=calibrate,
        what_if=what_if,
        symbols=symbols,
    )
    read = ReadOptions(stats=stats, limits=limits)
    found = resolve(target, build, asked, read)
    if isinstance(found, Readable):
        report = read_report(found, read, progress)
    else:
        if isinstance(inputs, Automatic) and (train or run == "real"):
            asked = replace(asked, inputs=as_needed(inputs))
        look = partial(report_on_model, run=asked, read=read, progress=progress)
        weightless = not read.stats and run != "real"
        report = with_model(found, asked, look, weightless=weightless, framework=framework, progress=progress)
    return report if on_failure == "report" else require_complete(report)


def inspect_run(target: Any, inputs: Any = None, **options: Any) -> Report:
    """The report of a run, for questions that need one; a report or its file is taken as it is.

    Where no inputs are given, they are made from the model's own configuration.
    """
    if (inputs is None or (isinstance(inputs, Automatic) and not inputs.given)) and not options.get(
        "input_shape"
    ):
        target = resolve_before(target, options, runs=True)
        saved = as_saved_report(target)
        if saved is not None:
            return saved
        inputs = as_needed(inputs)
    return inspect(target, inputs, **options)


def inspect_modules(target: Any, inputs: Any = None, **options: Any) -> Report:
    """The report of a target with its modules: a folder of weights is built from its configuration."""
    return inspect(resolve_before(target, options, runs=True), inputs, **options)


def inputs_of(
    target: Any,
    wanted: Automatic,
    *,
    run: RunMode = "fake",
    builder: Any = None,
    model_key: str | None = None,
    trust: bool = False,
    progress: Progress | None = None,
) -> FoundInputs:
    """What a target runs with where nothing else is asked: by its own configuration, or found by trying."""
    build = BuildOptions(builder=builder, model_key=model_key, trust=trust)
    asked = RunOptions(inputs=wanted)
    runnable = resolve(target, build, asked).to_run()

    with runnable.open(weightless=run != "real") as opened:
        return shown_inputs(opened, wanted, run, progress or report_nothing)


def resolve_before(target: Any, options: Mapping[str, Any], *, runs: bool = False) -> Readable | Runnable:
    """The kind of a target, for `inspect` with these options, which checks them."""
    names = options.keys() & {option.name for option in fields(BuildOptions) if option.init}
    return resolve(target, BuildOptions(**{name: options[name] for name in names}), runs=runs, check=False)


def read_report(target: Readable, read: ReadOptions, progress: Progress | None) -> Report:
    """The report of a target that gives it without a run."""
    return target.read(read, progress or report_nothing, _stats_of_file(read, progress))


def report_on_model(
    built: BuiltModel, run: RunOptions, read: ReadOptions, progress: Progress | None
) -> Report:
    """The report of a model that is open."""
    from modelglass.analyses.analyse import analyse

    with built.training(run) if run.train else nullcontext() as step:
        request = request_for(built, run, step, progress)
        if run.train and not request.runs:
            raise UsageError(
                "train=True needs inputs", hint="give inputs or their shapes, and a fake or real run"
            )
        if run.what_if is not None:
            from modelglass.api._axes import axes_for

            request = replace(request, axes=axes_for(built, request, run.what_if))
        found = built.adapter.observe(built.native, request)
        built.check(found)
        with paused_gc():
            report = analyse(found, run.what_if, request.axes)
        report = replace(report, notes=(*built.notes, *report.notes))
        if run.symbols:
            from modelglass.api._symbols import with_symbols

            report = with_symbols(report, built.adapter, built.native, request)
    if read.stats:
        report = _with_stats(
            report, built.adapter.values(built.native), read.stats, progress or report_nothing
        )
    return report


def request_for(
    built: BuiltModel, run: RunOptions, optimizer: Any, progress: Progress | None = None
) -> Request:
    """What an adapter is asked for a run with these options."""
    from modelglass.analyses.cost.formulas import costs_nothing
    from modelglass.analyses.memory.what_if import needs_run
    from modelglass.frameworks.shared.request import Request, parse_inputs
    from modelglass.report.fit import NOTHING

    return Request(
        inputs=parse_inputs(built.inputs, run.input_shape, run.batch_size, run.dtype),
        mode=run.mode,
        train=run.train,
        optimizer=optimizer,
        loss=run.loss,
        calibrate=run.calibrate,
        what_if=NOTHING if run.what_if is None else needs_run(run.what_if),
        device=None if run.device is None else str(run.device),
        progress=progress,
        is_free=costs_nothing,
    )


def _stats_of_file(read: ReadOptions, progress: Progress | None) -> Callable[[Report, Reading], Report]:
    """What adds statistics to the report of a file that is open."""

    def add(report: Report, reading: Reading) -> Report:
        with require_extra("numpy", "reading weights", extra="stats"):
            from modelglass.formats.tensors.values import values
        return _with_stats(
            report, values(reading, report.model.tensors), read.stats, progress or report_nothing
        )

    return add


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
    from modelglass.frameworks.shared.request import Detail

    build = BuildOptions(builder=builder, model_key=model_key, trust=trust)
    run = RunOptions(inputs=inputs)

    def look(built: BuiltModel) -> Report:
        request = replace(request_for(built, run, None, progress), detail=Detail.CALLS)
        found = built.observe(request)
        if found.engine is not None and not found.model.calls:
            raise UsageError(
                "vLLM does not expose calls of its modules",
                hint="pass the configuration, which transformers builds: its modules can be watched",
            )
        notes = (*built.notes, *found.notes)
        return Report(model=found.model, run=found.run, counts=count(found.model), notes=notes)

    runnable = resolve(target, build, run).to_run()
    return require_complete(with_model(runnable, run, look, progress=progress))


_LONGEST = 200  # characters of a value in a message: a prompt may be long
_VALUES = "what runs depends on values, which models on meta and inputs of another size do not have"


def require_complete(report: Report) -> Report:
    """The report of a run that reached its end; one that did not is an error here."""
    failure = report.run.failure
    if failure is None:
        return report
    from modelglass.page.sections.totals import named_value
    from modelglass.page.units import source_text
    from modelglass.renderers._escape import fitted

    met = ", ".join(fitted(named_value(value), _LONGEST) for value in failure.inputs)
    given = f"{failure.op or 'it'} was given {met}" if met else "check the inputs"
    place = f"\n    {source_text(failure.source)}" if failure.source is not None else ""
    raise ForwardError(
        f"{failure.module or '(root)'} raised {failure.error}: {failure.message}{place}",
        hint=_VALUES if failure.error in NEEDS_VALUES else given,
        report=report,
    )


def _with_stats(
    report: Report, values: Mapping[str, Values | str], wanted: bool | str, tell: Progress
) -> Report:
    with require_extra("numpy", "reading weights", extra="stats"):
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
    return scan_files(files, limits=limits, progress=progress or report_nothing, isolate=isolate)


def fixed_seed() -> AbstractContextManager[None]:
    """The same random numbers each time inside; outside, random states are as if nothing had happened."""
    from modelglass import frameworks

    return frameworks.seeded()


def tensors_by_module(report: Report) -> Mapping[str, tuple[Tensor, ...]]:
    """By module, the tensors of it and of all it contains, as the framework itself would list them."""
    from modelglass.analyses.tree import tensors_by_module

    return tensors_by_module(report.model)


def children_by_module(report: Report) -> Mapping[str, Sequence[tuple[str, str]]]:
    """By module, the names of what hangs below it, each with the path that it is known by."""
    from modelglass.analyses.tree import children_by_module

    return children_by_module(report.model)
