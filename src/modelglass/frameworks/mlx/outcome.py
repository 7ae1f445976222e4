"""What a traced run shows: calls, operators, dataflow, memory, and what is odd about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import mlx.core as mx

from modelglass.frameworks.mlx.failures import failure_notes
from modelglass.frameworks.mlx.graph.graph import Graph, find_makers
from modelglass.frameworks.mlx.graph.ops import (
    PlacedNode,
    build_operators,
    digest_calls,
    find_needed,
    find_owners,
)
from modelglass.frameworks.mlx.memory.measurement import measure
from modelglass.frameworks.mlx.memory.phases import Phases, assign_phases, find_initial_roles, find_memory
from modelglass.frameworks.mlx.substitution import find_arrays
from modelglass.frameworks.mlx.tracing import Tracing
from modelglass.frameworks.shared.request import Detail
from modelglass.frameworks.shared.training_notes import training_notes
from modelglass.report import Call, Dataflow, Lifetimes, Model, Note, Op, Run, RunMode


@dataclass(frozen=True)
class Outcome:
    """What one run, complete or cut short, showed."""

    run: Run
    calls: tuple[Call, ...] = ()
    ops: tuple[Op, ...] = ()
    dataflow: Dataflow | None = None
    lifetimes: Lifetimes | None = None
    notes: tuple[Note, ...] = ()
    optimizer: str | None = None  # that was asked for
    operators_unknown: bool = False


def read_graph(tracing: Tracing, graph: Graph, model: Model) -> Outcome:
    """All that a run on substitutes showed."""
    request, watcher = tracing.request, tracing.watcher
    numbers = tracing.numbers(graph)
    crossings = [(each.call, [numbers[id(array)] for array in each.arrays]) for each in watcher.crossings]
    owner = find_owners(graph, crossings)
    names = tracing.tensor_names(graph)
    known = {name: number for number, name in names.items()}
    kept = _find_kept_nodes(tracing, graph, numbers)
    found = assign_phases(graph, owner, kept, tracing.step, lambda array: numbers[id(array)], known)
    placed = found.model_nodes(graph, owner, watcher.recomputing)
    ops = build_operators(graph, placed, watcher.paths, names, request.is_free)
    return Outcome(
        run=_run(tracing, model, "fake"),
        calls=watcher.calls(digest_calls(ops, len(watcher.paths))),
        ops=() if request.detail is Detail.CALLS else ops,
        dataflow=None if tracing.error is not None else _dataflow(tracing, placed, numbers, names),
        lifetimes=_lifetimes(tracing, graph, found, numbers, model),
        optimizer=next(iter(tracing.factories), None),
        notes=(
            *_failure_notes(tracing, model),
            *_training_notes(tracing),
            *_notes(tracing, graph, _idle(tracing, graph, owner, found, model)),
        ),
    )


def read_calls(tracing: Tracing, model: Model) -> Outcome:
    """What a run on the model's own arrays showed: calls alone."""
    note = Note(
        code="real-run",
        severity="warning",
        text="what runs depends on values, so the model ran on its own arrays; calls and shapes are "
        "observed, operators and cost are not",
    )
    return Outcome(
        run=_run(tracing, model, "real"),
        calls=tracing.watcher.calls({}),
        notes=(note,) if tracing.error is None else _failure_notes(tracing, model),
        optimizer=next(iter(tracing.factories), None),
        operators_unknown=True,
    )


def measure_memory(tracing: Tracing, outcome: Outcome, model: Model) -> Outcome:
    """The same with the memory that an evaluation took."""
    if tracing.error is not None:
        return replace(outcome, run=_run(tracing, model, "real"))
    entered = map(id, find_arrays(tracing.inputs.args, dict(tracing.inputs.kwargs)))
    roles = find_initial_roles(model, tracing.tensors, entered, map(id, tracing.arrays))
    took = measure(tracing.native, tracing.inputs, tracing.request, roles, tracing.factories)
    tracing.error = took.error
    notes = (*outcome.notes, *took.notes, *_failure_notes(tracing, model))
    return replace(outcome, run=_run(tracing, model, "real"), lifetimes=took.lifetimes, notes=notes)


def _run(tracing: Tracing, model: Model, mode: RunMode) -> Run:
    types = {module.path: module.type for module in model.modules}
    error = tracing.error
    return Run(
        mode=mode,
        train=tracing.request.train,
        inputs=tracing.given,
        outputs=tracing.returned,
        failure=None if error is None else tracing.watcher.failure(error, types),
    )


def _find_kept_nodes(tracing: Tracing, graph: Graph, numbers: Mapping[int, int]) -> set[int]:
    """The places of the nodes that run: those which outputs need, and what the model leaves behind.

    All of them up to a failure, and where outputs are in objects that nobody can look into.
    """
    if tracing.error is not None or tracing.is_opaque:
        return set(range(len(graph.nodes)))
    return find_needed(graph, find_makers(graph.nodes), _evaluated_arrays(tracing, graph, numbers))


