"""The graph of a model in which MLX cannot write down some primitive.

An export ends at such a primitive, and with it the shapes of all that runs from there on. So the model runs
once more, and what each call returns is replaced by a fresh array of the same shape: then no call needs what
runs inside another one, and only those calls are left out in which the primitive itself is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import mlx.core as mx

from modelglass.frameworks.mlx.graph.graph import Arrays, Graph, trace

ATTEMPTS = 8  # different primitives that cannot be written down


@dataclass
class CallSplits:
    """Replaces what calls return by fresh arrays, and remembers what for."""

    fresh: Arrays
    pairs: list[tuple[mx.array, mx.array]] = field(default_factory=list)  # what was returned, its substitute
    _next: int = 0

    def replace_arrays(self, output: Any, known: Mapping[int, mx.array]) -> Any:
        """The output with fresh arrays; one in an object that nobody can put together again stays.

        `known` are the arrays of the output as they are remembered, by id.
        """
        if isinstance(output, mx.array):
            return self._make_fresh(known[id(output)])
        if type(output) in (tuple, list):
            return type(output)(self.replace_arrays(each, known) for each in output)
        if type(output) is dict:
            return {key: self.replace_arrays(value, known) for key, value in output.items()}
        return output

    def _make_fresh(self, array: mx.array) -> mx.array:
        fresh = self.fresh[self._next] if self._next < len(self.fresh) else None
        self._next += 1
        if fresh is None or fresh.shape != array.shape or fresh.dtype != array.dtype:
            return array
        self.pairs.append((array, fresh))
        return fresh


def make_fresh_arrays(outputs: Sequence[Any]) -> Iterator[mx.array]:
    """Arrays like those that `replace_arrays` makes for in these outputs, in order, not evaluated."""
    for output in outputs:
        if isinstance(output, mx.array):
            yield mx.zeros(output.shape, dtype=output.dtype)
        elif type(output) in (tuple, list):
            yield from make_fresh_arrays(output)
        elif type(output) is dict:
            yield from make_fresh_arrays(list(output.values()))


def trace_split(function: Callable[[Arrays], Arrays], arrays: Arrays) -> Graph:
    """The graph of a function whose calls are cut apart, without those that cannot be written down."""
    left_out: set[int] = set()
    unexported = None
    for _ in range(ATTEMPTS):
        graph = trace(function, arrays, left_out=left_out)
        if graph.unexported is None:
            break
        unexported = graph.unexported
        left_out |= graph.behind
    return replace(graph, unexported=unexported)


def join_graphs(graph: Graph, stands_for: Mapping[int, int]) -> Graph:
    """The graph with the arrays that were cut apart as one again: by number, what each stands for."""

    def number(each: int) -> int:
        while each in stands_for:
            each = stands_for[each]
        return each

    return replace(
        graph,
        nodes=tuple(replace(node, inputs=tuple(map(number, node.inputs))) for node in graph.nodes),
        inputs=tuple(map(number, graph.inputs)),
        outputs=tuple(map(number, graph.outputs)),
    )
