"""A report's modules as plain records, which tables of other libraries take as they are."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from modelglass.report.execution import Call
    from modelglass.report.model import Shape
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
    calls: dict[str, list[Call]] = defaultdict(list)
    for call in report.model.calls:
        if call.phase == "forward":
            calls[call.module].append(call)
    ran = report.run.mode != "none" and (report.engine is None or bool(calls))
    return [
        {
            "name": module.name,
            "path": module.path,
            "type": module.type,
            **_shapes(calls.get(module.path, [])),
            **_counted(report, module.path),
            **_priced(report, module.path),
            "saved_nbytes": _saved(report, module.path),
            "calls": len(calls.get(module.path, ())) if ran else None,
        }
        for module in report.model.modules
    ]


def _shapes(calls: list[Call]) -> _Shapes:
    if not calls:
        return {"input": None, "output": None}
    first = calls[0]
    return {
        "input": tuple(value.shape for value in first.inputs if value.dtype is not None),
        "output": tuple(value.shape for value in first.outputs if value.dtype is not None),
    }


def _counted(report: Report, path: str) -> _Counted:
    if report.counts is None:
        return {"params": None, "trainable": None, "share": None, "buffers": None, "nbytes": None}
    total, whole = report.counts.by_module[path].total, report.counts.params
    return {
        "params": total.params,
        "trainable": total.trainable,
        "share": total.params / whole if whole else None,
        "buffers": total.buffers,
        "nbytes": total.nbytes,
    }


def _priced(report: Report, path: str) -> _Priced:
    cost = None if report.cost is None or report.run.mode == "none" else report.cost.by_module.get(path)
    macs = cost.total_macs if cost is not None and cost.complete else None
    return {"macs": macs, "flops": None if macs is None else 2 * macs}


def _saved(report: Report, path: str) -> int | None:
    saved = None if report.memory is None else report.memory.saved_by_module
    return None if saved is None else saved.get(path, 0)


class _Shapes(TypedDict):
    input: tuple[Shape | None, ...] | None
    output: tuple[Shape | None, ...] | None


class _Counted(TypedDict):
    params: int | None
    trainable: int | None
    share: float | None
    buffers: int | None
    nbytes: int | None


class _Priced(TypedDict):
    macs: int | None
    flops: int | None
