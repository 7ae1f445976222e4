"""An independent truth for dataflow: torch.export's graph, run with real tensors, contracted to modules.

Export does not say who reads what was written in place. So its graph is run, and for each byte of memory the
last operator that wrote it is kept: an operator that reads a tensor reads what made it, and whoever wrote any
byte of it since; one that only takes a view looks at the bytes of the view.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy
import torch
from torch import fx, nn
from torch.utils import _pytree as pytree

import modelglass as mg
from modelglass import Inputs

Edges = set[tuple[str, str]]
_INLINED = ("wrap_with_set_grad_enabled", "wrap_with_autocast")


def observed_edges(report: mg.Report) -> Edges:
    """What we found, contracted to modules: edges between their paths, "in 0", "out 0"."""
    flow = report.dataflow
    assert flow is not None
    made = {number: f"in {at}" for at, number in enumerate(_tensors_only(flow.inputs)) if number is not None}
    graph = _Graph()
    for op, reads, writes in zip(report.model.ops, flow.reads, flow.writes, strict=True):
        node = graph.operator(op.module, {made[number] for number in reads})
        made.update((number, node) for number in writes if number is not None)
    tensors = [
        numbers
        for value, numbers in zip(report.run.outputs, flow.outputs, strict=True)
        if value.shape is not None
    ]
    for at, numbers in enumerate(tensors):
        graph.output(f"out {at}", {made[number] for number in numbers})
    return graph.contracted()


def exported_edges(model: nn.Module, inputs: Inputs) -> Edges:
    """The same from torch.export."""
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        program = torch.export.export(model, inputs.args, dict(inputs.kwargs), strict=False)
        return _Run(program).edges(pytree.tree_leaves((inputs.args, dict(inputs.kwargs))))


def _tensors_only(numbers: tuple[int | None, ...]) -> Iterator[int | None]:
    seen: set[int] = set()
    for number in numbers:
        if number is not None:
            yield None if number in seen else number
            seen.add(number)


class _Graph:
    """Operators with their modules, and what flows between them."""

    def __init__(self) -> None:
        self._owners: dict[str, str] = {}
        self._sources: dict[str, set[str]] = {}
        self._outputs: list[str] = []

    def operator(self, owner: str, sources: set[str]) -> str:
        name = f"op {len(self._owners)}"
        self._owners[name] = owner
        self._sources[name] = sources
        return name

    def output(self, name: str, sources: set[str]) -> None:
        self._outputs.append(name)
        self._sources[name] = sources

    def contracted(self) -> Edges:
        """Edges between modules, of what reaches an output."""
        reached, pending = set(self._outputs), list(self._outputs)
        while pending:
            for source in self._sources.get(pending.pop(), ()):
                if source not in reached:
                    reached.add(source)
                    pending.append(source)
        edges = {(self._place(s), self._place(t)) for t in reached for s in self._sources.get(t, ())}
        return {(source, target) for source, target in edges if source != target}

    def _place(self, node: str) -> str:
        return f"module {self._owners[node]}" if node in self._owners else node


class _Run:
    """Export's graph, run operator by operator."""

    def __init__(self, program: torch.export.ExportedProgram) -> None:
        self._program = program
        self._graph = _Graph()
        self._made: dict[int, tuple[int, str]] = {}  # by the tensor's id: when, and by which operator
        self._writers: dict[int, numpy.ndarray] = {}  # by memory: for each byte, when it was last written
        self._by_time: dict[int, str] = {}
        self._kept: list[Any] = []  # so that ids stay theirs

    def edges(self, leaves: list[Any]) -> Edges:
        environment: dict[fx.Node, Any] = {}
        given = iter(leaves)
        at = 0
        nodes = [node for node in self._program.graph.nodes if node.op == "placeholder"]
        for node, spec in zip(nodes, self._program.graph_signature.input_specs, strict=True):
            value = next(given) if spec.kind.name == "USER_INPUT" else self._held(spec.target)
            if isinstance(value, torch.Tensor):
                if spec.kind.name != "USER_INPUT":
                    value = value.detach().clone()
                elif id(value) not in self._made:
                    self._appeared(value, f"in {at}")
                at += spec.kind.name == "USER_INPUT"
            environment[node] = value
        returned = self._interpret(self._program.graph_module, environment)
        tensors = [value for value in pytree.tree_leaves(returned) if isinstance(value, torch.Tensor)]
        for index, value in enumerate(tensors):
            self._graph.output(f"out {index}", self._sources(value))
        return self._graph.contracted()

    def _held(self, name: str) -> Any:
        held = {**self._program.state_dict, **self._program.constants}
        return held[name]

    def _interpret(self, module: fx.GraphModule, environment: dict[fx.Node, Any]) -> Any:
        for node in module.graph.nodes:
            if node.op == "output":
                return fx.node.map_arg(node.args[0], environment.__getitem__)
            if node.op == "get_attr":
                environment[node] = operator.attrgetter(node.target)(module)
            elif node.op == "call_function":
                args = fx.node.map_arg(node.args, environment.__getitem__)
                kwargs = fx.node.map_arg(node.kwargs, environment.__getitem__)
                environment[node] = self._called(node, args, kwargs)
        raise AssertionError("a graph without an output")

    def _called(self, node: fx.Node, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        function: Any = node.target
        if getattr(function, "__name__", "") in _INLINED:
            at = next(index for index, value in enumerate(args) if isinstance(value, fx.GraphModule))
            inner = [each for each in args[at].graph.nodes if each.op == "placeholder"]
            return self._interpret(args[at], dict(zip(inner, args[at + 1 :], strict=True)))
        if not isinstance(function, torch._ops.OpOverload):
            return function(*args, **kwargs)  # taking one of several results, counting with sizes
        given = [value for value in pytree.tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor)]
        before_it = {id(value): self._sources(value) for value in given}
        result = function(*args, **kwargs)
        self._kept.append(result)
        results = [value for value in pytree.tree_leaves(result) if isinstance(value, torch.Tensor)]
        sources: set[str] = set()
        for value in given:
            views = [each for each in results if _is_view(each, value, function)]
            seen = [self._sources(value, view) for view in views] or [before_it[id(value)]]
            sources.update(*seen)
        name = self._graph.operator(_owner(node), sources)
        written = list(_written(function, args, kwargs))
        now = self._now(name)
        for value in written:
            self._made[id(value)] = now, name
            if torch.Tag.inplace_view not in function.tags:
                self._bytes(value)[:] = now
        before = {id(value) for value in given}
        for value in pytree.tree_leaves(result):
            if isinstance(value, torch.Tensor) and id(value) not in before:
                self._made[id(value)] = now, name
        return result

    def _now(self, name: str) -> int:
        self._by_time[len(self._by_time) + 1] = name
        return len(self._by_time)

    def _appeared(self, value: torch.Tensor, name: str) -> None:
        self._kept.append(value)
        self._made[id(value)] = self._now(name), name

    def _sources(self, value: torch.Tensor, view: torch.Tensor | None = None) -> set[str]:
        """Who made the tensor, and who wrote to its memory since, or to that of a view of it."""
        time, name = self._made.get(id(value), (0, ""))
        seen = self._bytes(value if view is None else view)
        later = {self._by_time[int(at)] for at in numpy.unique(seen) if at > time}
        return later | ({name} if name else set())

    def _bytes(self, value: torch.Tensor) -> numpy.ndarray:
        """For each byte that the tensor looks at, when it was written; a view, so it can be written to."""
        storage = value.untyped_storage()
        self._kept.append(storage)
        times = self._writers.setdefault(storage._cdata, numpy.zeros(storage.nbytes(), dtype=numpy.int32))
        item = value.itemsize
        return numpy.lib.stride_tricks.as_strided(
            times[value.storage_offset() * item :] if value.numel() else times[:0],
            shape=(*value.shape, item),
            strides=(*(4 * item * stride for stride in value.stride()), 4),
        )


def _owner(node: fx.Node) -> str:
    """The path of the module whose operator it is; a second call of a module has a name of its own there."""
    stack = list(node.meta.get("nn_module_stack", {}).values())
    return stack[-1][0].partition("@")[0] if stack else ""


def _is_view(result: torch.Tensor, value: torch.Tensor, function: Any) -> bool:
    same = result.untyped_storage()._cdata == value.untyped_storage()._cdata
    return same and not function._schema.is_mutable


def _written(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[torch.Tensor]:
    for index, argument in enumerate(function._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield args[index] if index < len(args) else kwargs[argument.name]
