"""The public functions: they join the rooms and hold no logic of their own."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, get_args

from modelglass import targets
from modelglass.errors import (
    CannotReproduceError,
    ForwardError,
    InputsError,
    MissingPackageError,
    ReportFormatError,
    TargetError,
    UnknownTargetError,
    UsageError,
)
from modelglass.files import make_folder, remove_marked, write_together, write_whole
from modelglass.renderers._escape import printable
from modelglass.renderers._units import pace, value_text
from modelglass.renderers.columns import COLUMNS, known_columns
from modelglass.report import Report, RunMode

if TYPE_CHECKING:
    from modelglass.checkpoints import limits_of as checked_limits
    from modelglass.formats.reading import Reading
    from modelglass.frameworks.request import Observation, Progress, Request, TensorSpec
    from modelglass.renderers.unique import COLUMNS as UNIQUE_COLUMNS
    from modelglass.renderers.unique import SORTS as UNIQUE_SORTS
    from modelglass.renderers.unique import Choice as UniqueChoice
    from modelglass.renderers.weights import COLUMNS as STATS_COLUMNS
    from modelglass.renderers.weights import SORTS as STATS_SORTS
    from modelglass.report import (
        AUTOCAST,
        FINDINGS,
        WEIGHTS,
        Fit,
        Lifetimes,
        Memory,
        Reproducers,
        Run,
        Scan,
        Tensor,
        Unique,
        UniqueOp,
        Values,
        WhatIf,
    )

__all__ = [
    "AUTOCAST",
    "COLUMNS",
    "FINDINGS",
    "FIT_RENDERERS",
    "MEMORY_RENDERERS",
    "RENDERERS",
    "SCAN_RENDERERS",
    "STATS_COLUMNS",
    "STATS_RENDERERS",
    "STATS_SORTS",
    "UNIQUE_COLUMNS",
    "UNIQUE_RENDERERS",
    "UNIQUE_SORTS",
    "WEIGHTS",
    "ModelSummary",
    "TensorSpec",
    "UniqueChoice",
    "WhatIf",
    "checked_limits",
    "completed",
    "contained",
    "fit",
    "held",
    "inspect",
    "inspect_calls",
    "known_columns",
    "load",
    "plot",
    "plot_memory",
    "plotter",
    "printable",
    "render",
    "reproduce",
    "save",
    "scan",
    "seeded",
    "show",
    "summary",
    "timeline_plotter",
    "unique",
]

# What a step with another optimizer would take is looked at in the same run.
OTHER_OPTIMIZERS = ("sgd", "adamw", "adam8bit")
MADE_BY = "Made by modelglass"  # in every file that may be replaced without asking


def _deferred(module: str, name: str) -> Callable[..., str]:
    """A renderer that is imported when it is first called: a listing of a file must start at once."""
    return lambda *args, **options: getattr(import_module(f"modelglass.renderers.{module}"), name)(
        *args, **options
    )


RENDERERS = {name: _deferred(name, "render") for name in ("text", "json", "markdown")}
STATS_RENDERERS = {
    "text": _deferred("weights", "render"),
    "json": _deferred("json", "render"),
    "markdown": _deferred("weights", "render_markdown"),
}
UNIQUE_RENDERERS = {
    "text": _deferred("unique", "render"),
    "json": _deferred("unique", "render_json"),
    "csv": _deferred("unique", "render_csv"),
    "markdown": _deferred("unique", "render_markdown"),
}
MEMORY_RENDERERS = {
    "text": _deferred("memory", "render"),
    "json": _deferred("json", "render"),
    "markdown": _deferred("memory", "render_markdown"),
    "csv": _deferred("memory", "render_csv"),
}
FIT_RENDERERS = {
    "text": _deferred("fit", "render"),
    "json": _deferred("fit", "render_json"),
    "markdown": _deferred("fit", "render_markdown"),
}
SCAN_RENDERERS = {
    "text": _deferred("scan", "render"),
    "json": _deferred("scan", "render_json"),
    "markdown": _deferred("scan", "render_markdown"),
    "csv": _deferred("scan", "render_csv"),
    "sarif": _deferred("sarif", "render"),
}
_HOMES = {  # further names of other rooms, imported when they are asked for
    "FINDINGS": ("report", "FINDINGS"),
    "checked_limits": ("checkpoints", "limits_of"),
    "STATS_COLUMNS": ("renderers.weights", "COLUMNS"),
    "STATS_SORTS": ("renderers.weights", "SORTS"),
    "TensorSpec": ("frameworks.request", "TensorSpec"),
    "UNIQUE_COLUMNS": ("renderers.unique", "COLUMNS"),
    "UNIQUE_SORTS": ("renderers.unique", "SORTS"),
    "UniqueChoice": ("renderers.unique", "Choice"),
    "AUTOCAST": ("report", "AUTOCAST"),
    "WEIGHTS": ("report", "WEIGHTS"),
    "WhatIf": ("report", "WhatIf"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'modelglass.api' has no attribute {name!r}")
    module, home_name = _HOMES[name]
    return getattr(import_module(f"modelglass.{module}"), home_name)


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
    limits: Mapping[str, int] | None = None,
    progress: Progress | None = None,
) -> Report:
    """Everything about a model: a module, code that builds one ("file.py::function"), or a checkpoint's path.

    `inputs` is a tensor, a tuple (positional), a dict (keyword), `Inputs`, or code that makes them.
    `input_shape` with `batch_size` and `dtype` replaces them when a shape says it all. Without either, only
    the structure is read. `run="fake"` computes nothing; `"real"` computes on copies; `"none"` does not run.
    `train=True` observes the backward pass too. `stats=True` reads every weight and describes it; a pattern
    such as "*.weight" says which. The model is left exactly as it was. Of a file, only the description of its
    tensors is read, and nothing in it is run; `limits` changes how much work it may cause.

    >>> import torch
    >>> report = inspect(torch.nn.Linear(3, 8), inputs=torch.ones(5, 10, 3))
    >>> report.counts.params, report.cost.macs
    (32, 1200)
    """
    if run not in get_args(RunMode):
        raise UsageError(f"run={run!r} is not known", hint='use "fake", "real" or "none"')
    if isinstance(target, (str, os.PathLike)) and not targets.is_code_target(os.fspath(target)):
        runs = inputs is not None or input_shape is not None or train
        return _inspect_file(_file_target(target, runs), stats, limits, progress or _silently)
    from modelglass.analyses.formulas import costs_nothing
    from modelglass.analyses.what_if import needs_run
    from modelglass.frameworks.request import Request, requested_inputs

    changed = _change(what_if)
    with (
        _made(target, inputs, progress) as (native, given),
        _optimizer(changed.optimizer or optimizer) as step,
    ):
        request = Request(
            inputs=requested_inputs(given, input_shape, batch_size, dtype),
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
        adapter = _adapter(native, target)
        report = _report(adapter.observe(native, request), changed)
        if stats:
            report = _with_stats(report, adapter.values(native), stats, progress or _silently)
    return report


def _check_training(request: Request) -> None:
    if request.train and not request.runs:
        raise UsageError(
            "a training step needs a run, and a run needs inputs",
            hint="give inputs or their shapes, and a run that is fake or real",
        )
    if request.optimizer is not None and not request.train:
        raise UsageError("an optimizer steps only in training", hint="add train=True, or leave it out")


@contextmanager
def _optimizer(given: Any) -> Iterator[Any]:
    """The optimizer as an adapter takes it: code that the user names is loaded, not called."""
    if isinstance(given, str) and ":" in given:
        with targets.naming(given) as factory:
            yield factory
    else:
        yield given


def fit(
    target: Any,
    inputs: Any = None,
    *,
    device_nbytes: int,
    input_shape: Sequence[Any] | None = None,
    batch_size: int = 1,
    dtype: Any = None,
    device: Any = None,
    train: bool = False,
    optimizer: Any = "adamw",
    loss: Callable[[Any], Any] | None = None,
    calibrate: bool = False,
    what_if: WhatIf | None = None,
    options: bool = True,
    progress: Progress | None = None,
) -> Fit:
    """Whether a pass or, with `train=True`, a training step fits into so many bytes.

    The answer has the largest batch and sequence that fit, found by running on fake tensors, and what else
    would make it fit when it does not. `what_if` is a change that all of it is about.

    >>> import torch
    >>> found = fit(torch.nn.Linear(1024, 1024), torch.ones(1, 1024), device_nbytes=8 * 2**20)
    >>> found.fits, found.largest_batch
    (True, 511)
    """
    from modelglass.analyses.remarks import remarks_on_memory
    from modelglass.frameworks.request import Request, requested_inputs
    from modelglass.planning import Planner

    _check_size(device_nbytes)
    base = _change(what_if)
    wanted = (base.optimizer or optimizer) if train else None
    with _made(target, inputs, progress) as (native, given), _optimizer(wanted) as step:
        request = Request(
            inputs=requested_inputs(given, input_shape, batch_size, dtype),
            train=train,
            optimizer=step,
            other_optimizers=OTHER_OPTIMIZERS if step is not None else (),
            loss=loss,
            calibrate=calibrate,
            device=None if device is None else str(device),
            progress=progress,
            memory_only=True,
        )
        if not request.runs:
            raise UsageError("whether a model fits depends on its inputs", hint="give inputs or their shapes")
        adapter = _adapter(native, target)
        first = _observed(adapter, native, request)
        _check_stepped(first)
        batch, seq_len = adapter.sizes(native, request)
        planner = Planner(
            _observer(adapter, native, request, first),
            first.model,
            train=train,
            optimizer=first.optimizer,
            batch_size=batch,
            seq_len=seq_len,
            progress=progress,
        )
        found = planner.fit(device_nbytes, base=replace(base, optimizer=None), options=options)
        return replace(found, notes=(*first.notes, *remarks_on_memory(_lifetimes(first))))


def _observer(
    adapter: ModuleType, native: Any, request: Request, first: Observation
) -> Callable[[WhatIf], Lifetimes]:
    """How to run with a change; `first` is the run without one.

    Equal blocks are worked out from few of them where that gives all that the whole run gave.
    """
    from modelglass.analyses.blocks import placed

    folds = adapter.folded(native, request, placed) == first.lifetimes

    def observe(changed: WhatIf) -> Lifetimes:
        if changed == request.what_if:
            return _lifetimes(first)
        asked = replace(request, what_if=changed)
        found: Lifetimes | None = adapter.folded(native, asked, placed) if folds else None
        return found or _lifetimes(_observed(adapter, native, asked))

    return observe


def _change(what_if: Any) -> WhatIf:
    from modelglass.report import WhatIf

    if what_if is not None and not isinstance(what_if, WhatIf):
        raise UsageError(f"what_if={what_if!r} is no change", hint="write mg.WhatIf(batch_size=8)")
    return what_if or WhatIf()


def _check_size(device_nbytes: Any) -> None:
    if type(device_nbytes) is not int or device_nbytes < 1:
        raise UsageError(f"device_nbytes={device_nbytes!r} is no size", hint="give bytes: 24 * 2**30")


def _check_stepped(observation: Observation) -> None:
    """That the step of the optimizer is there, or why it is not."""
    if observation.optimizer is not None and observation.optimizer not in _lifetimes(observation).tails:
        codes = ("optimizer-failed", "nothing-trains")
        reasons = [note.text for note in observation.notes if note.code in codes]
        raise UsageError(
            reasons[0] if reasons else f"{observation.optimizer} took no step",
            hint="choose another optimizer, or none: forward and backward alone",
        )


def _observed(adapter: ModuleType, native: Any, request: Request) -> Observation:
    """A run that reached its end."""
    observation: Observation = adapter.observe(native, request)
    _check_completed(observation.run)
    return observation


def _lifetimes(observation: Observation) -> Lifetimes:
    assert observation.lifetimes is not None  # it reached its end
    return observation.lifetimes


def _file_target(target: str | os.PathLike[str], runs: bool) -> Path:
    """The path of a file that is to be read; code without a function, and files to be run, are errors."""
    name = os.fspath(target)
    if name.endswith(".py"):
        raise UnknownTargetError(
            f"{name!r} is Python code, and names no function in it", hint=f"name code: {targets.FORMS}"
        )
    if runs:
        raise UsageError(
            f"{name!r} is a file, which cannot be run with inputs",
            hint=f"name code that builds the model: {targets.FORMS}",
        )
    return Path(target)


def _inspect_file(path: Path, stats: bool | str, limits: Mapping[str, int] | None, tell: Progress) -> Report:
    from modelglass.checkpoints import inspect_file

    if not os.path.lexists(path):
        raise TargetError(f"there is no file {str(path)!r}", hint=targets.nearby(path))

    def with_stats(report: Report, reading: Reading) -> Report:
        with _needing("numpy", "weight statistics", extra="stats"):
            from modelglass.formats.values import values
        return _with_stats(report, values(reading), stats, tell)

    return inspect_file(path, limits=limits, progress=tell, with_stats=with_stats if stats else None)


def scan(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    limits: Mapping[str, int] | None = None,
    progress: Progress | None = None,
) -> Scan:
    """What loading files would run, import or reach, and whether they keep to the rules of their format.

    Nothing in them is run. The answer is what was found in the bytes that were read, never that a file is
    harmless. `limits` changes how much work a file may cause.
    """
    from modelglass.checkpoints import scan_files

    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    return scan_files([Path(path) for path in given], limits=limits, progress=progress or _silently)


def inspect_calls(target: Any, inputs: Any, *, progress: Progress | None = None) -> Report:
    """Structure and calls, without operators and cost: at half the price of `inspect`."""
    from modelglass.analyses.counts import count
    from modelglass.frameworks.request import Request, requested_inputs

    with _made(target, inputs, progress) as (native, given):
        request = Request(inputs=requested_inputs(given, None, 1, None), progress=progress, calls_only=True)
        observed = _adapter(native, target).observe(native, request)
    counts = count(observed.model)
    return Report(model=observed.model, run=observed.run, counts=counts, notes=observed.notes)


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


def _silently(text: str) -> None:
    """Nobody wants to hear of progress."""


@contextmanager
def _made(target: Any, inputs: Any, progress: Progress | None) -> Iterator[tuple[Any, Any]]:
    """The model and its inputs, by the code that makes them where that is what was given."""
    tell = progress or _silently
    with ExitStack() as stack:
        native, given = target, inputs
        if isinstance(target, (str, os.PathLike)) or targets.is_maker(target):
            tell("loading and building the model")
            native = _maker_result(target if targets.is_maker(target) else os.fspath(target), stack)
        if isinstance(inputs, str) or targets.is_maker(inputs):
            tell("making the inputs")
            given = _maker_result(inputs, stack)
            if given is None:
                raise InputsError(f"{inputs!r} gave None", hint="return a tensor, a tuple or a dict")
        tell("observing the model")
        yield native, given


def _maker_result(maker: Any, stack: ExitStack) -> Any:
    """What a function returns, given or named; what a named one imported is forgotten with the stack."""
    return stack.enter_context(targets.calling(maker)) if isinstance(maker, str) else targets.called(maker)


def _adapter(native: Any, target: Any) -> ModuleType:
    from modelglass import frameworks

    framework = frameworks.framework_of(native)
    adapter = None if framework is None else frameworks.adapter(framework)
    if adapter is None or not adapter.accepts(native):
        found = f"{type(native).__module__}.{type(native).__qualname__}"
        asked = f"{target!r} gave" if isinstance(target, str) else "this is"
        raise UnknownTargetError(
            f"{asked} a {found}, which is no model modelglass knows",
            hint="pass a torch.nn.Module, or a function that returns one",
        )
    return adapter


def _report(observation: Observation, what_if: WhatIf) -> Report:
    from modelglass.analyses.cost import cost, priced
    from modelglass.analyses.counts import count
    from modelglass.analyses.remarks import remarks, remarks_on_memory

    lifetimes = observation.lifetimes
    model = priced(observation.model)
    counts = count(model)
    costs = cost(model)
    return Report(
        model=model,
        run=observation.run,
        counts=counts,
        cost=costs,
        memory=_memory(observation, what_if),
        notes=(
            *observation.notes,
            *remarks(counts, costs),
            *(remarks_on_memory(lifetimes) if lifetimes is not None else ()),
        ),
    )


def _memory(observation: Observation, what_if: WhatIf) -> Memory | None:
    """What the run took in memory, with the parts of a change that need no run of their own."""
    from modelglass.analyses.kv_cache import kv_cache
    from modelglass.analyses.what_if import memory_with, needs_run

    lifetimes = observation.lifetimes
    if lifetimes is None:
        return None
    found = memory_with(lifetimes, what_if, observation.model, optimizer=observation.optimizer)
    cache, dtype = observation.kv_cache, needs_run(what_if).weights or observation.cache_dtype
    if cache is None and observation.config is not None and dtype is not None:
        cache = kv_cache(observation.config, dtype)
    return replace(found, kv_cache=cache)


def completed(report: Report) -> Report:
    """The report of a run that reached its end; one that did not is an error here."""
    _check_completed(report.run)
    return report


# What fake tensors raise where only values could tell; inputs of another size have none.
_UNFAKEABLE = ("DataDependentOutputException", "DynamicOutputShapeException", "UnsupportedOperatorException")
_VALUES = "what runs depends on values, which models on meta and inputs of another size do not have"


def _check_completed(run: Run) -> None:
    failure = run.failure
    if failure is not None:
        where = failure.module or "(root)"
        met = ", ".join(f"{value.name} {value_text(value)}" for value in failure.inputs)
        given = f"it was given {met}" if met else "check the inputs"
        raise ForwardError(
            f"{where} raised {failure.error}: {failure.message}",
            hint=_VALUES if failure.error in _UNFAKEABLE else given,
        )


def unique(report: Report) -> Unique:
    """The distinct modules and operators of a model, each with the places where it is.

    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 4))
    >>> [(each.paths, each.count) for each in unique(inspect(model, inputs=torch.ones(2, 4))).modules]
    [(('',), 1), (('0', '2'), 2), (('1',), 1)]
    """
    from modelglass.analyses.unique import unique

    if report.checkpoint is not None and not any(module.type for module in report.model.modules):
        raise UnknownTargetError(
            f"{report.model.name!r} does not say what its modules are, so none can be told apart",
            hint=f"name code that builds the model: {targets.FORMS}",
        )
    return unique(report.model)


def reproduce(report: Report, folder: str | os.PathLike[str]) -> Reproducers:
    """Write a Python file for each distinct operator that runs it alone, with its shapes and attributes.

    Files of an earlier run in that folder are replaced; whatever else is in it stays.
    """
    from modelglass import frameworks
    from modelglass.renderers.records import short_name
    from modelglass.report import Reproducers

    adapter = frameworks.adapter(report.model.source)
    sources: dict[str, str] = {}
    missing: dict[str, str] = {}
    for each in unique(report).ops:
        op = report.model.ops[each.ops[0]]
        name = f"{each.id}_{short_name(op)}.py"
        try:
            sources[name] = adapter.reproducer(op, file=name, details=_found(report, each))
        except CannotReproduceError as reason:
            missing[each.id] = reason.problem
    target = Path(folder)
    make_folder(target)
    remove_marked(target, "op_*.py", MADE_BY)
    write_together({target / name: source for name, source in sources.items()})
    return Reproducers(files=tuple(sources), missing=missing)


def _found(report: Report, each: UniqueOp) -> str:
    """Where a distinct operator ran, how often, and at what cost."""
    op = report.model.ops[each.ops[0]]
    times = "once" if each.count == 1 else f"{each.count:,} times, at first"
    macs = "" if each.macs is None else f": {each.macs:,} MACs a time"
    ran = f"{report.model.name} ran it {times} in {op.module or '(root)'}{macs}."
    return f"{printable(ran)}\n{MADE_BY}; the values are made up."


def _with_stats(
    report: Report, values: Mapping[str, Values | str], wanted: bool | str, tell: Progress
) -> Report:
    with _needing("numpy", "weight statistics", extra="stats"):
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


def render(report: Report | Scan | Fit, format: str = "text", **options: Any) -> str:
    """The report as "text", "json" or "markdown", or its "memory" as text; a scan as "csv" and "sarif", too.

    >>> import torch
    >>> print(render(inspect(torch.nn.Linear(3, 8)), "text", width=60).splitlines()[2])
    (root)  Linear      32  100.0 %
    """
    renderers = {**_renderers_of(report)}
    if isinstance(report, Report) and report.memory is not None:
        renderers["memory"] = MEMORY_RENDERERS["text"]
    renderer = renderers.get(format)
    if renderer is None:
        raise UsageError(f"there is no format {format!r}", hint="formats are " + ", ".join(renderers))
    return renderer(report, **options)


def _renderers_of(result: Any) -> Mapping[str, Callable[..., str]]:
    from modelglass.report import Fit, Scan

    if isinstance(result, Report):
        return RENDERERS
    if isinstance(result, Fit):
        return FIT_RENDERERS
    if isinstance(result, Scan):
        return SCAN_RENDERERS
    raise UsageError(
        f"this is a {type(result).__name__}, not a report",
        hint="render what mg.inspect, mg.fit or mg.scan returns",
    )


def show(report: Report | Scan | Fit, **options: Any) -> None:
    """Print the report as text, coloured and as wide as the terminal."""
    terminal = sys.stdout.isatty()
    defaults = {"width": _terminal_width() if terminal else 100, "color": terminal}
    sys.stdout.write(render(report, "text", **{**defaults, **options}))


def _terminal_width() -> int:
    return max(40, os.get_terminal_size(sys.stdout.fileno()).columns)


def plot(report: Report, path: str | os.PathLike[str]) -> None:
    """Draw the weights' distributions from a report with statistics: SVG or PDF by the suffix, else PNG."""
    plotter(path)(report)


