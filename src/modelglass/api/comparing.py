"""Two models side by side: a port beside its original, a checkpoint beside the model that would load it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from modelglass import targets
from modelglass.api.building import is_built
from modelglass.api.inspecting import completed, inspect
from modelglass.api.making import Recipe, Subject, with_model
from modelglass.api.serving import ENGINES, check_there, is_served
from modelglass.api.showing import load
from modelglass.collector import without_gc
from modelglass.errors import ForwardError, InputsError, UnknownTargetError, UsageError
from modelglass.report import Report

if TYPE_CHECKING:
    from modelglass.frameworks.request import Progress
    from modelglass.report import Comparison, Serving

_REPORT, _COMPARISON = b'"modelglass-report"', b'"modelglass-comparison"'
_HEAD = 256  # bytes of a file, in which a saved report says what it is

_Side = tuple[Report, frozenset[str] | None]  # with the buffers that its checkpoints do not have, if known


def compare_structure(
    a: Any,
    b: Any = None,
    *,
    inputs: Any = None,
    inputs_a: Any = None,
    inputs_b: Any = None,
    framework_a: str | None = None,
    framework_b: str | None = None,
    serving: Serving | None = None,
    trust: bool = False,
    progress: Progress | None = None,
) -> Comparison:
    """Which parts of two models are each other's counterparts, and where they differ.

    Each is a module of any framework, an engine, code that builds one ("file.py::function"), a configuration,
    a checkpoint, a saved report or a report. Frameworks' own ways are understood: layouts of convolutions,
    biases that are kept as their sum, statistics that are buffers here and parameters there, weights that are
    joined, stacked or packed. With inputs, both run, and what their modules give is compared, too; `inputs_a`
    and `inputs_b` are for models that take them in different shapes.

    `framework_a` and `framework_b` say what a configuration is built with: "vllm" builds it as an engine
    would, and `serving` says for how many ranks; the tensors of one rank are compared as those of the whole
    model. Without `b`, the configuration is compared with itself, built with two frameworks. `trust=True`
    runs whatever a configuration names.

    >>> import torch
    >>> a = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    >>> b = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2, bias=False))
    >>> found = compare_structure(a, b)
    >>> found.same, [(pair.a, pair.deviations[0].code) for pair in found.differing]
    (False, [('2', 'bias')])
    """
    from modelglass.analyses.comparison import compare

    if b is None:
        b = _again(a, framework_a, framework_b)
    _check_serving(serving, framework_a, framework_b)
    for target, framework in ((a, framework_a), (b, framework_b)):
        if not _holds_report(target):
            check_there(target, framework)
    given_a, given_b = (inputs if own is None else own for own in (inputs_a, inputs_b))
    with _called("a", shared=inputs_a is None and inputs is not None):
        one, unsaved_a = _side(_Asked(a, given_a, framework_a, serving, trust), progress)
    with _called("b", shared=inputs_b is None and inputs is not None):
        other, unsaved_b = _side(_Asked(b, given_b, framework_b, serving, trust), progress)
    with without_gc():
        return compare(
            one.model,
            other.model,
            unsaved_a=unsaved_a,
            unsaved_b=unsaved_b,
            checkpoint_a=one.checkpoint,
            checkpoint_b=other.checkpoint,
            engine_a=one.engine,
            engine_b=other.engine,
        )


class _Asked(NamedTuple):
    """One of the two, and how it is to be looked at."""

    target: Any
    inputs: Any
    framework: str | None
    serving: Serving | None
    trust: bool


def _again(a: Any, framework_a: str | None, framework_b: str | None) -> Any:
    """What is compared with itself."""
    if framework_a == framework_b:
        raise UsageError(
            "there is nothing to compare it with",
            hint='give a second model, or framework_b="vllm" (--framework-b vllm) for the same '
            "configuration as vLLM builds it",
        )
    return a


def _check_serving(serving: Serving | None, *built: str | None) -> None:
    if serving is not None and ENGINES not in built:
        raise UsageError(
            "how a model would be served is for a configuration that vLLM builds",
            hint='say of which one: framework_a="vllm" or framework_b="vllm"',
        )


@contextmanager
def _called(side: str, *, shared: bool) -> Iterator[None]:
    """Say which of the two could not be run, and that each may have inputs of its own."""
    try:
        yield
    except (ForwardError, InputsError) as cause:
        own = "each may have inputs of its own: inputs_a and inputs_b, --input-a and --input-b"
        hint = f"{cause.hint}; {own}" if shared else cause.hint
        raise type(cause)(f"of the two, {side} failed: {cause.problem}", hint=hint) from cause


def _side(asked: _Asked, progress: Progress | None) -> _Side:
    """What is known of one of the two."""
    target, inputs, framework = asked.target, asked.inputs, asked.framework
    if isinstance(target, Report):
        _refuse_inputs(inputs, "this is a report", "give the model that it is of")
        return _of_framework(target, framework), None
    if isinstance(target, (str, os.PathLike)) and _holds(Path(target), _COMPARISON):
        text = f"{os.fspath(target)!r} is a comparison of two models, and no model"
        raise UnknownTargetError(text, hint="compare models; mg.load reads a comparison back")
    if _holds_report(target):
        name = repr(os.fspath(target))
        _refuse_inputs(inputs, f"{name} is a report", "give the model that it is of")
        return _of_framework(load(target, Report), framework), None
    if is_served(target, framework, None):
        _refuse_inputs(inputs, "this is built as an engine would", "leave the framework out")
        return inspect(target, framework=framework, serving=asked.serving, progress=progress), None
    if _is_file(target):
        if os.path.lexists(target):
            hint = "give its config.json, or code that builds the model (file.py::function)"
            _refuse_inputs(inputs, f"{os.fspath(target)!r} is a checkpoint", hint)
        return inspect(target, framework=framework, progress=progress), None

    def look(subject: Subject) -> _Side:
        report = inspect(
            subject.native, subject.inputs, framework=framework, on_failure="report", progress=progress
        )
        subject.check(report)
        unsaved = subject.adapter.unsaved(subject.native) if report.engine is None else None
        return completed(report), unsaved

    recipe = Recipe(target=target, inputs=inputs, trust=asked.trust, automatic=False, progress=progress)
    return with_model(recipe, look)


def _of_framework(report: Report, framework: str | None) -> Report:
    """A report, if it is of the framework that was asked for."""
    found = report.model.source
    if framework not in (None, found):
        raise UsageError(
            f"this is a report of a model of {found}, not of {framework}",
            hint="leave the framework out, or give what the report is of",
        )
    return report


def _holds_report(target: Any) -> bool:
    return isinstance(target, (str, os.PathLike)) and _holds(Path(target), _REPORT)


def _refuse_inputs(inputs: Any, what: str, hint: str) -> None:
    if inputs is not None:
        raise UsageError(
            f"{what}, which is compared as it is and cannot be called with inputs",
            hint=f"leave inputs out; to compare runs, {hint}",
        )


def _is_file(target: Any) -> bool:
    """Whether a target is a file that is read, rather than something that makes a model."""
    if not isinstance(target, (str, os.PathLike)) or is_built(target):
        return False
    return not targets.is_code_target(os.fspath(target))


def _holds(path: Path, format: bytes) -> bool:
    """Whether a file is JSON of modelglass in that format."""
    if path.suffix != ".json" or not os.path.isfile(path):
        return False
    with path.open("rb") as file:
        return format in file.read(_HEAD)
