"""Two models side by side: a port beside its original, a checkpoint beside the model that would load it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modelglass import targets
from modelglass.api.building import is_built
from modelglass.api.inspecting import completed, inspect
from modelglass.api.making import Recipe, Subject, with_model
from modelglass.api.showing import load
from modelglass.report import Report

if TYPE_CHECKING:
    from modelglass.frameworks.request import Progress
    from modelglass.report import Comparison

_REPORT = b'"modelglass-report"'
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

    one, unsaved_a = _side(a, inputs if inputs_a is None else inputs_a, progress)
    other, unsaved_b = _side(b, inputs if inputs_b is None else inputs_b, progress)
    return compare(one.model, other.model, unsaved_a=unsaved_a, unsaved_b=unsaved_b)


def _side(target: Any, inputs: Any, progress: Progress | None) -> _Side:
    """What is known of one of the two."""
    if isinstance(target, Report):
        return target, None
    if _is_file(target):
        return (
            load(target) if _is_report(Path(target)) else inspect(target, inputs, progress=progress)
        ), None

    def look(subject: Subject) -> _Side:
        report = inspect(subject.native, subject.inputs, progress=progress)
        subject.check(report)
        return completed(report), subject.adapter.unsaved(subject.native)

    recipe = Recipe(target=target, inputs=inputs, automatic=False, progress=progress)
    return with_model(recipe, look)


def _is_file(target: Any) -> bool:
    """Whether a target is a file that is read, rather than something that makes a model."""
    if not isinstance(target, (str, os.PathLike)) or is_built(target):
        return False
    return not targets.is_code_target(os.fspath(target))


def _is_report(path: Path) -> bool:
    if path.suffix != ".json" or not path.is_file():
        return False
    with path.open("rb") as file:
        return _REPORT in file.read(_HEAD)