def plot_memory(report: Report, path: str | os.PathLike[str]) -> None:
    """Draw what a run holds in memory, kernel by kernel: SVG or PDF by the suffix, else PNG."""
    timeline_plotter(path)(report)


def timeline_plotter(path: str | os.PathLike[str]) -> Callable[[Report], None]:
    """How to draw memory over a run to that file; what stands in the way is found now."""
    with _needing("matplotlib", "drawing", extra="plots"):
        from modelglass.renderers import timeline
    return _plotter(timeline, path)


def plotter(path: str | os.PathLike[str]) -> Callable[[Report], None]:
    """How to draw a report to that file; what stands in the way is found now, not after weights are read."""
    with _needing("matplotlib", "drawing", extra="plots"):
        from modelglass.renderers import plots
    return _plotter(plots, path)


def _plotter(renderer: ModuleType, path: str | os.PathLike[str]) -> Callable[[Report], None]:
    target = Path(path)
    format = renderer.known_format(target.suffix.removeprefix(".").lower() or "png")
    if not target.parent.is_dir():
        raise UsageError(f"cannot write {str(target)!r}: there is no such folder", hint="choose another file")
    return lambda report: write_whole(target, renderer.render(report, format=format))


@contextmanager
def _needing(package: str, wanted_by: str, *, extra: str) -> Iterator[None]:
    """A missing package is one sentence that says what to install."""
    try:
        yield
    except ModuleNotFoundError as cause:
        if (cause.name or "").partition(".")[0] != package:
            raise
        raise MissingPackageError(package, wanted_by=wanted_by, extra=extra) from cause


