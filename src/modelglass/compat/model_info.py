"""`model_info`: one JSON document that describes a model, layer by layer, for registries and reviews."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from modelglass import api
from modelglass.compat.layer_records import (
    Described,
    Layer,
    Layers,
    Memory,
    Totals,
    memory_of,
    totals_of,
    values_of,
)
from modelglass.files import write_whole
from modelglass.renderers._json import pretty
from modelglass.renderers.records import Remark, remarks
from modelglass.report import Report

if TYPE_CHECKING:
    from modelglass.compat.served_model_info import ServedModelDocument


class ModelInfoDocument(TypedDict):
    """A model: what it is, what goes in and out, what it weighs and costs, and its layers."""

    framework: str
    model_name: str
    model_type: str
    parameters: int | None
    input_info: Described | None
    output_info: Described | None
    totals: Totals
    memory: Memory
    layers: list[Layer]
    notes: list[Remark]


def model_info(
    model: Any,
    inputs: Any = None,
    model_name: str | None = None,
    path: str | os.PathLike[str] | None = None,
) -> ModelInfoDocument | ServedModelDocument:
    """Everything a model registry wants to know, as a dict, and written to `path` as JSON.

    `model` and `inputs` are as for `inspect`. Without inputs nothing runs, and what only a run can tell is
    None. A forward pass that raises is an error, and no file is written. Of an engine, the document says what
    it is made of, too, and what it generates for the prompt that it is given.
    """
    document = described(api.inspect(model, inputs), model_name)
    if path is not None:
        write_whole(Path(path), pretty(document))
    return document


info = model_info  # as the command is called


def rendered(report: Report, model_name: str | None = None) -> str:
    """The document of a report as JSON text."""
    return pretty(described(report, model_name))


def described(report: Report, model_name: str | None = None) -> ModelInfoDocument | ServedModelDocument:
    """The document of a report."""
    if report.engine is not None:
        from modelglass.compat import served_model_info

        return served_model_info.described(report, report.engine, model_name)
    totals = totals_of(report)
    layers = Layers(report)
    ran = report.run.mode != "none"
    source = report.model.source
    return {
        "framework": source,
        "model_name": report.model.name if model_name is None else model_name,
        "model_type": report.model.name,
        "parameters": totals["parameters"],
        "input_info": values_of(report.run.inputs, source) if ran else None,
        "output_info": values_of(report.run.outputs, source) if ran else None,
        "totals": totals,
        "memory": memory_of(report),
        "layers": [layers.layer(index, module) for index, module in enumerate(report.model.modules[1:])],
        "notes": remarks(report),
    }
