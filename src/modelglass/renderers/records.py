"""Distinct modules and operators as JSON-safe records, one dict each, as documents about them have it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypedDict

from modelglass.page.sections.distinct import UniqueChoice, module_rows, shown_path, tensors
from modelglass.page.units import shape_text
from modelglass.renderers._json import pretty
from modelglass.report import Json, Module, Op, Report, Unique, UniqueModule, UniqueOp, Value
from modelglass.report.codec import document_of


class Remark(TypedDict):
    """What is unknown or odd."""

    code: str
    severity: str
    text: str
    where: list[str]


class ModuleRecord(TypedDict):
    """A distinct module: shapes, types and names are those of its tensors, in order."""

    id: str
    class_name: str
    module_path: str
    parent: str | None
    input_shapes: list[str | None]
    output_shapes: list[str | None]
    input_dtypes: list[str]
    output_dtypes: list[str]
    parameters: Mapping[str, Json]
    occurrences: list[str]
    qualified_name: str
    input_names: list[str]
    output_names: list[str]
    training: bool | None
    calls: list[int]


class TensorType(TypedDict):
    """A tensor that an operator gives."""

    shape: str | None
    dtype: str | None


class ArgumentType(TensorType):
    """A tensor that an operator takes, by the name of the argument."""

    name: str


class TensorTypes(TypedDict):
    """The tensors of an operator; `output` is the first of `outputs`."""

    inputs: list[ArgumentType]
    output: TensorType | None
    outputs: list[TensorType]


class Occurrence(TypedDict):
    """One execution of an operator."""

    source_module_id: str
    node_name: str
    module_path: str


class OpRecord(TypedDict):
    """A distinct operator; `macs` is what one execution costs, null where that is unknown."""

    id: str
    op_name: str
    source_module_id: str
    source_module_class: str
    attributes: Mapping[str, Json]
    tensor_types: TensorTypes
    occurrences: list[Occurrence]
    overload: str
    macs: int | None
    total_macs: int | None


def remarks(report: Report) -> list[Remark]:
    """The report's notes."""
    return [
        {"code": note.code, "severity": note.severity, "text": note.text, "where": list(note.where)}
        for note in report.notes
    ]


def module_records(report: Report, modules: Iterable[UniqueModule]) -> list[ModuleRecord]:
    """A record for each distinct module."""
    by_path = {module.path: module for module in report.model.modules}
    return [_module(report, each, by_path[each.paths[0]]) for each in modules]


def _module(report: Report, each: UniqueModule, module: Module) -> ModuleRecord:
    call = report.model.calls[each.calls[0]] if each.calls else None
    inputs, outputs = (tensors(call.inputs), tensors(call.outputs)) if call else ([], [])
    return {
        "id": each.id,
        "class_name": module.type,
        "module_path": shown_path(module.path),
        "parent": shown_path(module.path.rpartition(".")[0]) if module.path else None,
        "input_shapes": [_shape(value) for value in inputs],
        "output_shapes": [_shape(value) for value in outputs],
        "input_dtypes": [value.dtype or "" for value in inputs],
        "output_dtypes": [value.dtype or "" for value in outputs],
        "parameters": module.config,
        "occurrences": [shown_path(path) for path in each.paths],
        "qualified_name": module.qualified_type,
        "input_names": [value.name for value in inputs],
        "output_names": [value.name for value in outputs],
        "training": module.training,
        "calls": list(each.calls),
    }


def op_records(report: Report, unique: Unique, ops: Iterable[UniqueOp] | None = None) -> list[OpRecord]:
    """A record for each distinct operator, or for those that are asked for."""
    names = dict(zip(_computing(report, unique), _node_names(report, unique), strict=True))
    types = {module.path: module.type for module in report.model.modules}
    return [_op(report, each, names, types) for each in (unique.ops if ops is None else ops)]


def _op(report: Report, each: UniqueOp, names: Mapping[int, str], types: Mapping[str, str]) -> OpRecord:
    op = report.model.ops[each.ops[0]]
    outputs = [_tensor_type(value) for value in tensors(op.outputs)]
    return {
        "id": each.id,
        "op_name": op.name,
        "source_module_id": each.modules[0],
        "source_module_class": types[op.module],
        "attributes": op.attributes,
        "tensor_types": {
            "inputs": [{"name": value.name, **_tensor_type(value)} for value in tensors(op.inputs)],
            "output": outputs[0] if outputs else None,
            "outputs": outputs,
        },
        "occurrences": [
            {
                "source_module_id": module,
                "node_name": names[index],
                "module_path": shown_path(report.model.ops[index].module),
            }
            for index, module in zip(each.ops, each.modules, strict=True)
        ],
        "overload": op.overload,
        "macs": each.macs,
        "total_macs": each.total_macs,
    }


def _computing(report: Report, unique: Unique) -> Iterator[int]:
    counters = frozenset(unique.counters)
    return (op.index for op in report.model.ops if op.index not in counters)


def _node_names(report: Report, unique: Unique) -> Iterator[str]:
    """Names as a graph of the run would have them: "add", "add_1", "add_2" in order of execution."""
    seen: Counter[str] = Counter()
    for index in _computing(report, unique):
        name = short_name(report.model.ops[index])
        yield f"{name}_{seen[name]}" if seen[name] else name
        seen[name] += 1


def short_name(op: Op) -> str:
    """The operator without its namespace and overload: "conv2d"."""
    parts = op.overload.split(".")
    return parts[1] if len(parts) == 3 else parts[-1]


def _tensor_type(value: Value) -> TensorType:
    return {"shape": _shape(value), "dtype": value.dtype}


def _shape(value: Value) -> str | None:
    return None if value.shape is None else shape_text(value.shape)


def render(report: Report, unique: Unique, choice: UniqueChoice | None = None) -> str:
    """What was chosen as JSON that `mg.load` reads back, each with its record as other documents have it."""
    choice = choice or UniqueChoice()
    operators = "ops" in choice.kinds and report.run.mode != "none"
    modules = _chosen_modules(report, unique, choice) if "modules" in choice.kinds else ()
    ops = choice.of(unique.ops) if operators else ()
    counters = unique.counters if operators else ()
    document = document_of(replace(unique, modules=tuple(modules), ops=tuple(ops), counters=counters))
    document["model_class"] = report.model.name
    if "modules" in choice.kinds:
        document |= {"total_modules": len(report.model.modules), "unique_modules": len(unique.modules)}
        records = module_records(report, modules)
        document["modules"] = [
            {**record, **each, "total_macs": module.total_macs}
            for record, each, module in zip(records, document["modules"], modules, strict=True)
        ]
    if operators:
        document |= {
            "total_ops": unique.total_ops,
            "unique_ops": len(unique.ops),
            "counter_updates": len(unique.counters),
        }
        op_rows = zip(op_records(report, unique, ops), document["ops"], strict=True)
        document["ops"] = [{**record, **each} for record, each in op_rows]
    document["notes"] = remarks(report)
    return pretty(document)


def _chosen_modules(report: Report, unique: Unique, choice: UniqueChoice) -> list[UniqueModule]:
    by_id = {each.id: each for each in unique.modules}
    return [by_id[row.id] for row in choice.of(module_rows(report, unique))]
