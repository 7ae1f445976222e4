"""Two models side by side: a port beside its original, a checkpoint beside the model that would load it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modelglass import targets
from modelglass.api.building import is_built
from modelglass.api.inspecting import completed, inspect
from modelglass.api.making import Recipe, Subject, with_model
from modelglass.api.showing import load
from modelglass.errors import ForwardError, InputsError, UnknownTargetError, UsageError
from modelglass.report import Report

if TYPE_CHECKING:
    from modelglass.frameworks.request import Progress
    from modelglass.report import Comparison

_REPORT, _COMPARISON = b'"modelglass-report"', b'"modelglass-comparison"'
_HEAD = 256  # bytes of a file, in which a saved report says what it is

_Side = tuple[Report, frozenset[str] | None]  # with the buffers that its checkpoints do not have, if known


def compare_structure(
    a: Any,
    b: Any,
    *,
    inputs: Any = None,
    inputs_a: Any = None,
    inputs_b: Any = None,
    progress: Progress | None = None,
) -> Comparison:
    """Which parts of two models are each other's counterparts, and where they differ.

    Each is a module of any framework, code that builds one ("file.py::function"), a configuration, a
    checkpoint, a saved report or a report. Frameworks' own ways are understood: layouts of convolutions,
    biases that are kept as their sum, statistics that are buffers here and parameters there, weights that are
    joined, stacked or packed. With inputs, both run, and what their modules give is compared, too; `inputs_a`
    and `inputs_b` are for models that take them in different shapes.

    >>> import torch
    >>> a = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    >>> b = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2, bias=False))
    >>> found = compare_structure(a, b)
    >>> found.same, [(pair.a, pair.deviations[0].code) for pair in found.differing]
    (False, [('2', 'bias')])
    """
    from modelglass.analyses.comparison import compare

    given_a, given_b = (inputs if own is None else own for own in (inputs_a, inputs_b))
    with _called("a", shared=inputs_a is None and inputs is not None):
        one, unsaved_a = _side(a, given_a, progress)
    with _called("b", shared=inputs_b is None and inputs is not None):
        other, unsaved_b = _side(b, given_b, progress)
    return compare(
        one.model,
        other.model,
        unsaved_a=unsaved_a,
        unsaved_b=unsaved_b,
        checkpoint_a=one.checkpoint,
        checkpoint_b=other.checkpoint,
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


def _side(target: Any, inputs: Any, progress: Progress | None) -> _Side:
    """What is known of one of the two."""
    if isinstance(target, Report):
        _refuse_inputs(inputs, "this is a report", "give the model that it is of")
        return target, None
    if isinstance(target, (str, os.PathLike)) and _holds(Path(target), _COMPARISON):
        text = f"{os.fspath(target)!r} is a comparison of two models, and no model"
        raise UnknownTargetError(text, hint="compare models; mg.load reads a comparison back")
    if _is_file(target):
        name = repr(os.fspath(target))
        if _holds(Path(target), _REPORT):
            _refuse_inputs(inputs, f"{name} is a report", "give the model that it is of")
            return load(target, Report), None
        if os.path.lexists(target):
            hint = "give its config.json, or code that builds the model (file.py::function)"
            _refuse_inputs(inputs, f"{name} is a checkpoint", hint)
        return inspect(target, progress=progress), None

    def look(subject: Subject) -> _Side:
        report = inspect(subject.native, subject.inputs, progress=progress)
        subject.check(report)
        return completed(report), subject.adapter.unsaved(subject.native)

    recipe = Recipe(target=target, inputs=inputs, automatic=False, progress=progress)
    return with_model(recipe, look)


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
    if path.suffix != ".json" or not path.is_file():
        return False
    with path.open("rb") as file:
        return format in file.read(_HEAD)
