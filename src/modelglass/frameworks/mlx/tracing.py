"""A run of an MLX model on substitutes for all its arrays: what it was given, called and gave back."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from types import FunctionType
from typing import Any

import mlx.core as mx
from mlx import nn

from modelglass.frameworks.mlx.calls import Watcher, watch_calls
from modelglass.frameworks.mlx.describe import Describer, find_leaves, is_array
from modelglass.frameworks.mlx.graph.call_splits import (
    CallSplits,
    join_graphs,
    make_fresh_arrays,
    trace_split,
)
from modelglass.frameworks.mlx.graph.graph import Graph
from modelglass.frameworks.mlx.inputs.shapes import find_dtype
from modelglass.frameworks.mlx.structure import modules as structure, tree
from modelglass.frameworks.mlx.substitution import find_arrays, make_substitution
from modelglass.frameworks.mlx.training.optimizers import find_factories
from modelglass.frameworks.mlx.training.step import TrainingStep, take_step
from modelglass.frameworks.shared.request import Inputs, Request
from modelglass.frameworks.shared.signatures import input_name, positional_names
from modelglass.frameworks.state.builtin_objects import Witness
from modelglass.frameworks.state.substitution import substitute_tensors
from modelglass.report import Shape, Value
from modelglass.undo import UndoLog, raise_interruption, run_and_undo

_TRANSPARENT = (mx.array, bool, int, float, complex, str, bytes, type(None))
# MLX raises a plain ValueError for it.
_NO_VALUES = re.compile(r"\[eval\] Attempting to eval an array|\[async_eval\] Not allowed inside")


Forms = list[tuple[str, Shape | None, str | None]]


def describe_forms(values: Sequence[Value]) -> Forms:
    """Names, shapes and types of values."""
    return [(value.name, value.shape, value.dtype) for value in values]


class Tracing:
    """One run being observed."""

    def __init__(self, native: nn.Module, inputs: Inputs, request: Request) -> None:
        self.native = native
        self.inputs = inputs
        self.request = request
        self.arrays = list(find_arrays(native, inputs.args, dict(inputs.kwargs)))
        nodes = list(tree.walk_nodes(native))
        self.tensors = dict(_first_names(nodes))  # names by the array's id
        self.watcher = Watcher(Describer())
        self.error: BaseException | None = None
        self.witness = Witness()
        self.given: tuple[Value, ...] = ()
        self.returned: tuple[Value, ...] = ()
        self.names: tuple[str, ...] = ()  # what the model's signature calls each input
        self.entered: list[mx.array | None] = []
        self.left: list[mx.array | None] = []
        self.kept: list[mx.array] = []  # what the model and its inputs hold when the run has ended
        self.is_opaque = False  # outputs are in objects that nobody can look into
        self.step: TrainingStep | None = None
        self.is_watched = True  # calls of the modules inside the model are seen
        self._substitutes: Sequence[mx.array] = ()
        self._modules = {node.path: node.native for node in nodes if node.is_module}
        self._functions = list(structure.find_functions(nodes))
        self.factories = find_factories(request)
        self._names_by_id: dict[int, str] = {}  # names by the id of whatever stands in for an array

    def examples(self) -> list[mx.array]:
        """Arrays like the model's and its inputs', of other element types where that is asked for."""
        if self.request.what_if.weights is None:
            return self.arrays
        dtype = find_dtype(self.request.what_if.weights)
        floating = [mx.issubdtype(array.dtype, mx.floating) for array in self.arrays]
        return [a.astype(dtype) if cast else a for a, cast in zip(self.arrays, floating, strict=True)]

    def trace(self, substitutes: Sequence[mx.array]) -> Sequence[mx.array]:
        """Run the model on substitutes for its arrays; what crossed the border of a call is the result."""
        self._substitutes = substitutes
        own, fresh = substitutes[: len(self.arrays)], substitutes[len(self.arrays) :]
        # The substitutes are copies, which share values: a model may write into its inputs.
        copies = {id(array): copy(each) for array, each in zip(self.arrays, own, strict=True)}
        origins = {id(copies[id(array)]): each for array, each in zip(self.arrays, own, strict=True)}
        self._names_by_id = {id(copies[key]): name for key, name in self.tensors.items() if key in copies}

        def run(log: UndoLog) -> None:
            native, args, kwargs = self._substitute(log, lambda array: copies.get(id(array), array))
            splits = CallSplits(fresh) if fresh else None
            self.watcher = Watcher(Describer(self._names_by_id), self.request.progress, splits)
            entering = [value for _, value in find_leaves((args, kwargs))]
            self.entered = [origins.get(id(value)) for value in entering]
            self._take(log, native, args, kwargs)
            self.kept = [] if self.step is not None else list(map(copy, find_arrays(native, args, kwargs)))

        run_and_undo(run)
        return self._traced_outputs()

    def run_untraced(self) -> None:
        """Run the model on its own arrays, which are evaluated where it asks for values."""
        self.error = None

        def run(log: UndoLog) -> None:
            native, args, kwargs = self._substitute(log, copy)
            self.watcher = Watcher(Describer(self.tensors), self.request.progress)
            self._take(log, native, args, kwargs)

        run_and_undo(run)

    def looks_at_classes(self) -> bool:
        """Whether the code of a layer asks for the class of something; ours stand in for some."""
        classes = {cls for module in self._modules.values() for cls in type(module).__mro__}
        return any(map(_asks_for_class, classes - set(nn.Module.__mro__)))

    def unwatched_outputs(self) -> Forms | None:
        """What the model gives back when nobody watches it; None: it raises."""

        def run(log: UndoLog) -> Forms | None:
            native, args, kwargs = self._substitute(log, copy)
            try:
                return describe_forms(Describer().flatten(native(*args, **kwargs)))
            except (Exception, SystemExit):  # the instrumented run reports the error
                return None

        return run_and_undo(run)

    def trace_split(self) -> Graph:
        """The graph of a run once more, with calls cut apart, put together again."""
        examples = self.examples()
        graph = trace_split(self.trace, [*examples, *make_fresh_arrays(self.watcher.outputs)])
        numbers = self.numbers(graph)
        splits = self.watcher.splits.pairs if self.watcher.splits is not None else ()
        return join_graphs(graph, {numbers[id(fresh)]: numbers[id(made)] for made, fresh in splits})

    def numbers(self, graph: Graph) -> dict[int, int]:
        """The numbers of substitutes, and of all that the traced function returned, by their ids."""
        found = dict(zip(map(id, self._substitutes), graph.inputs, strict=True))
        found.update(zip(map(id, self._traced_outputs()), graph.outputs, strict=True))
        return found

    def tensor_names(self, graph: Graph) -> dict[int, str]:
        """What the model's own arrays are called, by number."""
        pairs = zip(self.arrays, graph.inputs, strict=False)  # what stands for splits comes after
        return {number: self.tensors[id(array)] for array, number in pairs if id(array) in self.tensors}

    @property
    def needs_values(self) -> bool:
        """Whether the run ended because the model asked for a value, which substitutes do not have."""
        error = self.error
        while error is not None:  # a model may raise an error of its own for it
            if isinstance(error, ValueError) and _NO_VALUES.match(str(error)):
                return True
            error = error.__cause__ or error.__context__
        return False

    def _substitute(self, log: UndoLog, substitute: Callable[[mx.array], mx.array]) -> tuple[Any, ...]:
        roots = self.native, self.inputs.args, dict(self.inputs.kwargs)
        copies, self.witness = substitute_tensors(log, make_substitution(substitute), *roots)
        return copies

    def _traced_outputs(self) -> list[mx.array]:
        """The arrays that the traced function returns, always in the same order."""
        crossed = [array for crossing in self.watcher.crossings for array in crossing.arrays]
        return [*crossed, *self.kept, *(() if self.step is None else self.step.arrays())]

    def _take(self, log: UndoLog, native: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.error = None
        self.given = Describer().arguments(args, kwargs)
        parameters = positional_names(native)
        self.names = tuple(input_name(way, parameters) for way, _ in find_leaves((args, kwargs)))
        inside = (self._modules, self._functions) if self.is_watched else ({}, [])
        try:
            watch_calls(log, *inside, self.watcher)
            output = self._run_call(native, self._call(native, args, kwargs))
        except (Exception, SystemExit) as error:
            # Whatever the user's call raises is an answer: it belongs in the report.
            raise_interruption(error)
            self.error = error
            return
        self.returned = Describer().flatten(output)
        leaving = [value for _, value in find_leaves(output)]
        arrays = iter(self.watcher.left)
        self.left = [next(arrays) if is_array(value) else None for value in leaving]
        self.is_opaque = not all(isinstance(value, _TRANSPARENT) for value in leaving)

    def _call(self, native: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[], Any]:
        if self.is_watched:
            return lambda: native(*args, **kwargs)
        return lambda: self.watcher.run("", native, args, kwargs)

    def _run_call(self, native: nn.Module, call: Callable[[], Any]) -> Any:
        """The model's output; in training, a step is taken on the way."""
        if not self.request.train:
            return call()
        self.step = take_step(native, call, self.request.loss, self.factories, self._carry_names)
        return self.step.output

    def _carry_names(self, pairs: Sequence[tuple[mx.array, mx.array]]) -> None:
        for known, new in pairs:
            if id(known) in self._names_by_id:
                self._names_by_id[id(new)] = self._names_by_id[id(known)]


def _asks_for_class(cls: type) -> bool:
    functions = (value for value in vars(cls).values() if isinstance(value, FunctionType))
    return any({"type", "__class__"} & set(function.__code__.co_names) for function in functions)


def _first_names(nodes: Iterable[tree.TreeNode]) -> Iterator[tuple[int, str]]:
    """The first name of each array, by its id."""
    seen: set[int] = set()
    for name, slot in structure.name_slots(nodes):
        if id(slot.array) not in seen:
            seen.add(id(slot.array))
            yield id(slot.array), name
