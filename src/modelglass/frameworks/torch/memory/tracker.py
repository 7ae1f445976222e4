"""Memory of a run: which kernel took each piece, what it is for, and when the last tensor in it went.

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
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from modelglass.frameworks.shared.describe import join_path
from modelglass.frameworks.torch.describe import dtype_name, memory_of, pieces_of, shape_of, tensors_among
from modelglass.frameworks.torch.memory import estimates, in_place
from modelglass.frameworks.torch.memory.calibration import Answer, Probe, Question, ScratchSize
from modelglass.frameworks.torch.memory.saved_tensor import SavedTensor
from modelglass.frameworks.torch.observing.digest import is_work
from modelglass.frameworks.torch.observing.recorder import Place
from modelglass.frameworks.torch.privates import OpOverload, next_node_number
from modelglass.frameworks.torch.process import during
from modelglass.frameworks.torch.structure import modules as structure
from modelglass.frameworks.torch.structure.naming import kernel_name, overload_name
from modelglass.interrupts import uninterrupted
from modelglass.report import VALUES_DECIDE, Category, Lifetimes, MemoryPhase, OptimizerStep, Step, Storage

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
    part: _Part | None = None  # that it was made in
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
class _KernelRun:
    """One kernel that ran, and what has to be measured to know its scratch."""

    func: Any
    module: str
    phase: MemoryPhase
    question: Question | None
    made: list[_Record | None] = field(default_factory=list)  # by result; None: in memory that was there
    numbers_nbytes: int = 0
    dropped_nbytes: int = 0  # of what the kernel takes when it is measured, and not in a real run
    reuses: Sequence[_Record | None] = ()  # in whose memory a real run would put the result
    goes_on: bool = False  # and does so although something still holds it here

    @property
    def made_nbytes(self) -> int:
        return self.numbers_nbytes + sum(record.nbytes for record in self.made if record is not None)


@dataclass(slots=True, eq=False)
class _Part:
    """The run itself, or what one optimizer did after it."""

    steps: list[_KernelRun] = field(default_factory=list)
    records: list[_Record] = field(default_factory=list)
    storages: tuple[Storage, ...] = ()  # as they are when the part ends
    freed: dict[int, int] = field(default_factory=dict)
    evaluates: bool = False  # the optimizer runs the model itself

    def inherit(self, record: _Record) -> _Record:
        """What an earlier part left, as memory that is there before this one begins."""
        kept = replace(record, index=len(self.records), born=None, saved_by=None, part=self, node=None)
        record.reference = None  # it is watched for this part from here on
        self.records.append(kept)
        return kept


@dataclass(slots=True, eq=False)
class _Round:
    """One training step, or the one pass: the run, and what each optimizer did after it."""

    run: _Part = field(default_factory=_Part)
    tails: dict[str, _Part] = field(default_factory=dict)
    forward_steps: int | None = None

    def parts(self) -> Iterator[_Part]:
        yield self.run
        yield from self.tails.values()


class MemoryTracker:
    """Follows the memory of one run."""

    def __init__(
        self,
        owner: Owner,
        probe: Probe | None = None,
        *,
        saving: bool = False,
        device: str | None = None,
    ) -> None:
        self._owner = owner
        self._probe = probe
        self._saving = saving
        self._device = device
        self._round = _Round()
        self._earlier: list[_Round] = []
        self._part = self._round.run
        self._next_tails: dict[str, _Part] = {}  # with the state that optimizers made in earlier steps
        self._live: dict[int | None, _Record] = {}
        self._phase: MemoryPhase | None = None
        self._node: int | None = None  # the autograd node at work
        self._numbers: dict[int, list[_Record]] = {}  # by the node that keeps them
        self._paused = False
        self._other_gradients: set[str] = set()  # kernels whose gradient is another one while it is watched
        self._before = False  # what is made now is there before the first step
        self.settles = True  # whether all further steps are like those that were followed

    def paused(self) -> AbstractContextManager[None]:
        """What runs inside is ours, not the model's."""
        return during(self, _paused=True)

    def add_base(self, category: Category, named: Named) -> None:
        """Tensors that are there before the run; memory that is already known stays what it is."""
        for name, tensor in named:
            for piece in pieces_of(tensor):
                if piece.untyped_storage()._cdata not in self._live:
                    self._open(piece, None, category, name)

    def on_kernel(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], run: Run) -> Any:
        """Have `run` run the kernel, and enter what it made."""
        kernel = _kernel(func)
        if self._paused or not kernel.makes:
            return run(func, args, kwargs)
        if self._before:
            return self._enter_results(run(func, args, kwargs))
        place = self._owner() if self._phase is None else Place("", self._phase)
        if place.node != self._node:
            self._release(self._node)
            self._node = place.node
        if kernel.vectors is not None:
            args = in_place.restore_arguments(func, args, place, kernel.vectors)
        question = None if self._probe is None else self._probe.make_question(func, args, kwargs)
        step = _KernelRun(func, place.module, place.phase, question)
        if kernel.may_differ and estimates.differs(func, place, torch.is_grad_enabled() and _trains(args)):
            self._other_gradients.add(kernel_name(func))
        step.reuses = self._find_reused(func, args, place)
        step.goes_on = bool(step.reuses) and in_place.continues_in_place(func, place)
        at = self._now()
        self._part.steps.append(step)
        result = run(func, args, kwargs)
        for tensor in in_place.kept_results(result, place):
            self._enter_tensor(tensor, at, step)
        for tensor in in_place.dropped_results(result, place):
            step.dropped_nbytes += tensor.untyped_storage().nbytes()
        self._count_numbers(kernel, args, result, step, place)
        if self._probe is not None and question is not None:
            self._probe.add_result(question, result)
        return result

    def add_tensor(self, tensor: torch.Tensor) -> None:
        """A tensor that torch made without any kernel, such as the state of a random generator."""
        self._enter_tensor(tensor, self._now(), None)

    def resize_storage(self, storage: torch.UntypedStorage) -> None:
        """A storage has another size from now on, in memory of its own."""
        record = self._live.get(storage._cdata)
        if self._paused:
            return
        if record is None:  # it was empty when the run began
            self._open_storage(storage, self._now(), "temporaries", (), torch.uint8)
            return
        if record.nbytes == storage.nbytes():
            return
        reference, record.reference = record.reference, None
        self._close(storage._cdata, None)
        records = self._part.records
        grown = replace(
            record,
            index=len(records),
            nbytes=storage.nbytes(),
            born=self._now(),
            died=None,
            saved_by=None,
            reference=reference,
            part=self._part,
        )
        records.append(grown)
        self._live[storage._cdata] = grown

    def phase(self, phase: MemoryPhase) -> AbstractContextManager[None]:
        """What runs inside belongs to no module."""
        return during(self, _phase=phase)

    def saving(self) -> AbstractContextManager[Any]:
        """Have autograd report what it saves for the backward pass, where that is wanted."""
        if not self._saving:
            return nullcontext()
        return torch.autograd.graph.saved_tensors_hooks(self._save, SavedTensor.unpack)

    def end_forward(self) -> None:
        """The loss and the backward pass come next."""
        self._round.forward_steps = self._now()

    def declare(self, category: Category, named: Named) -> None:
        """Set the category of memory that kernels made."""
        for name, tensor in named:
            for piece in pieces_of(tensor):
                record = self._live.get(piece.untyped_storage()._cdata)
                if record is not None and record.category not in _GIVEN:
                    record.category, record.name = category, name

    def end_run(self) -> None:
        """What is let go of from here on was held to the end."""
        self._end(self._round.run)

    @contextmanager
    def tail(self, name: str) -> Iterator[None]:
        """What one optimizer does; each of several starts where the run ended."""
        self._part = part = self._next_tails.pop(name, None) or _Part()
        try:
            with self.phase("optimizer"):
                yield
            self._end(part)
            self._round.tails[name] = part
        finally:
            self._part = self._round.run

    def unphased(self) -> AbstractContextManager[None]:
        """What runs inside belongs to the recorder's place, also in an optimizer's step."""
        return during(self, _phase=None)

    def keeps(self) -> bool:
        """Whether anything that the run made is still there."""
        run = self._round.run
        return any(record.part is run and record.born is not None for record in self._live.values())

    def evaluates(self) -> None:
        """The optimizer that steps evaluates the model itself, as often as values decide."""
        self._part.evaluates = True

    def tail_parts(self, name: str) -> tuple[tuple[Storage, ...], int]:
        """What lived during an optimizer's step, and of how many kernels it was."""
        part = self._round.tails[name]
        return part.storages, len(part.steps)

    def forget_tail(self, name: str) -> None:
        """An optimizer's step that was followed is not what a real one would be."""
        self._round.tails.pop(name, None)

    def tail_profile(self, name: str) -> tuple[Any, ...]:
        """All that the memory of an optimizer's step follows from, to be compared with another one's."""
        part = self._round.tails[name]
        return tuple(ran.func for ran in part.steps), part.storages

    def is_stable(self) -> bool:
        """Whether the last step was like the one before it, the optimizers' parts included."""
        return bool(self._earlier) and _is_alike(self._earlier[-1], self._round)

    def next_step(self) -> None:
        """Begin another training step with all that the one before it left."""
        before, self._round = self._round, _Round()
        self._earlier.append(before)
        self._part, self._node = self._round.run, None
        self._numbers.clear()
        owners = {id(part): name for name, part in before.tails.items()}
        self._next_tails = {name: _Part() for name in before.tails}
        for key, record in self._live.items():
            name = owners.get(id(record.part))
            part = self._part if name is None else self._next_tails[name]
            kept = part.inherit(record)
            if kept.category not in (*_GIVEN, "optimizer_state"):
                kept.category = "optimizer_state" if name is not None else "buffers"
            self._live[key] = kept

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
        answers = {} if self._probe is None else self._probe.measure()
        rounds = (*self._earlier, self._round)
        parts = [part for each in rounds for part in each.parts()]
        for part in parts:
            _resize_results(part, answers)
        first, *later = (self._lifetimes_of(each, answers) for each in rounds)
        return replace(
            first,
            later=tuple(_distinct(later)),
            other_gradients=tuple(sorted(self._other_gradients)),
            followed=len(rounds),
            settled=self.settles,
            missing=_missing(parts, answers),
        )

    def _lifetimes_of(self, one: _Round, answers: Mapping[Question, Answer]) -> Lifetimes:
        forward = one.forward_steps
        return Lifetimes(
            steps=_steps(one.run, answers),
            storages=one.run.storages,
            forward_steps=len(one.run.steps) if forward is None else forward,
            tells_saved=self._saving,
            tails={
                name: OptimizerStep(
                    steps=_steps(part, answers),
                    storages=part.storages,
                    freed=part.freed,
                    evaluates=part.evaluates,
                )
                for name, part in one.tails.items()
            },
            calibrated=self._probe is not None,
            device=self._device,
        )

    def _now(self) -> int:
        """The number of the next step."""
        run = self._round.run
        before = 0 if self._part is run else len(run.steps)
        return before + len(self._part.steps)

    def _end(self, part: _Part) -> None:
        run = self._round.run
        before = 0 if part is run else len(run.steps)
        for at, step in enumerate(part.steps, before):
            _reuse(step, at)
        part.storages = tuple(record.storage() for record in part.records)

    def _enter_results(self, result: Any) -> Any:
        for tensor in tensors_among(result):
            self._enter_tensor(tensor, None, None)
        return result

    def _enter_tensor(self, tensor: torch.Tensor, at: int | None, step: _KernelRun | None) -> None:
        """Enter a tensor's memory where it is new or has another size."""
        for piece in pieces_of(tensor):
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

    def _find_reused(self, func: Any, args: tuple[Any, ...], place: Place) -> list[_Record | None]:
        """The memory that a real run may put the result into."""
        if in_place.is_sum_of_gradients(func, args, place):
            return self._find_summed(args, place)
        if in_place.writes_to_its_own(func, place):
            own = self._live.get(memory_of(args[0]))
            return [own] if own is not None and own.node == place.node else []
        return [self._live.get(memory_of(tensor)) for tensor in in_place.in_place_targets(func, args, place)]

    def _find_summed(self, args: tuple[Any, ...], place: Place) -> list[_Record | None]:
        """The gradients that the engine adds up, one of which becomes the sum."""
        self._release(place.node)  # whose formula has ended: those that keep numbers have no sums
        if args[0]._is_view():  # the engine writes to nothing that others may look at
            return []
        old, new = (self._live.get(memory_of(tensor)) for tensor in args[:2])
        # What an earlier node gave, or this one; a sum inside a formula is another matter.
        engines = old is not None and (old.node != place.node or in_place.gives_twice_to_one())
        return [old, new] if engines else []

    def _count_numbers(
        self, kernel: _Kernel, args: tuple[Any, ...], result: Any, step: _KernelRun, place: Place
    ) -> None:
        """A number in a tensor's place becomes a tensor while the kernel runs, and once more in its type.

        The first of the two lives on where the gradient needs it; hooks do not show that.
        """
        if kernel.wraps_scalars:
            self._count_scalar_of_list(args, step)
        for position in kernel.tensor_places:
            if position >= len(args) or type(args[position]) not in _WIDE:
                continue
            wide = _WIDE[type(args[position])]
            dtype = result.dtype if isinstance(result, torch.Tensor) else wide
            if dtype is not wide:
                self._add_unseen(dtype.itemsize, dtype, step)
            if place.node in self._numbers:
                step.dropped_nbytes += wide.itemsize  # the node has it as a tensor already
                continue
            number = self._add_unseen(wide.itemsize, wide, step)
            if self._saving and kernel.keeps_number and _trains(args) and torch.is_grad_enabled():
                number.died = None
                number.category = "activations"
                newest = next_node_number() - 1
                self._numbers.setdefault(newest, []).append(number)

    def _count_scalar_of_list(self, args: tuple[Any, ...], step: _KernelRun) -> None:
        """Lists are worked on tensor by tensor, each with the number made a tensor, and that in its type."""
        numbers = args[1] if isinstance(args[1], (list, tuple)) else [args[1]]
        tensor = next(iter(args[0]), None)
        if tensor is not None and numbers and type(numbers[0]) in _WIDE:
            wide = _WIDE[type(numbers[0])]
            self._add_unseen(wide.itemsize + (tensor.dtype is not wide) * tensor.dtype.itemsize, wide, step)

    def _add_unseen(self, nbytes: int, dtype: torch.dtype, step: _KernelRun) -> _Record:
        """A record of memory that no tensor of ours shows, gone with the kernel."""
        step.numbers_nbytes += nbytes
        at, records = self._now() - 1, self._part.records
        record = _Record(len(records), nbytes, "temporaries", at, (), dtype, None, at)
        record.part = self._part
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
        return self._open_storage(storage, born, category, shape_of(tensor), tensor.dtype, name)

    def _open_storage(
        self,
        storage: torch.UntypedStorage,
        born: int | None,
        category: Category,
        shape: tuple[int, ...] | None,
        dtype: torch.dtype,
        name: str | None = None,
    ) -> _Record:
        key = storage._cdata
        records = self._part.records
        record = _Record(len(records), storage.nbytes(), category, born, shape, dtype, name)
        record.part = self._part
        record.node = self._node
        record.reference = weakref.ref(storage, partial(self._close, key))
        records.append(record)
        self._live[key] = record
        return record

    @uninterrupted
    def _close(self, key: int, reference: object) -> None:
        record = self._live.pop(key)
        last = self._now() - 1
        run = self._round.run
        if self._part is not run and record.part is run:
            self._part.freed[record.index] = last
        else:
            record.died = last

    def _save(self, tensor: torch.Tensor) -> SavedTensor:
        for piece in pieces_of(tensor):
            record = self._live.get(piece.untyped_storage()._cdata)
            if record is not None and record.saved_by is None:
                record.saved_by = self._owner().module
                if record.category == "temporaries":
                    record.category = "activations"
        with self.paused():
            return SavedTensor(tensor)


