"""The ledger of memory: which kernel took each piece, what it is for, and when the last tensor in it went.

A storage is followed from the kernel whose result first showed it until torch itself lets go of it, on fake
tensors as on real ones. Lifetimes are thus observed, never derived: what autograd keeps, what Python still
names, what a checkpoint throws away and makes again.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, TypeAlias

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from modelglass.frameworks.describing import joined
from modelglass.frameworks.torch import in_place, structure
from modelglass.frameworks.torch.calibration import Answer, Probe, Question, Taken
from modelglass.frameworks.torch.describe import dtype_name, memory_of, shape_of, tensors_among
from modelglass.frameworks.torch.digest import is_work
from modelglass.frameworks.torch.naming import kernel_name, overload_name
from modelglass.frameworks.torch.process import during
from modelglass.frameworks.torch.recorder import Place
from modelglass.frameworks.torch.saved import Saved
from modelglass.report import Category, Lifetimes, MemoryPhase, Step, Storage, Tail

Owner: TypeAlias = Callable[[], Place]  # of the kernel that is about to run
Run: TypeAlias = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
_GIVEN = ("parameters", "buffers", "inputs")
Named: TypeAlias = Iterable[tuple[str, torch.Tensor]]


@dataclass(slots=True, eq=False)
class _Record:
    """One storage being followed."""

    index: int  # among the records of the run, or of one optimizer
    nbytes: int
    category: Category
    born: int | None
    shape: tuple[int, ...] | None
    dtype: torch.dtype
    name: str | None
    died: int | None = None
    saved_by: str | None = None
    reference: Any = None  # a weak one, whose end is the storage's end
    in_tail: bool = False
    node: int | None = None  # of autograd, at work when it was made

    def storage(self) -> Storage:
        return Storage(
            nbytes=self.nbytes,
            category=self.category,
            born=self.born,
            died=self.died,
            shape=self.shape,
            dtype=dtype_name(self.dtype),
            name=self.name,
            saved_by=self.saved_by,
        )


@dataclass(slots=True, eq=False)
class _Ran:
    """One kernel that ran, and what has to be measured to know its scratch."""

    func: Any
    module: str
    phase: MemoryPhase
    question: Question | None
    made: list[_Record | None] = field(default_factory=list)  # by result; None: in memory that was there
    numbers_nbytes: int = 0
    reuses: Sequence[_Record | None] = ()  # in whose memory a real run would put the result

    @property
    def made_nbytes(self) -> int:
        return self.numbers_nbytes + sum(record.nbytes for record in self.made if record is not None)


@dataclass(slots=True, eq=False)
class _Part:
    """The run itself, or what one optimizer did after it."""

    steps: list[_Ran] = field(default_factory=list)
    records: list[_Record] = field(default_factory=list)
    storages: tuple[Storage, ...] = ()  # as they are when the part ends
    freed: dict[int, int] = field(default_factory=dict)


class Ledger:
    """Follows the memory of one run."""

    def __init__(self, owner: Owner, probe: Probe | None = None, *, saving: bool = False) -> None:
        self._owner = owner
        self._probe = probe
        self._saving = saving
        self._run = self._part = _Part()
        self._tails: dict[str, _Part] = {}
        self._live: dict[int | None, _Record] = {}
        self._phase: MemoryPhase | None = None
        self._forward_steps: int | None = None
        self._node: int | None = None  # the autograd node at work
        self._numbers: dict[int, list[_Record]] = {}  # by the node that keeps them
        self._paused = False
        self._before = False  # what is made now is there before the first step

    def paused(self) -> AbstractContextManager[None]:
        """What runs inside is ours, not the model's."""
        return during(self, _paused=True)

    def base(self, category: Category, named: Named) -> None:
        """Tensors that are there before the run; memory that is already known stays what it is."""
        for name, tensor in named:
            for piece in _pieces(tensor):
                if piece.untyped_storage()._cdata not in self._live:
                    self._open(piece, None, category, name)

    def on_kernel(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], run: Run) -> Any:
        """Have `run` run the kernel, and enter what it made."""
        if self._paused or not _makes(func):
            return run(func, args, kwargs)
        if self._before:
            return self._met_before(run(func, args, kwargs))
        place = self._owner() if self._phase is None else Place("", self._phase)
        if place.node != self._node:
            self._release(self._node)
            self._node = place.node
        question = None if self._probe is None else self._probe.question(func, args, kwargs)
        step = _Ran(func, place.module, place.phase, question)
        step.reuses = self._reused(func, args, place)
        at = self._now()
        self._part.steps.append(step)
        result = run(func, args, kwargs)
        for tensor in in_place.results(func, result, place):
            self._meet(tensor, at, step)
        self._count_numbers(func, args, result, step, place)
        if self._probe is not None and question is not None:
            self._probe.made(question, result)
        return result

    def appeared(self, tensor: torch.Tensor) -> None:
        """A tensor that torch made without any kernel, such as the state of a random generator."""
        self._meet(tensor, self._now(), None)

    def phase(self, phase: MemoryPhase) -> AbstractContextManager[None]:
        """What runs inside belongs to no module."""
        return during(self, _phase=phase)

    def saving(self) -> AbstractContextManager[Any]:
        """Have autograd tell what it saves for the backward pass, where that is wanted."""
        if not self._saving:
            return nullcontext()
        return torch.autograd.graph.saved_tensors_hooks(self._saved, Saved.given_back)

    def forward_ended(self) -> None:
        """The loss and the backward pass come next."""
        self._forward_steps = self._now()

    def declare(self, category: Category, named: Named) -> None:
        """Say what memory is for that kernels made."""
        for name, tensor in named:
            for piece in _pieces(tensor):
                record = self._live.get(piece.untyped_storage()._cdata)
                if record is not None and record.category not in _GIVEN:
                    record.category, record.name = category, name

    def run_ended(self) -> None:
        """What is let go of from here on was held to the end."""
        self._end(self._run)

    @contextmanager
    def tail(self, name: str) -> Iterator[None]:
        """What one optimizer does; each of several starts where the run ended."""
        self._part = part = _Part()
        try:
            with self.phase("optimizer"):
                yield
            self._end(part)
            self._tails[name] = part
        finally:
            self._part = self._run

    @contextmanager
    def before(self) -> Iterator[None]:
        """What an optimizer makes when it is made is there before the first step."""
        with during(self, _before=True):
            yield
        self._part.records = [record for record in self._part.records if record.died is None]
        for index, record in enumerate(self._part.records):
            record.index = index

    def lifetimes(self) -> Lifetimes:
        """All that was observed; scratch is measured now where that is wanted."""
        answers = {} if self._probe is None else self._probe.answers()
        parts = [self._run, *self._tails.values()]
        for part in parts:
            _resize_results(part, answers)
        forward = self._forward_steps
        return Lifetimes(
            steps=_steps(self._run, answers),
            storages=self._run.storages,
            forward_steps=len(self._run.steps) if forward is None else forward,
            tells_saved=self._saving,
            tails={
                name: Tail(steps=_steps(part, answers), storages=part.storages, freed=part.freed)
                for name, part in self._tails.items()
            },
            calibrated=self._probe is not None,
            missing=_missing(parts, answers),
        )

    def _now(self) -> int:
        """The number of the next step."""
        before = 0 if self._part is self._run else len(self._run.steps)
        return before + len(self._part.steps)

    def _end(self, part: _Part) -> None:
        before = 0 if part is self._run else len(self._run.steps)
        for at, step in enumerate(part.steps, before):
            _reuse(step, at)
        part.storages = tuple(record.storage() for record in part.records)

    def _met_before(self, result: Any) -> Any:
        for tensor in tensors_among(result):
            self._meet(tensor, None, None)
        return result

    def _meet(self, tensor: torch.Tensor, at: int | None, step: _Ran | None) -> None:
        """Enter a tensor's memory where it is new or has another size."""
        for piece in _pieces(tensor):
            storage = piece.untyped_storage()
            record = self._live.get(storage._cdata)
            if record is None:
                record = self._open(piece, at, "temporaries")
            elif record.nbytes != storage.nbytes():
                record.reference = None  # the storage lives on, and is another piece of memory from here on
                self._close(storage._cdata, None)
                record = self._open(piece, at, record.category, record.name)
            else:
                record = None
            if step is not None:
                step.made.append(record)

    def _reused(self, func: Any, args: tuple[Any, ...], place: Place) -> list[_Record | None]:
        """The memory that a real run may put the result into."""
        if in_place.is_sum_of_gradients(func, args, place):
            if args[0]._is_view():  # the engine writes to nothing that others may look at
                return []
            old, new = (self._live.get(memory_of(tensor)) for tensor in args[:2])
            # The engine adds to what an earlier node gave; a sum inside one node's formula is another matter.
            return [old, new] if old is not None and old.node != place.node else []
        return [self._live.get(memory_of(tensor)) for tensor in in_place.written(func, args, place)]

    def _count_numbers(self, func: Any, args: tuple[Any, ...], result: Any, step: _Ran, place: Place) -> None:
        """A number in a tensor's place becomes a tensor while the kernel runs, and once more in its type.

        The first of the two lives on where the gradient needs it; hooks do not show that.
        """
        for position in _tensor_places(func):
            if position >= len(args) or type(args[position]) not in _WIDE:
                continue
            wide = _WIDE[type(args[position])]
            dtype = result.dtype if isinstance(result, torch.Tensor) else wide
            if dtype is not wide:
                self._entered(dtype.itemsize, dtype, step)
            if place.node in self._numbers:
                continue  # the node has it as a tensor already
            number = self._entered(wide.itemsize, wide, step)
            if self._saving and _keeps_number(func) and _trains(args) and torch.is_grad_enabled():
                number.died = None
                number.category = "activations"
                newest = torch._C._autograd._get_sequence_nr() - 1
                self._numbers.setdefault(newest, []).append(number)

    def _entered(self, nbytes: int, dtype: torch.dtype, step: _Ran) -> _Record:
        """A record of memory that no tensor of ours shows, gone with the kernel."""
        step.numbers_nbytes += nbytes
        at, records = self._now() - 1, self._part.records
        record = _Record(len(records), nbytes, "temporaries", at, (), dtype, None, at)
        record.in_tail = self._part is not self._run
        records.append(record)
        return record

    def _release(self, node: int | None) -> None:
        """A node of autograd has done its work, and lets go of its numbers."""
        for number in self._numbers.pop(node, ()) if node is not None else ():
            number.died = self._now() - 1

    def _open(
        self, tensor: torch.Tensor, born: int | None, category: Category, name: str | None = None
    ) -> _Record:
        storage = tensor.untyped_storage()
        key = storage._cdata
        records = self._part.records
        record = _Record(len(records), storage.nbytes(), category, born, shape_of(tensor), tensor.dtype, name)
        record.in_tail = self._part is not self._run
        record.node = self._node
        record.reference = weakref.ref(storage, partial(self._close, key))
        records.append(record)
        self._live[key] = record
        return record

    def _close(self, key: int, reference: object) -> None:
        record = self._live.pop(key)
        last = self._now() - 1
        if self._part is self._run or record.in_tail:
            record.died = last
        else:
            self._part.freed[record.index] = last

    def _saved(self, tensor: torch.Tensor) -> Saved:
        for piece in _pieces(tensor):
            record = self._live.get(piece.untyped_storage()._cdata)
            if record is not None and record.saved_by is None:
                record.saved_by = self._owner().module
                if record.category == "temporaries":
                    record.category = "activations"
        with self.paused():
            return Saved(tensor)


