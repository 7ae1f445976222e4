"""The distinct modules and operators of a model, and a program for each operator."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modelglass.api._inspect import inspect_modules
from modelglass.errors import CannotReproduceError, UnknownTargetError
from modelglass.files import make_folder, remove_marked, write_together
from modelglass.gc_pause import paused_gc
from modelglass.renderers._escape import printable
from modelglass.user_code import FORMS

if TYPE_CHECKING:
    from modelglass.report import Report, Reproducers, Unique, UniqueOp

MADE_BY = "Made by modelglass"  # in every file that may be replaced without asking


@paused_gc()
def unique(target: Any, inputs: Any = None, **options: Any) -> Unique:
    """The distinct modules and operators of a model, each with the places where it is.

    `target` is a report, or anything that `inspect` takes, with its inputs and options.

    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 4))
    >>> [(each.paths, each.count) for each in unique(model, torch.ones(2, 4)).modules]
    [(('',), 1), (('0', '2'), 2), (('1',), 1)]
    """
    from modelglass.analyses.unique import unique

    report = inspect_modules(target, inputs, **options)
    if report.checkpoint is not None and not any(module.type for module in report.model.modules):
        raise UnknownTargetError(
            f"the checkpoint {report.model.name!r} has no module types, so modules cannot be grouped",
            hint=f"name code that builds the model: {FORMS}",
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
            sources[name] = adapter.reproducer(op, file=name, details=_describe_use(report, each))
        except CannotReproduceError as reason:
            missing[each.id] = reason.problem
    target = Path(folder)
    make_folder(target)
    remove_marked(target, "op_*.py", MADE_BY)
    write_together({target / name: source for name, source in sources.items()})
    return Reproducers(files=tuple(sources), missing=missing)


def _describe_use(report: Report, each: UniqueOp) -> str:
    """Where a distinct operator ran, how often, and at what cost."""
    op = report.model.ops[each.ops[0]]
    times = "once" if each.count == 1 else f"{each.count:,} times, at first"
    macs = "" if each.macs is None else f": {each.macs:,} MACs a time"
    ran = f"{report.model.name} ran it {times} in {op.module or '(root)'}{macs}."
    return f"{printable(ran)}\n{MADE_BY}; the values are made up."