def _reuse(step: _KernelRun, at: int) -> None:
    """Let the result take the place of what was written to, if nothing else held that any longer."""
    made = step.made[0] if step.reuses and step.made else None
    if made is None:
        return
    for record in step.reuses:
        if record is None or record.nbytes != made.nbytes:
            continue
        if record.died == at or step.goes_on:
            record.died = at - 1
            return


def _is_alike(one: _Round, other: _Round) -> bool:
    parts = zip(one.parts(), other.parts(), strict=False)
    return one.tails.keys() == other.tails.keys() and all(
        mine.storages == others.storages and len(mine.steps) == len(others.steps) for mine, others in parts
    )


def _distinct(found: Iterable[Lifetimes]) -> Iterator[Lifetimes]:
    """Each that is not equal to one before it."""
    seen: list[Lifetimes] = []
    for each in found:
        if each not in seen:
            seen.append(each)
            yield each


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
        if not isinstance(answer, ScratchSize) or _has_its_own_shape(ran.func):
            continue
        if len(answer.results) == len(ran.made):
            for record, nbytes in zip(ran.made, answer.results, strict=True):
                if record is not None and record.nbytes != nbytes:
                    record.nbytes = nbytes
                    storages[record.index] = replace(storages[record.index], nbytes=nbytes)
    part.storages = tuple(storages)


