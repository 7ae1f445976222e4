"""When memory is taken and given back while MLX evaluates a pass or a training step: worked out, not run.

One primitive is taken to end before the next begins. MLX itself prepares kernels ahead, and holds what they
read until they have run; with little memory left it comes close to this order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from modelglass.frameworks.mlx.graph.graph import Graph
from modelglass.frameworks.mlx.graph.order import evaluation_order
from modelglass.frameworks.mlx.memory.buffers import Allocation, Buffers, missing_shapes
from modelglass.report import Lifetimes, OptimizerStep, Step, Storage
from modelglass.report.lifetimes import Category, MemoryPhase

Owner: TypeAlias = Callable[[int], tuple[str, str, MemoryPhase]]


@dataclass(frozen=True, slots=True)
class Role:
    """What an array is to the model, and the name of the parameter, buffer or input it is or belongs to."""

    category: Category
    name: str | None = None


@dataclass(frozen=True)
class Update:
    """What one optimizer makes: `replaced` arrays of the run are nobody's any more when it begins."""

    made: Mapping[int, Role]
    replaced: Sequence[int] = ()


@dataclass(frozen=True)
class Evaluation:
    """The arrays of a graph that a run evaluates, by number, and what is what.

    `given` are there before the run. `wanted` are evaluated together and held, in that order. `roles` are
    those of arrays that the run makes; every other one is a temporary.
    """

    given: Mapping[int, Role]
    wanted: Sequence[int]
    roles: Mapping[int, Role] = field(default_factory=dict)
    updates: Mapping[str, Update] = field(default_factory=dict)  # by the optimizer's name
    train: bool = False
    rounds: int = 1  # of gradient accumulation


def find_lifetimes(graph: Graph, run: Evaluation, owner: Owner) -> Lifetimes | None:
    """The memory of a run; None when MLX does not report the size of an array it needs.

    `owner` gives the name of a node, by its place, the path of its module and its phase.
    """
    order, tails = _orders(graph, run)
    if any(True for each in (order, *tails.values()) for _ in missing_shapes(graph, each)):
        return None
    buffers = Buffers(graph, run.given)
    buffers.evaluate(order, run.wanted)
    found = _LifetimesBuilder(graph, run, owner, buffers)
    storages = found.storages(0, run.roles)
    if run.rounds > 1:
        storages += [_earlier(each) for each in storages if each.category == "gradients"]
    return Lifetimes(
        steps=found.steps(0),
        storages=tuple(storages),
        forward_steps=found.forward_steps(),
        tails={name: found.tail(tails[name], update) for name, update in run.updates.items()},
        estimated=True,
    )


def _orders(graph: Graph, run: Evaluation) -> tuple[list[int], dict[str, list[int]]]:
    """The order of the run itself, and what each optimizer evaluates beyond it.

    A training loop evaluates gradients, new weights and state at once, which decides the order of it all;
    that with the first optimizer stands for the others.
    """
    order = evaluation_order(graph.nodes, run.wanted)
    of_run = set(order)
    tails = {}
    for name, update in reversed(list(run.updates.items())):
        whole = evaluation_order(graph.nodes, [*run.wanted, *update.made])
        tails[name] = [place for place in whole if place not in of_run]
        order = [place for place in whole if place in of_run]
    return order, tails


def _earlier(gradient: Storage) -> Storage:
    """The sum of the rounds before, which is there all the time."""
    return Storage(
        nbytes=gradient.nbytes,
        category="gradients",
        shape=gradient.shape,
        dtype=gradient.dtype,
        name=gradient.name,
    )


class _LifetimesBuilder:
    """Steps and storages out of an evaluation that was followed."""

    def __init__(self, graph: Graph, run: Evaluation, owner: Owner, buffers: Buffers) -> None:
        self._graph = graph
        self._run = run
        self._owner = owner
        self._buffers = buffers

    def steps(self, since: int, *, optimizer: bool = False) -> tuple[Step, ...]:
        return tuple(
            self._step(place, scratch, optimizer)
            for place, scratch in list(zip(self._buffers.steps, self._buffers.scratch, strict=True))[since:]
        )

    def _step(self, place: int, scratch: int | None, optimizer: bool) -> Step:
        op, module, phase = self._owner(place)
        if optimizer:
            module, phase = "", "optimizer"
        return Step(op=op, module=module, phase=phase, scratch_nbytes=scratch)

    def storages(self, since: int, roles: Mapping[int, Role]) -> list[Storage]:
        """The pieces from the one at `since` on."""
        places = self._buffers.places
        named = {places[number]: role for number, role in roles.items() if number in places}
        states = [place for place, role in named.items() if role.category == "optimizer_state"]
        before = {state: self._before(state, since) for state in states}
        gone = {each for chain in before.values() for each in chain}
        found = []
        for place, piece in enumerate(self._buffers.pieces[since:], since):
            if place not in gone:
                first = self._buffers.pieces[before[place][0]] if before.get(place) else piece
                found.append(self._storage(piece, named.get(place), first.born))
        return found

    def _before(self, place: int, since: int) -> list[int]:
        """What an optimizer's state was made over, first one first: its state from the beginning."""
        chain: list[int] = []
        over = self._buffers.pieces[place].over
        while over is not None and over >= since:
            chain.insert(0, over)
            over = self._buffers.pieces[over].over
        return chain

    def _storage(self, piece: Allocation, role: Role | None, born: int | None) -> Storage:
        role = self._run.given.get(piece.number, role)
        saved_by = self._saved_by(piece)
        if role is None:
            role = Role("temporaries" if saved_by is None else "activations")
        return Storage(
            nbytes=piece.nbytes,
            category=role.category,
            born=born,
            died=piece.died,
            shape=self._graph.shapes[piece.number],
            dtype=self._graph.dtypes[piece.number],
            name=role.name,
            saved_by=saved_by,
        )

    def _saved_by(self, piece: Allocation) -> str | None:
        """The module whose backward pass reads what forward made or was given."""
        if not self._run.train or not self._is_of_forward(piece):
            return None
        readers = map(self._owner, piece.readers)
        return next((module for _, module, phase in readers if phase == "backward"), None)

    def _is_of_forward(self, piece: Allocation) -> bool:
        if piece.born is None:
            return piece.number in self._run.given
        return self._owner(self._buffers.steps[piece.born])[2] in ("forward", "loss")

    def forward_steps(self) -> int:
        """The steps until everything is there that the backward pass reads."""
        if not self._run.train:
            return len(self._buffers.steps)
        made = (p.born for p in self._buffers.pieces if p.born is not None and self._saved_by(p) is not None)
        return min(max(made, default=-1) + 1, max(len(self._buffers.steps) - 1, 0))

    def tail(self, order: Sequence[int], update: Update) -> OptimizerStep:
        """The step of one optimizer, from where the run ended."""
        buffers = self._buffers.copy()
        steps, pieces = len(buffers.steps), len(buffers.pieces)
        buffers.evaluate(order, _without_held(update.made, self._run.wanted), released=update.replaced)
        after = _LifetimesBuilder(self._graph, self._run, self._owner, buffers)
        before = self._buffers.pieces
        return OptimizerStep(
            steps=after.steps(steps, optimizer=True),
            storages=tuple(after.storages(pieces, update.made)),
            freed={
                place: now.died
                for place, (now, then) in enumerate(zip(buffers.pieces, before, strict=False))
                if now.died is not None and then.died is None
            },
        )


def _without_held(numbers: Iterable[int], held: Sequence[int]) -> list[int]:
    known = set(held)
    return [number for number in numbers if number not in known]