def _evaluated_arrays(tracing: Tracing, graph: Graph, numbers: Mapping[int, int]) -> list[int]:
    """What is evaluated: the outputs, and what the model and its inputs (caches) hold that they did not."""
    given = set(graph.inputs)
    outputs = [numbers[id(array)] for array in tracing.left if array is not None]
    kept = [number for array in tracing.kept if (number := numbers[id(array)]) not in given]
    return list(dict.fromkeys((*outputs, *kept)))


def _dataflow(
    tracing: Tracing, placed: Sequence[PlacedNode], numbers: Mapping[int, int], names: Mapping[int, str]
) -> Dataflow:
    flowing = {number for each in placed for number in each.node.outputs}
    flowing |= {numbers[id(array)] for array in tracing.entered if array is not None}
    flowing -= names.keys()

    def number(array: mx.array | None) -> int | None:
        found = None if array is None else numbers[id(array)]
        return found if found in flowing else None

    left = (number(array) for array in tracing.left)
    return Dataflow(
        names=tracing.names,
        inputs=tuple(map(number, tracing.entered)),
        outputs=tuple(() if each is None else (each,) for each in left),
        reads=tuple(
            tuple(dict.fromkeys(each for each in one.node.inputs if each in flowing)) for one in placed
        ),
        writes=tuple(one.node.outputs for one in placed),
    )


def _lifetimes(
    tracing: Tracing, graph: Graph, found: Phases, numbers: Mapping[int, int], model: Model
) -> Lifetimes | None:
    """The memory of the run, where it was asked for and came to its end."""
    request = tracing.request
    if tracing.error is not None or not request.detail.has_memory or request.mode == "real":
        return None
    entered = [numbers[id(array)] for array in tracing.entered if array is not None]
    return find_memory(
        graph,
        found,
        find_initial_roles(model, tracing.tensor_names(graph), entered, graph.inputs),
        _outputs(tracing, graph, found, numbers),
        tracing.step,
        lambda array: numbers[id(array)],
        tracing.watcher.paths,
        request.what_if.accumulate,
    )


def _outputs(tracing: Tracing, graph: Graph, found: Phases, numbers: Mapping[int, int]) -> list[int]:
    """The arrays that are evaluated: what comes out, or all that nothing reads where that is hidden."""
    if not tracing.is_opaque:
        return _evaluated_arrays(tracing, graph, numbers)
    read = {number for at in found.forward for number in graph.nodes[at].inputs}
    made = [number for at in sorted(found.forward) for number in graph.nodes[at].outputs]
    return [number for number in made if number not in read]


def _training_notes(tracing: Tracing) -> Iterator[Note]:
    step = tracing.step
    return training_notes(
        tracing.request,
        trained=tracing.error is not None or (step is not None and step.loss is not None),
        problems=() if step is None else step.problems,
        in_training=tracing.native.training,
    )


def _failure_notes(tracing: Tracing, model: Model) -> tuple[Note, ...]:
    failure = _run(tracing, model, "fake").failure
    return () if failure is None else tuple(failure_notes(failure, tracing.given))


def _idle(
    tracing: Tracing, graph: Graph, owner: Mapping[int, int | None], found: Phases, model: Model
) -> tuple[str, ...]:
    """The modules that compute what nothing needs.

    Under `mx.vmap` a module is called on single elements; what runs then is made from that, and reads the
    module's arrays in its place.
    """
    runs = {*found.forward, *found.backward}
    is_free, paths = tracing.request.is_free, tracing.watcher.paths
    calls = dict.fromkeys(
        owner[at]
        for at, node in enumerate(graph.nodes)
        if at in owner and at not in runs and not is_free(f"mlx.{node.primitive}")
    )
    names = tracing.tensor_names(graph)
    read = {names[number] for at in runs for number in graph.nodes[at].inputs if number in names}
    tensors = {module.path: module.tensors for module in model.modules}
    idle = dict.fromkeys("" if call is None else paths[call] for call in calls)
    return tuple(path for path in idle if read.isdisjoint(tensors.get(path, ())))


def _notes(tracing: Tracing, graph: Graph, idle: tuple[str, ...]) -> Iterator[Note]:
    request = tracing.request
    if idle:
        yield Note(
            code="unneeded-work",
            text="no output of the model needs what these modules compute, so MLX never evaluates it; "
            "it is not counted",
            where=idle,
        )
    if not tracing.is_watched:
        yield Note(
            code="unwatched",
            severity="warning",
            text="the model behaves differently when its layers are instrumented (it checks types), so its "
            "calls are not recorded, and all operators belong to the model itself",
        )
    if request.calibrate and request.mode != "real":
        yield Note(
            code="not-calibrated",
            text="MLX's kernels cannot be measured one by one; a real run measures all that they take",
        )
    if graph.unexported is not None:
        yield Note(
            code="shapes-unknown",
            severity="warning",
            text=f"MLX cannot export {graph.unexported}: inside the calls that use it shapes are not known, "
            "and neither is memory",
        )