def _scratch(ran: _KernelRun, answers: Mapping[Question, Answer]) -> int | None:
    answer = None if ran.question is None else answers.get(ran.question)
    if not isinstance(answer, ScratchSize):
        return None
    return max(0, answer.peak_nbytes - ran.made_nbytes - ran.dropped_nbytes)


def _missing(parts: Iterable[_Part], answers: Mapping[Question, Answer]) -> dict[str, str]:
    """Kernels whose scratch is not known although it was asked for, each with the first reason."""
    found: dict[str, str] = {}
    for part in parts:
        for ran in part.steps:
            unknown = "its arguments cannot be rebuilt" if answers else None
            answer = unknown if ran.question is None else answers.get(ran.question)
            if isinstance(answer, ScratchSize) and (
                answer.by_values or estimates.depends_on_values(ran.func, ran.question)
            ):
                answer = VALUES_DECIDE
            if isinstance(answer, str):
                found.setdefault(kernel_name(ran.func), answer)
    return found


# Numbers of Python's as the tensors that torch makes of them.
_WIDE = {int: torch.int64, float: torch.float64, complex: torch.complex128}


class _Kernel(NamedTuple):
    """What has to be known of each kernel that comes by, found once."""

    makes: bool  # it may take memory
    may_differ: bool  # from what a real run does
    vectors: int | None  # the place of the argument that asks for them
    wraps_scalars: bool
    tensor_places: tuple[int, ...]
    keeps_number: bool


