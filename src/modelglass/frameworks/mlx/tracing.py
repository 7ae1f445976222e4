"""A run of an MLX model on stand-ins for all its arrays: what it was given, called and gave back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import mlx.core as mx
from mlx import nn

from modelglass.frameworks.borrow import borrowed
from modelglass.frameworks.mlx import structure
from modelglass.frameworks.mlx.accounts import factories
from modelglass.frameworks.mlx.calls import Watcher, watching
from modelglass.frameworks.mlx.describe import Describer, is_array, ways_in
from modelglass.frameworks.mlx.graph import Graph
from modelglass.frameworks.mlx.inputs import dtype_named
from modelglass.frameworks.mlx.loan import arrays_of, loan
from modelglass.frameworks.mlx.pieces import Cuts, fresh_arrays, put_together, traced_in_pieces
from modelglass.frameworks.mlx.training import Trained, trained
from modelglass.frameworks.request import Inputs, Request
from modelglass.frameworks.signatures import input_name, positional
from modelglass.report import Value

_TRANSPARENT = (mx.array, bool, int, float, complex, str, bytes, type(None))
_NO_VALUES = "[eval] Attempting to eval an array during function transformations"


class Tracing:
    """One run being observed."""

    def __init__(self, native: nn.Module, inputs: Inputs, request: Request) -> None:
        self.native = native
        self.inputs = inputs
        self.request = request
        self.arrays = list(arrays_of(native, inputs.args, dict(inputs.kwargs)))
        self.tensors = dict(_first_names(native))  # names by the array's id
        self.watcher = Watcher(Describer())
        self.error: BaseException | None = None
        self.given: tuple[Value, ...] = ()
        self.returned: tuple[Value, ...] = ()
        self.names: tuple[str, ...] = ()  # what the model's signature calls each input
        self.entered: list[mx.array | None] = []
        self.left: list[mx.array | None] = []
        self.is_opaque = False  # outputs are in objects that nobody can look into
        self.step: Trained | None = None
        self._stand_ins: Sequence[mx.array] = ()
        self._stand_in_names: Mapping[int, str] = {}  # by the stand-in's id
        self._modules = dict(structure.walk(native))
        self._functions = list(structure.functions(native))
        self._factories = factories(request)
        self._told: dict[int, str] = {}  # names by the id of whatever stands in for an array

    def examples(self) -> list[mx.array]:
        """Arrays like the model's and its inputs', of other element types where that is asked for."""
        if self.request.what_if.weights is None:
            return self.arrays
        dtype = dtype_named(self.request.what_if.weights)
        floating = [mx.issubdtype(array.dtype, mx.floating) for array in self.arrays]
        return [a.astype(dtype) if cast else a for a, cast in zip(self.arrays, floating, strict=True)]

    def trace(self, stand_ins: Sequence[mx.array]) -> Sequence[mx.array]:
        """Run the model on stand-ins for its arrays; what crossed the border of a call is the result."""
        self._stand_ins = stand_ins
        stand_ins, fresh = stand_ins[: len(self.arrays)], stand_ins[len(self.arrays) :]
        by_id = {id(array): each for array, each in zip(self.arrays, stand_ins, strict=True)}
        names = {id(by_id[key]): name for key, name in self.tensors.items() if key in by_id}
        self._stand_in_names = names
        roots = self.native, self.inputs.args, dict(self.inputs.kwargs)
        with borrowed(loan(lambda array: by_id.get(id(array), array)), *roots) as (native, args, kwargs):
            self._told = dict(names)
            cuts = Cuts(fresh) if fresh else None
            self.watcher = Watcher(Describer(self._told), self.request.progress, cuts)
            self._take(native, args, kwargs)
        return self._traced()

    def alone(self) -> None:
        """Run the model on its own arrays, which are evaluated where it asks for values."""
        self.error = None
        roots = self.native, self.inputs.args, dict(self.inputs.kwargs)
        with borrowed(loan(lambda array: array), *roots) as (native, args, kwargs):
            self.watcher = Watcher(Describer(self.tensors), self.request.progress)
            self._take(native, args, kwargs)

    def in_pieces(self) -> Graph:
        """The graph of a run once more, with calls cut apart, put together again."""
        examples = self.examples()
        graph = traced_in_pieces(self.trace, [*examples, *fresh_arrays(self.watcher.outputs)])
        numbers = self.numbers(graph)
        cuts = self.watcher.cuts.pairs if self.watcher.cuts is not None else ()
        return put_together(graph, {numbers[id(fresh)]: numbers[id(made)] for made, fresh in cuts})

    def numbers(self, graph: Graph) -> dict[int, int]:
        """The numbers of stand-ins, and of all that the traced function returned, by their ids."""
        found = dict(zip(map(id, self._stand_ins), graph.inputs, strict=True))
        found.update(zip(map(id, self._traced()), graph.outputs, strict=True))
        return found

    def tensor_names(self, numbers: Mapping[int, int]) -> dict[int, str]:
        """What the model's own arrays are called, by number."""
        return {numbers[key]: name for key, name in self._stand_in_names.items()}

    @property
    def needs_values(self) -> bool:
        """Whether the run ended because the model asked for a value, which stand-ins do not have."""
        error = self.error
        while error is not None:  # a model may raise an error of its own for it
            if isinstance(error, ValueError) and str(error).startswith(_NO_VALUES):
                return True
            error = error.__cause__ or error.__context__
        return False

    def _traced(self) -> list[mx.array]:
        """The arrays that the traced function returns, always in the same order."""
        crossed = [array for crossing in self.watcher.crossings for array in crossing.arrays]
        return crossed if self.step is None else [*crossed, *self.step.arrays()]

    def _take(self, native: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.given = Describer().arguments(args, kwargs)
        entering = list(ways_in((args, kwargs)))
        parameters = positional(native)
        self.names = tuple(input_name(way, parameters) for way, _ in entering)
        self.entered = [value if is_array(value) else None for _, value in entering]
        try:
            with watching(self._modules, self._functions, self.watcher):
                output = self._called(native, lambda: native(*args, **kwargs))
        except (Exception, SystemExit) as error:
            # Whatever the user's call raises is an answer: it belongs in the report.
            self.error = error
            return
        self.returned = Describer().flatten(output)
        leaving = [value for _, value in ways_in(output)]
        self.left = [value if is_array(value) else None for value in leaving]
        self.is_opaque = not all(isinstance(value, _TRANSPARENT) for value in leaving)

    def _called(self, native: nn.Module, call: Callable[[], Any]) -> Any:
        """The model's output; in training, a step is taken on the way."""
        if not self.request.train:
            return call()
        self.step = trained(native, call, self.request.loss, self._factories, self._renamed)
        return self.step.output

    def _renamed(self, pairs: Sequence[tuple[mx.array, mx.array]]) -> None:
        for known, new in pairs:
            if id(known) in self._told:
                self._told[id(new)] = self._told[id(known)]


def _first_names(native: nn.Module) -> Iterator[tuple[int, str]]:
    """The first name of each array, by its id."""
    seen: set[int] = set()
    for name, array in structure.named_arrays(native):
        if id(array) not in seen:
            seen.add(id(array))
            yield id(array), name
