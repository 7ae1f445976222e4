"""Records of a model's layers, totals and memory, as `model_info` lists them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict, cast

from modelglass import api
from modelglass.page.sources import dtype_text
from modelglass.report import Call, Json, Module, Report, Tensor, Value
from modelglass.report.layers import saw_calls


class _Further(TypedDict, total=False):
    name: str  # the keyword it was given by
    values: list[DescribedValue]


class Described(_Further):
    """A tensor by shape and type; anything else, or several values, one by one in `values`."""

    shape: list[int] | None
    dtype: str | None


class DescribedValue(TypedDict):
    """One of several values, or one that is not a tensor: then `value` says what it is."""

    name: str
    shape: list[int] | None
    dtype: str | None
    value: str | None


class FurtherCall(TypedDict):
    """Calls of a layer that differ from its first one."""

    input_info: Described
    output_info: Described
    times: int


class Called(TypedDict):
    """How a layer was called: shapes of the first call, and calls that were different."""

    input_info: Described | None
    output_info: Described | None
    times_called: int | None
    further_calls: list[FurtherCall]


class Layer(Called):
    """One module. `parameters` and what follows from them include everything inside it.

    Its settings stand here, too, under their own names, and all of them in `config`.
    """

    layer_index: int
    name: str
    type: str
    parameters: int | None
    trainable: bool
    parameter_shapes: list[list[int] | None]
    parameter_dtypes: list[str]
    own_parameters: int | None
    buffers: int | None
    nbytes: int | None
    macs: int | None
    aliases: list[str]
    config: Mapping[str, Json]


class Totals(TypedDict):
    """The whole model, every weight counted once. `own_parameters` are those of the root itself."""

    parameters: int | None
    trainable_parameters: int | None
    frozen_parameters: int | None
    own_parameters: int | None
    logical_parameters: int | None
    buffers: int | None
    macs: int | None
    flops: int | None


class Memory(TypedDict):
    """Bytes that the weights and buffers take."""

    parameter_nbytes: int | None
    buffer_nbytes: int | None
    nbytes: int | None


def totals_of(report: Report) -> Totals:
    """The figures of all modules together."""
    counts, cost = report.counts, report.cost
    if counts is None:
        raise ValueError("the report counts nothing")
    known = not counts.uninitialised  # a sum with a hole in it is not the sum
    counted = cost if cost is not None and cost.complete and report.run.mode != "none" else None
    return {
        "parameters": counts.params if known else None,
        "trainable_parameters": counts.trainable if known else None,
        "frozen_parameters": counts.frozen if known else None,
        "own_parameters": _own_parameters(report, report.model.modules[0]),
        "logical_parameters": counts.logical_params if known else None,
        "buffers": counts.buffers if known else None,
        "macs": None if counted is None else counted.macs,
        "flops": None if counted is None else counted.flops,
    }


def _own_parameters(report: Report, module: Module) -> int | None:
    counts = report.counts
    waiting = counts is None or not set(counts.uninitialised).isdisjoint(module.tensors)
    return None if counts is None or waiting else counts.by_module[module.path].own.params


def memory_of(report: Report) -> Memory:
    """What parameters and buffers take; None where that of some is not known."""
    counts = report.counts
    if counts is None or counts.uninitialised or counts.unsized:
        return {"parameter_nbytes": None, "buffer_nbytes": None, "nbytes": None}
    return {
        "parameter_nbytes": counts.param_nbytes,
        "buffer_nbytes": counts.buffer_nbytes,
        "nbytes": counts.nbytes,
    }


class Layers:
    """The layers of a report."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._seen = saw_calls(report)
        self._held, self._contents = api.tensors_by_module(report), api.children_by_module(report)
        self._calls: dict[str, list[Call]] = defaultdict(list)
        for call in report.model.calls:
            self._calls[call.module].append(call)

    def layer(self, index: int, module: Module) -> Layer:
        """One module, with what its settings say."""
        held = self._held[module.path]
        parameters = [tensor for tensor in held if tensor.kind != "buffer"]
        layer: Layer = {
            "layer_index": index,
            "name": module.path,
            "type": module.type,
            "parameters": _sum(tensor.params for tensor in parameters),
            "trainable": any(tensor.trainable for tensor in parameters),
            "parameter_shapes": [shape_of(tensor) for tensor in parameters],
            "parameter_dtypes": [
                dtype_text(self._report.model.source, tensor.dtype) for tensor in parameters
            ],
            "own_parameters": _own_parameters(self._report, module),
            "buffers": _sum(tensor.numel for tensor in held if tensor.kind == "buffer"),
            "nbytes": _sum(tensor.nbytes for tensor in held),
            "macs": self._macs(module.path),
            **self._called(module.path),
            "aliases": list(module.aliases),
            "config": module.config,
        }
        size = len(self._contents.get(module.path, ()))
        settings = {"num_layers": size} | dict(module.config) if size else module.config
        return cast("Layer", layer | {key: item for key, item in settings.items() if key not in layer})

    def _macs(self, path: str) -> int | None:
        cost = self._report.cost
        if cost is None or self._report.run.mode == "none" or not cost.by_module[path].complete:
            return None
        return cost.by_module[path].total_macs

    def _called(self, path: str) -> Called:
        if not self._seen:
            return {"input_info": None, "output_info": None, "times_called": None, "further_calls": []}
        source = self._report.model.source
        kinds: dict[Any, int] = Counter((call.inputs, call.outputs) for call in self._calls[path])
        described = [
            (values_of(inputs, source), values_of(outputs, source), times)
            for (inputs, outputs), times in kinds.items()
        ]
        given, returned, _ = described[0] if described else (None, None, 0)
        return {
            "input_info": given,
            "output_info": returned,
            "times_called": len(self._calls[path]),
            "further_calls": [
                {"input_info": inputs, "output_info": outputs, "times": times}
                for inputs, outputs, times in described[1:]
            ],
        }


def _sum(numbers: Iterable[int | None]) -> int | None:
    """The sum, or None when a part of it is unknown."""
    known = list(numbers)
    return None if None in known else sum(number for number in known if number is not None)


def shape_of(tensor: Tensor) -> list[int] | None:
    """The shape that multiplies out to the parameters."""
    if tensor.kind == "packed" and tensor.packing is not None:
        return list(tensor.packing.logical_shape)
    return None if tensor.shape is None else list(tensor.shape)


def values_of(values: Sequence[Value], source: str) -> Described:
    if len(values) == 1 and values[0].dtype is not None and "." not in values[0].name:
        value = values[0]
        one: Described = {"shape": _sizes(value), "dtype": dtype_text(source, str(value.dtype))}
        return {**one, "name": value.name} if value.name.isidentifier() else one
    return {"shape": None, "dtype": None, "values": [_value(value, source) for value in values]}


def _value(value: Value, source: str) -> DescribedValue:
    return {
        "name": value.name,
        "shape": _sizes(value),
        "dtype": None if value.dtype is None else dtype_text(source, value.dtype),
        "value": value.text,
    }


def _sizes(value: Value) -> list[int] | None:
    return None if value.shape is None else list(value.shape)
