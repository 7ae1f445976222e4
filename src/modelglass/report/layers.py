"""A report's modules as plain records, which tables of other libraries take as they are."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from modelglass.report.execution import Call, Value
    from modelglass.report.model import Module, Shape
    from modelglass.report.report import Report


class Layer(TypedDict):
    """A module, with everything below it. None: not known; of a layer that ran, `input` and `output` are
    the shapes in its first call."""

    name: str
    path: str
    type: str
    input: tuple[Shape | None, ...] | None
    output: tuple[Shape | None, ...] | None
    params: int | None
    trainable: int | None
    share: float | None  # of the model's parameters
    buffers: int | None
    nbytes: int | None
    macs: int | None  # None as well where an operator has no formula
    flops: int | None
    saved_nbytes: int | None  # for backward, by the module itself
    calls: int | None


def layers(report: Report) -> list[Layer]:
    """A record for each module, in the model's order, equal ones one by one."""
    calls = calls_by_module(report)
    return [_layer(report, module, calls) for module in report.model.modules]


def saw_calls(report: Report) -> bool:
    """Whether a run was seen module by module; an engine runs without showing its calls."""
    return report.run.mode != "none" and (report.engine is None or bool(report.model.calls))


def calls_by_module(report: Report) -> Mapping[str, list[Call]]:
    """The forward calls of each module, in order."""
    calls: dict[str, list[Call]] = defaultdict(list)
    for call in report.model.calls:
        if call.phase == "forward":
            calls[call.module].append(call)
    return calls


def _layer(report: Report, module: Module, calls: Mapping[str, list[Call]]) -> Layer:
    path, counts = module.path, report.counts
    own = calls.get(path, ())
    total = None if counts is None else counts.by_module[path].total
    cost = None if report.cost is None or report.run.mode == "none" else report.cost.by_module.get(path)
    macs = cost.total_macs if cost is not None and cost.complete else None
    saved = None if report.memory is None else report.memory.saved_by_module
    return {
        "name": module.name,
        "path": path,
        "type": module.type,
        "input": _shapes(own[0].inputs) if own else None,
        "output": _shapes(own[0].outputs) if own else None,
        "params": None if total is None else total.params,
        "trainable": None if total is None else total.trainable,
        "share": total.params / counts.params if total and counts and counts.params else None,
        "buffers": None if total is None else total.buffers,
        "nbytes": None if total is None else total.nbytes,
        "macs": macs,
        "flops": None if macs is None else 2 * macs,
        "saved_nbytes": None if saved is None else saved.get(path, 0),
        "calls": len(own) if saw_calls(report) else None,
    }


def _shapes(values: Sequence[Value]) -> tuple[Shape | None, ...]:
    return tuple(value.shape for value in values if value.dtype is not None)
