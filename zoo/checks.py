"""What is found out about one architecture: modelglass's figures, the truth, and where they differ."""

from __future__ import annotations

import time
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from errors_said import said
from side_by_side import forget_peak, peak_mib
from torch import nn
from zoo import truth
from zoo.architectures import build, quietly
from zoo.repairs import OUT

import modelglass as mg
from fingerprint import fingerprint
from modelglass.api._inputs import NEEDS_VALUES, REAL_NBYTES, automatic_inputs
from modelglass.targets import resolve
from sums import disagreements

Row = dict[str, Any]


def looked_at(architecture: str) -> Row:
    """Everything about one architecture, as plain values; `wrong` says by check what is not as it should."""
    row: Row = {"name": architecture, "wrong": {}}
    try:
        model = build(architecture)
    except Exception as error:  # noqa: BLE001 (a configuration may be refused in any way)
        row["unbuilt"] = said(error)
        if architecture not in OUT:
            row["wrong"]["inspected"] = f"not built: {row['unbuilt']}"
        return row
    row["params"] = truth.params(model)
    try:
        inputs, report = _inspected(model, row)
        if _wants_values(report, model):
            row["weights"] = True
            model = build(architecture, device="cpu")
            inputs, report = _inspected(model, row)
    except Exception as error:  # noqa: BLE001 (that there is none is what is checked)
        row["wrong"]["inspected"] = said(error)
        return row
    if hasattr(model, "config"):
        _check_config(model, row)
    del model
    _check(report, row)
    if inputs is not None and "ran" not in row["wrong"]:
        _check_macs(architecture, inputs, report, row)
    return row


def _inspected(model: Any, row: Row) -> tuple[mg.Inputs | None, mg.Report]:
    """The report with automatic inputs, what it took, and whether anything is left of it."""
    with quietly():
        whole = fingerprint(model)
        began = time.perf_counter()
        inputs = automatic_inputs(model)
        row["inputs_seconds"] = round(time.perf_counter() - began, 3)
        given = fingerprint(nn.Identity(), inputs)["others"]
        level, began = forget_peak(), time.perf_counter()
        report = mg.inspect(model, inputs, on_failure="report")
        row["seconds"] = round(time.perf_counter() - began, 3)
        row["mib"] = round(peak_mib() - level, 1)
        after = fingerprint(model, inputs)
    changed = [part for part, before in {**whole, "others": given}.items() if before != after[part]]
    if changed:
        row["wrong"]["trace"] = f"changed: {', '.join(changed)}"
    return inputs, report


def _check_config(model: Any, row: Row) -> None:
    """The model's configuration as a file gives the same class with as many parameters."""
    with TemporaryDirectory() as folder, quietly():
        path = Path(folder, "config.json")
        config = deepcopy(model.config)
        config.architectures = [type(model).__name__]
        path.write_text(config.to_json_string())
        try:
            with resolve(path).to_run().open(weightless=True) as found:
                same = type(found.native).__name__, truth.params(found.native)
        except Exception as error:  # noqa: BLE001 (that there is none is what is checked)
            row["wrong"]["config"] = said(error).replace(folder, "")
            return
    if same != (type(model).__name__, row["params"]):
        row["wrong"]["config"] = f"a {same[0]} with {same[1]} parameters"


def _wants_values(report: mg.Report, model: Any) -> bool:
    failure = report.run.failure if report.run is not None else None
    small = sum(each.nbytes for each in model.parameters()) <= REAL_NBYTES
    return failure is not None and failure.error in NEEDS_VALUES and small


def _check(report: mg.Report, row: Row) -> None:
    wrong = row["wrong"]
    row["modules"], row["ops"] = len(report.model.modules), len(report.model.ops)
    if report.counts.params != row["params"]:
        wrong["params"] = f"{report.counts.params} and not {row['params']}"
    found = disagreements(report)
    if found:
        wrong["sums"] = "; ".join(found[:3])
    failure = report.run.failure if report.run is not None else None
    if failure is not None:
        wrong["ran"] = f"{failure.module or '(root)'} raised {failure.error}: {failure.message}"[:400]
    elif report.cost is None or report.run is None or not report.model.ops:
        wrong["ran"] = "nothing tells what the model is called with"
    else:
        row["macs"] = report.cost.macs
        row["inputs"] = {each.name: "x".join(map(str, each.shape or ())) for each in report.run.inputs}
        if report.cost.coverage != 1 or report.cost.unknown_ops:
            wrong["coverage"] = f"unknown: {dict(report.cost.unknown_ops)}"


def _check_macs(architecture: str, inputs: mg.Inputs, report: mg.Report, row: Row) -> None:
    """Compare with the count of everything written out; where that is other work, also of the model as built.

    Whether it may be other work is for a person to say, in `explained.py`.
    """
    given = tuple(inputs.args), dict(inputs.kwargs)
    try:
        found = truth.macs(architecture, *given)
    except Exception as error:  # noqa: BLE001 (torch's counter runs the model, which may raise anything)
        row["wrong"]["macs"] = f"no independent count: {said(error)}"
        return
    row |= {"truth": found.macs, "way": found.way, "added": found.added, "free": found.free}
    row["counter_seconds"] = round(found.seconds, 3)
    if found.macs == report.cost.macs:
        return
    row["wrong"]["macs"] = f"{report.cost.macs} and not {found.macs}"
    try:
        row["as_built"] = truth.macs(architecture, *given, written_out=False).macs
    except Exception as error:  # noqa: BLE001 (the same)
        row["wrong"]["macs"] += f"; as built it cannot be counted: {said(error)}"
