"""Graphs of MLX functions: every node, with its shapes, in an order that can run, and nothing evaluated."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import pytest
from mlx import nn

from modelglass.frameworks.mlx.graph.graph import Graph, trace

X, W = mx.zeros((2, 8)), mx.zeros((8, 8))
Arrays = Sequence[mx.array]


def primitives(graph: Graph) -> list[str]:
    return [node.primitive for node in graph.nodes]


def test_a_node_has_its_arrays_shapes_and_arguments() -> None:
    graph = trace(lambda given: [mx.softmax(given[0] @ given[1], axis=-1)], [X, W])
    product, softmax = graph.nodes
    assert product.primitive == "Matmul"
    assert product.inputs == graph.inputs
    assert [graph.shapes[number] for number in product.inputs] == [(2, 8), (8, 8)]
    assert softmax.inputs == product.outputs
    assert softmax.outputs == graph.outputs
    assert softmax.arguments is not None
    assert {graph.dtypes[number] for number in graph.shapes} == {"float32"}


def test_equal_work_is_listed_as_often_as_it_is_done() -> None:
    def twice(given: Arrays) -> Arrays:
        x, w = given
        return [mx.exp(x @ w) + mx.exp(x @ w)]

    graph = trace(twice, [X, W])
    assert primitives(graph) == ["Matmul", "Exp", "Matmul", "Exp", "Add"]
    first, second = graph.nodes[1], graph.nodes[3]
    assert graph.nodes[4].inputs == (*first.outputs, *second.outputs)
    assert graph.shapes[second.outputs[0]] == (2, 8)


def test_constants_of_the_same_value_do_not_confuse_shapes() -> None:
    def scaled(given: Arrays) -> Arrays:
        x, w = given
        return [mx.where(x > 0, 2.0, 3.0), mx.where(w > 0, 2.0, 3.0), x * 2.0, w[:1] * 2.0]

    graph = trace(scaled, [X, W])
    for node in graph.nodes:
        if node.primitive == "Broadcast" and node.arguments is not None:
            assert graph.shapes[node.outputs[0]] == tuple(node.arguments[0])
        if node.primitive in ("Select", "Multiply"):
            shapes = {graph.shapes[number] for number in (*node.inputs, *node.outputs)}
            assert len(shapes) == 1


def test_slices_that_differ_in_arguments_alone_stay_apart() -> None:
    graph = trace(lambda given: [given[1][0:2] + given[1][0:2], given[1][1:5] * 1.0], [X, W])
    slices = [node for node in graph.nodes if node.primitive == "Slice"]
    assert [graph.shapes[node.outputs[0]] for node in slices] == [(2, 8), (2, 8), (4, 8)]
    assert [node.arguments and tuple(node.arguments[0]) for node in slices] == [(0, 0), (0, 0), (1, 0)]


def test_what_is_returned_may_be_given_repeated_or_passed_on() -> None:
    def strange(given: Arrays) -> Arrays:
        x, w = given
        y = mx.exp(x)
        return [w, y, y, x, mx.stop_gradient(x), mx.stop_gradient(y)]

    graph = trace(strange, [X, W])
    x, w = graph.inputs
    y = graph.nodes[0].outputs[0]
    assert primitives(graph) == ["Exp"]
    assert graph.outputs == (w, y, y, x, x, y)


def test_a_function_of_nothing_returns_nothing() -> None:
    graph = trace(lambda given: [], [X])
    assert (graph.nodes, graph.outputs, len(graph.inputs)) == ((), (), 1)


def test_what_was_there_before_is_constant() -> None:
    outside = mx.ones((8,))
    mx.eval(outside)
    graph = trace(lambda given: [given[0] + outside], [X])
    (added,) = [node for node in graph.nodes if node.primitive == "Add"]
    made = {number for node in graph.nodes for number in node.outputs}
    assert graph.constants
    assert graph.constants.isdisjoint(made | set(graph.inputs))
    assert added.inputs[0] == graph.inputs[0]


def test_compiled_functions_show_what_is_in_them() -> None:
    compiled = mx.compile(lambda x: mx.exp(x) @ x.T)
    mx.eval(compiled(X))
    assert primitives(trace(lambda given: [compiled(given[0])], [X])) == ["Exp", "Transpose", "Matmul"]


def test_behind_what_cannot_be_written_down_nodes_are_known_and_some_shapes() -> None:
    checkpointed = mx.checkpoint(lambda y: mx.exp(y) * y)

    def behind(given: Arrays) -> Arrays:
        x, w = given
        before = x @ w
        return [before, checkpointed(before) @ w]

    graph = trace(behind, [X, W])
    assert graph.unexported == "CustomTransforms"
    assert primitives(graph) == ["Matmul", "Exp", "Multiply", "Matmul"]
    last = graph.nodes[-1]
    assert graph.shapes[last.outputs[0]] == (2, 8)
    assert graph.shapes[last.inputs[1]] == (8, 8)
    assert last.inputs[0] == graph.nodes[2].outputs[0]
    assert last.inputs[0] not in graph.shapes


def test_other_errors_of_the_function_are_its_own() -> None:
    def fails(given: Arrays) -> Arrays:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        trace(fails, [X])


def test_nothing_is_evaluated() -> None:
    before = mx.get_active_memory()
    large = nn.Linear(50_000, 50_000)
    graph = trace(lambda given: [given[0] @ given[1].T], [mx.zeros((1, 50_000)), large.weight])
    assert graph.shapes[graph.outputs[0]] == (1, 50_000)
    assert mx.get_active_memory() - before < 2**20


@pytest.mark.parametrize(
    "layer",
    [nn.TransformerEncoderLayer(16, 2), nn.LSTM(16, 8), nn.GRU(16, 8)],
    ids=["encoder", "lstm", "gru"],
)
def test_every_node_can_run_when_its_turn_comes(layer: nn.Module) -> None:
    call = (lambda x: layer(x, None)) if isinstance(layer, nn.TransformerEncoderLayer) else layer
    graph = trace(lambda given: [mx.sum(_first(call(given[0])))], [mx.zeros((2, 5, 16))])
    there = {*graph.inputs, *graph.constants}
    for node in graph.nodes:
        assert there.issuperset(node.inputs)
        there.update(node.outputs)
    assert there.issuperset(graph.outputs)
    assert there <= graph.shapes.keys()


def _first(output: object) -> mx.array:
    while not isinstance(output, mx.array):
        assert isinstance(output, tuple)
        output = output[0]
    return output