def _reuse(step: _Ran, at: int) -> None:
    """Let the result take the place of what was written to, if nothing else held that any longer."""
    made = step.made[0] if step.reuses and step.made else None
    if made is None:
        return
    for record in step.reuses:
        if record is not None and record.died == at and record.nbytes == made.nbytes:
            record.died = at - 1
            return


def _steps(part: _Part, answers: Mapping[Question, Answer]) -> tuple[Step, ...]:
    return tuple(
        Step(
            op=kernel_name(ran.func),
            module=ran.module,
            phase=ran.phase,
            scratch_nbytes=_scratch(ran, answers),
        )
        for ran in part.steps
    )


def _resize_results(part: _Part, answers: Mapping[Question, Answer]) -> None:
    """Give results the sizes they really have: fake tensors do not know those of some workspaces."""
    storages = list(part.storages)
    for ran in part.steps:
        answer = answers.get(ran.question) if ran.question is not None else None
        if not isinstance(answer, Taken) or _has_its_own_shape(ran.func):
            continue
        if len(answer.results) == len(ran.made):
            for record, nbytes in zip(ran.made, answer.results, strict=True):
                if record is not None and record.nbytes != nbytes:
                    record.nbytes = nbytes
                    storages[record.index] = replace(storages[record.index], nbytes=nbytes)
    part.storages = tuple(storages)


