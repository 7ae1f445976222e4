"""Statistics of weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from modelglass.api._inspect import inspect, resolve_before
from modelglass.errors import UsageError
from modelglass.targets import as_saved_report

if TYPE_CHECKING:
    from modelglass.report import Report


def stats(target: Any, pattern: str = "*", **options: Any) -> Report:
    """The report of a model with statistics of its weights: `report.stats`, by tensor, and notes on problems.

    `target` is anything that `inspect` takes, with its options, or a report that has statistics. Only tensors
    that match `pattern` are read.

    >>> import torch
    >>> stats(torch.nn.Linear(2, 2)).stats["weight"].count
    4
    """
    found = resolve_before(target, options)
    report = as_saved_report(found)
    if report is None:
        return inspect(found, stats=pattern, **options)
    if report.stats is None:
        raise UsageError(
            "this report has no statistics of weights", hint="give the model or file that it is of"
        )
    return report
