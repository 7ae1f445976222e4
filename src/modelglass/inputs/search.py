"""The search: the trial that came farthest is repaired first, until one runs or the budget is used up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import count, islice
from math import prod
from typing import TypeAlias

from modelglass.inputs.described import BATCH, FLOAT, LENGTH, Call, Path, Tensor, sides
from modelglass.inputs.given import Fixed
from modelglass.inputs.repairs import Evidence, repairs
from modelglass.inputs.signature import Parameter
from modelglass.inputs.start import optional_node, starts
from modelglass.inputs.trial import Trial, Want

Try: TypeAlias = Callable[[Call], Trial]
TRIALS = 200
ENOUGH = 40  # trials that end alike
_LARGEST = 1 << 20  # size that is tried
_MOST_ELEMENTS = 1 << 31  # of an input that is tried
_COMPARED = 12  # trials that ended at the same layer
MORE = 40  # trials after one that ran, but mixed its batch
POSITIONS = "positions"  # the hint that says how many a table of learned ones has
_LETTERS = {4: "HW", 5: "DHW"}  # of sides


@dataclass(frozen=True, kw_only=True)
class Model:
    """What is known of a model before it runs."""

    parameters: Sequence[Parameter]
    wants: Sequence[tuple[str, Want]] = ()  # of its layers, in their order
    hints: dict[str, int] = field(default_factory=dict)  # whole numbers among its attributes
    parts: int = 0  # of its longest list of modules


@dataclass(frozen=True, kw_only=True)
class Found:
    """The end of a search. `trial` is that of `call`; where it did not run, the one that came farthest."""

    call: Call | None
    trial: Trial | None
    trials: int
    free: tuple[tuple[str, tuple[tuple[Path, int], ...]], ...] = ()  # sizes that can change, by letter
    seconds_over: bool = False
    effect: str = ""  # of the forward pass, besides computing: then there is one trial only


class Search:
    """Looks for a call that runs. The same model gives the same call, unless time runs out."""

    def __init__(self, model: Model, run: Try, *, seconds: float, fixed: Fixed | None = None) -> None:
        self._model = model
        self._run = run
        self._until = time.monotonic() + seconds
        self._fixed = fixed or Fixed()
        self._known: dict[Call, Trial] = {}
        self.best: tuple[Call, Trial] | None = None
        self.on_trial: Callable[[Found], None] = lambda found: None
        self.effect: Callable[[], str] = lambda: ""

    def found(self) -> Found:
        """Inputs that run, in ordinary sizes, with what can change of them."""
        call = self._first_that_runs()
        if call is None:
            return self._failed(over=self._is_over())
        self.on_trial(Found(call=call, trial=self._known[call], trials=len(self._known)))
        call = self._at_own_length(self._single(call))
        return Found(
            call=call,
            trial=self._known[call],
            free=tuple(self._free(call)),
            trials=len(self._known),
            effect=self.effect(),
        )

    def _failed(self, *, over: bool) -> Found:
        best, trial = self.best or (None, None)
        return Found(call=best, trial=trial, trials=len(self._known), seconds_over=over, effect=self.effect())

    def _is_over(self) -> bool:
        return bool(self.effect()) or len(self._known) >= TRIALS or time.monotonic() > self._until

    def _first_that_runs(self) -> Call | None:
        # By how far the repaired trial came, then by how many likelier repairs there were on the way.
        queue: list[tuple[int, int, int, Call]] = []
        numbers = count()
        mixed: Call | None = None
        more = 0
        model = self._model
        for index, call in enumerate(starts(model.parameters, model.wants, model.hints, model.parts)):
            heappush(queue, (-(1 << 30), index, next(numbers), self._kept(self._fixed.followed(call))))
        optional = tuple(
            (each.name, optional_node(each, model.wants, model.hints, model.parts))
            for each in model.parameters
            if not each.required and each.default is None and each.may_be_tensor
        )
        while queue and not self._is_over() and not self._is_hopeless():
            depth, cost, _, call = heappop(queue)
            if call in self._known:
                continue
            trial = self._try(call)
            if trial.ran and not _is_mixed(call, trial):
                return call
            if trial.ran:  # better than nothing
                mixed = mixed or call
            if mixed is not None and len(self._known) > more:
                break
            more = more if mixed is not None else len(self._known) + MORE
            cost = 0 if -trial.depth < depth else cost + 1
            for other in map(self._kept, self._solved(call, trial)):
                heappush(queue, (-trial.depth, -1, next(numbers), other))
            for index, other in enumerate(repairs(Evidence(call, trial, optional, model.hints))):
                other = self._kept(other)
                if other not in self._known and _is_sensible(other):
                    heappush(queue, (-trial.depth, cost + index, next(numbers), other))
        return mixed

    def _solved(self, call: Call, trial: Trial) -> Iterator[Call]:
        """Two trials that ended at one layer, and differ in one size of one input, show how it follows."""
        if trial.gap is None:
            return
        met, wanted = trial.gap
        alike = (
            (other, its.gap[0])
            for other, its in reversed(self._known.items())
            if its.module == trial.module and its.gap is not None and its.gap[0] != met
        )
        for other, its_met in islice(alike, _COMPARED):
            place = _difference(call, other)
            if place is None:
                continue
            path, dims, size, another = place
            root = 1 / len(dims)
            step = (wanted**root - met**root) / (its_met**root - met**root)
            solved = size + round(step * (another - size))
            if 0 < solved < _LARGEST:
                yield _changed(call, [(path, dim) for dim in dims], solved)

    def _is_hopeless(self) -> bool:
        """Whether many different inputs ended in the same way before anything ran."""
        ends = {(each.depth, each.error, each.message, each.line) for each in self._known.values()}
        return len(self._known) >= ENOUGH and len(ends) == 1

    def _kept(self, call: Call) -> Call:
        """The call with what the user has fixed."""
        return self._fixed.kept(call)

    def _try(self, call: Call) -> Trial:
        trial = self._known.get(call)
        if trial is None:
            trial = self._known[call] = self._run(call)
            if self.best is None or trial.depth > self.best[1].depth:
                self.best = call, trial
            if not any(each.ran for each in self._known.values()):
                self.on_trial(self._failed(over=True))
        return trial

    def _runs(self, call: Call) -> bool:
        return not self._is_over() and self._try(call).ran

    def _single(self, call: Call) -> Call:
        """The call with a batch of one, if that runs."""
        if self._fixed.nodes:
            return call
        single = call.having_all(
            {
                path: replace(each, shape=(1, *each.shape[1:]))
                for path, each in call.tensors().items()
                if each.shape[:1] == (BATCH,)
            }
        )
        return single if single != call and self._runs(single) else call

    def _at_own_length(self, call: Call) -> Call:
        """The call with sequences of values as long as the model's table of positions, if that runs."""
        if self._fixed.nodes:
            return call
        length, tensors = self._model.hints.get(POSITIONS), call.tensors()
        lengths = (place for letter, group in _groups(call) if letter == "L" for place in group)
        places = [(path, dim) for path, dim in lengths if tensors[path].shape[dim] == LENGTH]
        if length is None or not places or any(tensors[path].dtype != FLOAT for path, _ in places):
            return call
        longer = _changed(call, places, length)
        return longer if self._runs(longer) else call

    def _free(self, call: Call) -> Iterator[tuple[str, tuple[tuple[Path, int], ...]]]:
        used: dict[str, int] = {}
        tensors = call.tensors()
        for letter, places in _groups(call):
            if any(path[0] in self._fixed.nodes for path, _ in places):
                continue
            size = tensors[places[0][0]].shape[places[0][1]]
            if not any(
                self._runs(_changed(call, places, other))
                for other in (2 * size, size + 1 if size < 3 else size // 2)
            ):
                continue
            used[letter] = used.get(letter, 0) + 1
            yield letter if used[letter] == 1 else f"{letter}{used[letter]}", places


def _is_sensible(call: Call) -> bool:
    return all(prod(each.shape) < _MOST_ELEMENTS for each in call.tensors().values())


def _difference(call: Call, other: Call) -> tuple[Path, tuple[int, ...], int, int] | None:
    """The one size that differs between two calls: of which input, in which dimensions, and both sizes."""
    mine, its = call.tensors(), other.tensors()
    if mine.keys() != its.keys():
        return None
    changed = [path for path in mine if mine[path] != its[path]]
    if len(changed) != 1 or len(mine[changed[0]].shape) != len(its[changed[0]].shape):
        return None
    pairs = enumerate(zip(mine[changed[0]].shape, its[changed[0]].shape, strict=True))
    places = {dim: both for dim, both in pairs if both[0] != both[1]}
    if len(set(places.values())) != 1:
        return None
    size, another = next(iter(places.values()))
    return changed[0], tuple(places), size, another


def _is_mixed(call: Call, trial: Trial) -> bool:
    """Whether pictures of a batch run into each other, as where a view takes in what should be apart."""
    batches = {each.shape[0] for each in call.tensors().values() if len(each.shape) >= 4}
    return bool(batches) and bool(trial.outputs) and not any(batches & set(each) for each in trial.outputs)


def _groups(call: Call) -> list[tuple[str, tuple[tuple[Path, int], ...]]]:
    """Places of one size, which change together: batches, heights, widths, lengths. No channels."""
    found: dict[tuple[str, int], list[tuple[Path, int]]] = {}
    for path, each in call.tensors().items():
        rank = len(each.shape)
        for dim, size in enumerate(each.shape):
            if rank in _LETTERS:
                places = sides(each.shape)
                letter = "B" if dim == 0 else _LETTERS[rank][places.index(dim)] if dim in places else ""
            else:
                letter = "B" if dim == 0 else "L"
            if letter and size > 0:
                found.setdefault((letter, size), []).append((path, dim))
    return [(letter, tuple(places)) for (letter, _), places in found.items()]


def _sized(call: Call, path: Path, dim: int, size: int) -> Tensor:
    """An input with another size."""
    tensor = call.tensors()[path]
    return replace(tensor, shape=(*tensor.shape[:dim], size, *tensor.shape[dim + 1 :]))


def _changed(call: Call, places: Sequence[tuple[Path, int]], size: int) -> Call:
    for path, dim in places:
        call = call.having(path, _sized(call, path, dim, size))
    return call