def _scratch(ran: _Ran, answers: Mapping[Question, Answer]) -> int | None:
    answer = None if ran.question is None else answers.get(ran.question)
    if not isinstance(answer, Taken):
        return None
    return max(0, answer.peak_nbytes - ran.made_nbytes)


def _missing(parts: Iterable[_Part], answers: Mapping[Question, Answer]) -> dict[str, str]:
    """Kernels whose scratch is not known although it was asked for, each with the first reason."""
    found: dict[str, str] = {}
    for part in parts:
        for ran in part.steps:
            unknown = "its arguments cannot be rebuilt" if answers else None
            answer = unknown if ran.question is None else answers.get(ran.question)
            if isinstance(answer, str):
                found.setdefault(kernel_name(ran.func), answer)
    return found


def _pieces(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The tensors with memory of their own that make up a tensor; a sparse one has several."""
    if tensor.layout is torch.strided:
        yield tensor
    elif tensor.layout is torch.sparse_coo:
        yield tensor._indices()
        yield tensor._values()


# Numbers of Python's as the tensors that torch makes of them.
_WIDE = {int: torch.int64, float: torch.float64, complex: torch.complex128}


@cache
def _tensor_places(func: Any) -> tuple[int, ...]:
    """The positions at which a kernel takes a tensor."""
    if not isinstance(func, torch._ops.OpOverload):
        return ()
    return tuple(at for at, arg in enumerate(func._schema.arguments) if str(arg.type) == "Tensor")


@cache
def _has_its_own_shape(func: Any) -> bool:
    """Whether values decide on the result's shape, so that made-up ones say nothing about it."""
    return isinstance(func, torch._ops.OpOverload) and torch.Tag.dynamic_output_shape in func.tags


def _trains(args: tuple[Any, ...]) -> bool:
    return any(arg.requires_grad for arg in tensors_among(args))


@cache
def _keeps_number(func: Any) -> bool:
    """Whether the gradient needs the number that a tensor is multiplied or divided by."""
    return kernel_name(func) in ("aten.mul", "aten.div", "aten.mul_", "aten.div_")


@cache
def _makes(func: Any) -> bool:
    """Whether a kernel may take memory: it is neither a view nor the reading of a property."""
    if not isinstance(func, torch._ops.OpOverload):
        return True
    if not is_work(func):
        return False
    return not func.is_view or overload_name(func).startswith("aten.lift_fresh")


def named_tensors(model: nn.Module, kind: str) -> Iterator[tuple[str, torch.Tensor]]:
    """The model's `_parameters` or `_buffers` by name, those without memory yet left out."""
    for path, module in structure.walk(model):
        for key, tensor in getattr(module, kind).items():
            if tensor is not None and not is_lazy(tensor):
                yield joined(path, key), tensor


def held_tensors(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor of a call's arguments, also inside objects such as caches, named by the argument."""
    for name, value in (*enumerate(args), *kwargs.items()):
        for tensor in _held(value, set()):
            yield str(name), tensor


def _held(value: Any, seen: set[int]) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif id(value) not in seen:
        seen.add(id(value))
        if isinstance(value, Mapping):
            items: Iterable[Any] = value.values()
        elif isinstance(value, (list, tuple, set)):
            items = value
        else:
            items = getattr(value, "__dict__", {}).values()
        for item in items:
            yield from _held(item, seen)
