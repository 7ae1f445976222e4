"""What a traced run did in which phase, and the memory that follows from it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import mlx.core as mx

from modelglass.frameworks.mlx.graph.backward import match_backward_calls
from modelglass.frameworks.mlx.graph.graph import Graph, Node, find_makers
from modelglass.frameworks.mlx.graph.ops import PlacedNode, find_needed
from modelglass.frameworks.mlx.graph.primitives import public_name
from modelglass.frameworks.mlx.memory.lifetimes import Evaluation, Role, Update, find_lifetimes
from modelglass.frameworks.mlx.training.step import TrainingStep
from modelglass.report import Lifetimes, Model
from modelglass.report.lifetimes import MemoryPhase

Number = Callable[[mx.array], int]


@dataclass(frozen=True)
class Phases:
    """The nodes of a run by their places, each with its call: None for what ran in none."""

    forward: Mapping[int, int | None]
    loss: frozenset[int] = frozenset()
    backward: Mapping[int, int | None] = field(default_factory=dict)

    def model_nodes(
        self, graph: Graph, owner: Mapping[int, int | None], recomputing: Collection[int]
    ) -> list[PlacedNode]:
        """The nodes that are the model's own work: no loss, no optimizer.

        Those of the calls in `recomputing` belong to them, as given by `owner`.
        """
        before = [PlacedNode(graph.nodes[at], call) for at, call in sorted(self.forward.items())]
        after = []
        for at, call in sorted(self.backward.items()):
            again = owner.get(at)
            if again in recomputing:
                after.append(PlacedNode(graph.nodes[at], again, "recompute"))
            else:
                after.append(PlacedNode(graph.nodes[at], call, "backward"))
        return before + after

    def phase(self, place: int) -> MemoryPhase:
        if place in self.backward:
            return "backward"
        if place in self.loss:
            return "loss"
        return "forward" if place in self.forward else "optimizer"

    def call(self, place: int) -> int | None:
        return self.forward[place] if place in self.forward else self.backward.get(place)


def assign_phases(
    graph: Graph,
    owner: Mapping[int, int | None],
    kept: Iterable[int],
    step: TrainingStep | None,
    number: Number,
    parameters: Mapping[str, int],
) -> Phases:
    """`kept` are the nodes of the forward pass; `parameters` are numbers by name."""
    forward = {place: owner.get(place) for place in kept}
    if step is None or step.loss is None:
        return Phases(forward)
    made_by = find_makers(graph.nodes)
    for place in find_needed(graph, made_by, map(number, step.statistics.values()), known=forward):
        forward[place] = owner.get(place)
    loss = find_needed(graph, made_by, [number(step.loss)], known=forward)
    before = {**forward, **dict.fromkeys(loss)}
    gradients = {name: number(array) for name, array in step.gradients.items()}
    backward = sorted(find_needed(graph, made_by, gradients.values(), known=before))
    of = {parameters[name]: [each] for name, each in gradients.items() if name in parameters}
    return Phases(forward, frozenset(loss), match_backward_calls(graph, before, backward, of))


def find_initial_roles(
    model: Model, names: Mapping[int, str], entered: Iterable[int], given: Iterable[int]
) -> dict[int, Role]:
    """What the arrays are that were there before; `names` are of the model's, `entered` came as inputs."""
    kinds = {tensor.name: tensor.kind for tensor in model.tensors}
    came = set(entered)
    return {number: _initial_role(names.get(number), kinds, inputs=number in came) for number in given}


def _initial_role(name: str | None, kinds: Mapping[str, str], *, inputs: bool) -> Role:
    if name is None:
        return Role("inputs" if inputs else "buffers")
    return Role("parameters" if kinds.get(name, "parameter") == "parameter" else "buffers", name)


def find_memory(
    graph: Graph,
    found: Phases,
    given: Mapping[int, Role],
    outputs: Sequence[int],
    step: TrainingStep | None,
    number: Number,
    paths: Sequence[str],
    rounds: int,
) -> Lifetimes | None:
    """The memory of a pass whose outputs are evaluated, or of a training step."""

    def owner(place: int) -> tuple[str, str, MemoryPhase]:
        call = found.call(place)
        return _op(graph.nodes[place]), "" if call is None else paths[call], found.phase(place)

    run = Evaluation(given, outputs)
    if step is not None and step.loss is not None:
        run = replace(_evaluate_step(step, number, given), rounds=rounds)
    return find_lifetimes(graph, run, owner)


def _op(node: Node) -> str:
    return public_name(node.primitive, node.arguments or ())


def _evaluate_step(step: TrainingStep, number: Number, given: Mapping[int, Role]) -> Evaluation:
    names = {role.name: each for each, role in given.items()}
    gradients = {number(array): Role("gradients", name) for name, array in step.gradients.items()}
    statistics = {number(array): Role("buffers", name) for name, array in step.statistics.items()}
    loss = [] if step.loss is None else [number(step.loss)]
    updates = {}
    for optimizer, taken in step.taken.items():
        made = {number(array): Role("parameters", name) for name, array in taken.parameters.items()}
        made |= {number(array): Role("optimizer_state", name) for name, array in taken.state}
        replaced = [names[name] for name in taken.parameters if name in names]
        updates[optimizer] = Update(made, replaced)
    return Evaluation(
        given, [*loss, *gradients, *statistics], {**gradients, **statistics}, updates, train=True
    )