@cache
def _kernel(func: Any) -> _Kernel:
    return _Kernel(
        makes=_makes(func),
        may_differ=estimates.may_differ(func),
        vectors=in_place.VECTORS.get(func),
        wraps_scalars=_wraps_scalars(func),
        tensor_places=_tensor_places(func),
        keeps_number=_keeps_number(func),
    )


def _tensor_places(func: Any) -> tuple[int, ...]:
    """The positions at which a kernel takes a tensor."""
    if not isinstance(func, OpOverload):
        return ()
    return tuple(at for at, arg in enumerate(func._schema.arguments) if str(arg.type) == "Tensor")


def _wraps_scalars(func: Any) -> bool:
    """Whether a kernel combines each tensor of a list with a number, by arithmetic that is for tensors."""
    return overload_name(func).endswith((".Scalar", ".ScalarList")) and kernel_name(func).removeprefix(
        "aten._foreach_"
    ).rstrip("_") in ("add", "sub", "mul", "div")


@cache
def _has_its_own_shape(func: Any) -> bool:
    """Whether values decide on the result's shape, so that sample values do not determine it."""
    return isinstance(func, OpOverload) and torch.Tag.dynamic_output_shape in func.tags


def _trains(args: tuple[Any, ...]) -> bool:
    return any(arg.requires_grad for arg in tensors_among(args))


def _keeps_number(func: Any) -> bool:
    """Whether the gradient needs the number that a tensor is multiplied or divided by."""
    return kernel_name(func) in ("aten.mul", "aten.div", "aten.mul_", "aten.div_")


def _makes(func: Any) -> bool:
    """Whether a kernel may take memory: it is neither a view nor the reading of a property."""
    if not isinstance(func, OpOverload):
        return True
    if not is_work(func):
        return False
    return not func.is_view or overload_name(func).startswith("aten.lift_fresh")


def named_tensors(model: nn.Module, kind: str) -> Iterator[tuple[str, torch.Tensor]]:
    """The model's `_parameters` or `_buffers` by name, those without memory yet left out."""
    for path, module in structure.walk(model):
        for key, tensor in getattr(module, kind).items():
            if tensor is not None and not is_lazy(tensor):
                yield join_path(path, key), tensor


def find_held_tensors(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor of a call's arguments, also inside objects such as caches, named by the argument."""
    for name, value in (*enumerate(args), *kwargs.items()):
        for tensor in _find_held(value, set()):
            yield str(name), tensor


def _find_held(value: Any, seen: set[int]) -> Iterator[torch.Tensor]:
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
            yield from _find_held(item, seen)