def save(report: Report, path: str | os.PathLike[str]) -> None:
    """Write the report as JSON; the file is complete or not there."""
    from modelglass.report.codec import dumps

    if not isinstance(report, Report):
        raise UsageError(
            f"this is a {type(report).__name__}, not a report", hint='mg.render(scan, "json") gives the JSON'
        )
    write_whole(Path(path), dumps(report))


def load(path: str | os.PathLike[str]) -> Report:
    """Read a report that `save` wrote, equal to the one saved."""
    try:
        content = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as cause:
        raise ReportFormatError(
            f"{os.fspath(path)!r} cannot be read: {cause}", hint="pass a file that mg.save wrote"
        ) from cause
    from modelglass.report.codec import loads

    return loads(content)


class ModelSummary(str):
    """The text of a summary, with the report it was made from."""

    report: Report

    def __new__(cls, text: str, report: Report) -> ModelSummary:
        made = super().__new__(cls, text)
        made.report = report
        return made


def summary(
    model: Any,
    input_shape: Any = None,
    batch_size: int = 1,
    device: Any = None,
    verbose: int = 1,
) -> ModelSummary:
    """The classic layer table as text. `input_shape` has no batch dimension, or is a sample input itself.

    `verbose` 0 gives the totals, 1 every layer, 2 every weight and bias too.

    >>> import torch
    >>> "Total params: 55" in summary(torch.nn.Linear(10, 5))
    True
    """
    from modelglass.analyses.outputs import layer_outputs_nbytes
    from modelglass.frameworks.request import is_shape
    from modelglass.renderers.summary import render as classic

    if input_shape is None or is_shape(input_shape):
        report = inspect(model, input_shape=input_shape, batch_size=batch_size, device=device)
    else:
        report = inspect(model, input_shape)
    outputs = layer_outputs_nbytes(report.model)
    return ModelSummary(classic(report, outputs_nbytes=outputs, verbose=verbose), report)
