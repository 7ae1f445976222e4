"""What kernels take for themselves while they run, found by running each distinct one once for real.

Such scratch is invisible to fake tensors. Arguments are rebuilt with the shapes, strides and shared memory
that they had; their values are zeros, because what a kernel allocates follows from shapes. The figures are
those of torch's own profiler.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

import torch

from modelglass.frameworks.torch.describe import pieces_of, shape_of, tensors_among, unobserved
from modelglass.frameworks.torch.fake.known_values import value_of
from modelglass.frameworks.torch.privates import OpOverload, is_profiling
from modelglass.frameworks.torch.process import one_at_a_time, untouched_process
from modelglass.report import VALUES_DECIDE

Question: TypeAlias = tuple[Any, ...]  # a kernel and all that its scratch depends on
Answer: TypeAlias = "ScratchSize | str"  # what a kernel took, or a few words on why nobody knows
Shape: TypeAlias = tuple[int, ...] | None  # None: it has none of its own

REMEMBERED = 20_000  # answers, beyond which they are forgotten
BATCH = 200  # kernels in one profile, whose events are kept until it ends
SHARE_OF_FREE = 0.5  # of the machine's free memory that one kernel may take
_MARK = "modelglass kernel "
_OTHER_MARK = _MARK + "again "  # of the same kernel on other values
_REFUSALS = (RuntimeError, ValueError, TypeError, IndexError, AssertionError)  # of made-up values


@dataclass(frozen=True, slots=True)
class ScratchSize:
    """The most bytes that a kernel took at once, and those behind each of its results."""

    peak_nbytes: int
    results: tuple[int, ...]
    shapes: tuple[Shape, ...]
    by_values: bool = False  # with other made-up values it took something else


@dataclass(frozen=True, slots=True)
class _Spec:
    """A tensor argument: its layout, and which of the call's storages it is in."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    device: str
    storage: int
    storage_nbytes: int
    values: bytes | None = None  # of all its memory, where a kernel's size depends on them and they are known


@dataclass(frozen=True, slots=True)
class _Workspace:
    """A kernel's result whose bytes only that kernel can make."""

    question: Question
    index: int


@dataclass(frozen=True, slots=True, eq=False)
class _Object:
    """Packed weights, which cannot be compared. Their answers are not kept: they would keep the weights."""

    value: torch.ScriptObject


@dataclass(frozen=True, slots=True)
class _Items:
    """A list or tuple of arguments."""

    kind: type
    items: tuple[Any, ...]


class Probe:
    """Collects the distinct kernels of a run, and measures them afterwards."""

    def __init__(self, progress: Callable[[str], None] | None = None) -> None:
        self._progress = progress
        self._questions: dict[Question, int] = {}  # with the bytes of the results
        self._shapes: dict[Question, set[tuple[Shape, ...]]] = {}  # of the results, in this run
        self._objects: dict[int, _Object] = {}
        self._opaque: dict[int, tuple[Question, int]] = {}  # storage -> the result of a kernel it is

    def add_result(self, question: Question, result: Any) -> None:
        """Remember how much a kernel gave, and whether it is a workspace that no other kernel can make."""
        results = list(tensors_among(result))
        self._shapes.setdefault(question, set()).add(_shapes(results))
        self._questions[question] = sum(
            piece.untyped_storage().nbytes() for tensor in results for piece in pieces_of(tensor)
        )
        for index, tensor in enumerate(results):
            if _may_be_workspace(tensor):
                self._opaque[tensor.untyped_storage()._cdata] = question, index

    def make_question(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Question | None:
        """What a kernel is asked, before it runs; None for one that cannot be asked again."""
        storages: dict[int, int] = {}
        workspaces, deciding = _workspace_places(func), _deciding(func)
        try:
            question = (
                func,
                tuple(
                    self._workspace(arg) if place in workspaces else self._freeze(arg, storages, deciding)
                    for place, arg in enumerate(args)
                ),
                tuple((key, self._freeze(value, storages, deciding)) for key, value in kwargs.items()),
                torch.is_grad_enabled(),  # some kernels keep a workspace for their gradient
                torch.get_num_threads(),  # and many take some memory for each thread
            )
            self._questions.setdefault(question, 0)
        except (TypeError, RuntimeError, NotImplementedError):  # unhashable, or memory that does not show
            return None
        return question

    def measure(self) -> dict[Question, Answer]:
        """Run every kernel once, and measure what each took."""
        found: dict[Question, Answer] = {
            question: _answers[question] for question in self._questions if question in _answers
        }
        questions = {each: nbytes for each, nbytes in self._questions.items() if each not in found}
        if is_profiling():
            return found | dict.fromkeys(questions, "another profiler is running")
        with one_at_a_time, unobserved(), untouched_process(), _quiet_profiler():
            for start in range(0, len(questions), BATCH):
                if self._progress is not None:
                    self._progress(f"measuring kernels: {start:,} of {len(questions):,}")
                measured = _measure(dict(islice(questions.items(), start, start + BATCH)))
                _remember(measured)
                found |= measured
        return {question: self._checked(question, answer) for question, answer in found.items()}

    def _checked(self, question: Question, answer: Answer) -> Answer:
        """An answer that is not about other results than those of the run, which made-up values decided."""
        if not isinstance(answer, ScratchSize) or self._shapes.get(question, {answer.shapes}) == {
            answer.shapes
        }:
            return answer
        return VALUES_DECIDE

    def _workspace(self, value: torch.Tensor) -> _Workspace:
        made = self._opaque.get(value.untyped_storage()._cdata)
        if made is None:
            raise TypeError("a workspace that no kernel of this run made")
        return _Workspace(*made)

    def _freeze(self, value: Any, storages: dict[int, int], deciding: Collection[torch.dtype]) -> Any:
        """An argument in a form that can be compared and kept, without the memory behind it."""
        if isinstance(value, torch.Tensor):
            storage = value.untyped_storage()
            place = storages.setdefault(storage._cdata, len(storages))
            return _Spec(
                tuple(value.shape),
                value.stride(),
                int(value.storage_offset()),
                value.dtype,
                value.device.type,
                place,
                storage.nbytes(),
                _values_of(value) if value.dtype in deciding else None,
            )
        if isinstance(value, (list, tuple)):
            return _Items(type(value), tuple(self._freeze(item, storages, deciding) for item in value))
        if isinstance(value, torch.ScriptObject):
            return self._objects.setdefault(id(value), _Object(value))
        if isinstance(value, torch.Generator):
            return torch.Generator, None  # the user's own is not ours to draw from
        return type(value), value  # 1, 1.0 and True are equal, and are not the same


@contextmanager
def _quiet_profiler() -> Iterator[None]:
    """The profiler's library writes to stderr unless this variable, read at its first use, forbids it."""
    name = "KINETO_LOG_LEVEL"
    if name in os.environ:
        yield
        return
    os.environ[name] = "6"  # above every level it has
    try:
        yield
    finally:
        os.environ.pop(name, None)


# A search asks about the same kernels again and again. What did not work out may do so another time.
_answers: dict[Question, ScratchSize] = {}


def _remember(measured: Mapping[Question, Answer]) -> None:
    if len(_answers) > REMEMBERED:
        _answers.clear()
    _answers.update(
        (each, answer)
        for each, answer in measured.items()
        if isinstance(answer, ScratchSize) and not _has_object(each)
    )


def _has_object(value: Any) -> bool:
    if isinstance(value, _Items):
        return _has_object(value.items)
    return isinstance(value, _Object) or (isinstance(value, tuple) and any(map(_has_object, value)))


def _measure(questions: Mapping[Question, int]) -> dict[Question, Answer]:
    ran: dict[Question, _Results | str] = {}
    others: dict[Question, _Results | str] = {}
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        for index, (question, nbytes) in enumerate(questions.items()):
            ran[question] = _run(question, nbytes, f"{_MARK}{index}")
            if _may_mind_values(question):
                others[question] = _run(question, nbytes, f"{_OTHER_MARK}{index}", fills=(1,))
    assert profile.profiler is not None
    results = profile.profiler.kineto_results
    peaks = {} if results is None else _peaks(results.events())
    found: dict[Question, Answer] = {}
    for index, (question, results) in enumerate(ran.items()):
        if isinstance(results, str):
            found[question] = results
            continue
        peak, other = (peaks.get(f"{mark}{index}", 0) for mark in (_MARK, _OTHER_MARK))
        differs = not isinstance(others.get(question, ""), str) and other != peak
        found[question] = ScratchSize(max(peak, other), results.sizes, results.shapes, by_values=differs)
    return found


class _Results(NamedTuple):
    """What a kernel that was run for itself gave."""

    sizes: tuple[int, ...]  # of the memory behind each
    shapes: tuple[Shape, ...]


def _shapes(tensors: Iterable[torch.Tensor]) -> tuple[Shape, ...]:
    """Of all but workspaces, whose shapes a fake run does not know."""
    return tuple(shape_of(each) for each in tensors if not _may_be_workspace(each))


def _may_be_workspace(tensor: torch.Tensor) -> bool:
    return tensor.dtype is torch.uint8 and tensor.layout is torch.strided


def _may_mind_values(question: Question) -> bool:
    """Whether what a kernel takes may depend on values: on whole numbers, or in linear algebra."""
    if "linalg" in str(question[0]):
        return True
    return any(spec.dtype in _WHOLE_NUMBERS and spec.values is None for spec in _specs(question[1:3]))


_WHOLE_NUMBERS = (torch.int64, torch.int32)
_MASKS = (torch.bool, torch.uint8)


def knows_values(func: Any, question: Question | None) -> bool:
    """Whether all values that decide what a kernel takes are part of the question."""
    deciding = _deciding(func)
    given = _specs((question[1], tuple(value for _, value in question[2]))) if question is not None else ()
    return not deciding or all(spec.values is not None for spec in given if spec.dtype in deciding)


@cache
def _deciding(func: Any) -> tuple[torch.dtype, ...]:
    """The types of arguments whose values decide how much a kernel works on."""
    if not isinstance(func, OpOverload):
        return ()
    name = func._schema.name.removeprefix("aten::")
    if name in _BY_MASK:
        return _MASKS  # it works on as many elements as a mask has set
    if name in _BY_NUMBERS or torch.Tag.dynamic_output_shape in func.tags:
        return (*_MASKS, *_WHOLE_NUMBERS)
    return ()


_BY_MASK = frozenset(
    {
        "index",
        "index_put",
        "index_put_",
        "_index_put_impl_",
        "masked_select",
        "masked_scatter",
        "masked_scatter_",
        "masked_scatter_backward",
    }
)
_BY_NUMBERS = frozenset({"_pack_padded_sequence"})  # without a tag for it


def _values_of(mask: torch.Tensor) -> bytes | None:
    """The memory of a mask that fills it; None: its values are not known."""
    known = value_of(mask)
    if known is None or not known.is_contiguous() or known.nbytes != mask.untyped_storage().nbytes():
        return None
    with unobserved():
        return bytes(known.flatten().view(torch.uint8).tolist())


def _run(question: Question, nbytes: int, mark: str, fills: Sequence[int] = (0, 1)) -> _Results | str:
    """Run one kernel under the mark: its results, or a few words when it cannot be."""
    specs = list(_specs(question))
    if any(spec.device != "cpu" for spec in specs):
        return "only kernels of the CPU can be measured"
    given = sum({spec.storage: spec.storage_nbytes for spec in specs}.values())
    if 2 * (given + nbytes) > SHARE_OF_FREE * _free_nbytes():
        return "it does not fit into this machine's memory"
    problem = ""
    for fill in fills:  # few kernels mind values at all; those that do mostly want something positive
        try:
            call = _thaw_call(question, fill)
            with torch.profiler.record_function(mark):
                result = call()
            tensors = list(tensors_among(result))
            sizes = (piece.untyped_storage().nbytes() for each in tensors for piece in pieces_of(each))
            return _Results(tuple(sizes), _shapes(tensors))
        except _REFUSALS as error:
            problem = f"it does not run on sample values ({str(error).splitlines()[0][:100]})"
    return problem


@cache
def _workspace_places(func: Any) -> frozenset[int]:
    """The positions at which a kernel takes what another one left for it."""
    if not isinstance(func, OpOverload):
        return frozenset()
    names = [arg.name for arg in func._schema.arguments]
    return frozenset(at for at, name in enumerate(names) if name in ("workspace", "reserve"))


def _thaw_call(question: Question, fill: int) -> Callable[[], Any]:
    """The kernel, ready to run on arguments made anew."""
    func, args, kwargs, gradients, _ = question
    storages: dict[int, torch.UntypedStorage] = {}
    given = [_thaw(arg, storages, fill) for arg in args]
    named = {key: _thaw(value, storages, fill) for key, value in kwargs}
    return torch.set_grad_enabled(gradients)(partial(func, *given, **named))


def _specs(value: Any) -> Iterator[_Spec]:
    if isinstance(value, _Spec):
        yield value
    elif isinstance(value, (_Items, tuple)):
        for item in value.items if isinstance(value, _Items) else value:
            yield from _specs(item)


def _thaw(value: Any, storages: dict[int, torch.UntypedStorage], fill: int) -> Any:
    """The argument again, in new memory that is shared as it was."""
    if isinstance(value, _Workspace):
        return list(tensors_among(_thaw_call(value.question, fill)()))[value.index]
    if isinstance(value, _Spec):
        if value.storage not in storages:
            count = value.storage_nbytes // value.dtype.itemsize
            filled = torch.full((count,), fill, dtype=value.dtype)
            if value.values is not None:
                filled = torch.tensor(list(value.values), dtype=torch.uint8).view(value.dtype)
            storages[value.storage] = filled.untyped_storage()
        return torch.empty(0, dtype=value.dtype).set_(
            storages[value.storage], value.offset, value.shape, value.stride
        )
    if isinstance(value, _Items):
        return value.kind(_thaw(item, storages, fill) for item in value.items)
    if isinstance(value, _Object):
        return value.value
    kind, plain = value
    return torch.Generator() if kind is torch.Generator else plain


def _peaks(events: Sequence[Any]) -> dict[str, int]:
    """By mark, the most memory taken at once between its beginning and its end."""
    marks = sorted(
        (event.start_ns(), event.end_ns(), event.name()) for event in events if event.name().startswith(_MARK)
    )
    changes = sorted(
        ((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]"),
        key=lambda change: change[0],
    )
    peaks: dict[str, int] = {}
    at = 0
    for start, end, name in marks:
        while at < len(changes) and changes[at][0] < start:
            at += 1
        taken = peak = 0
        while at < len(changes) and changes[at][0] <= end:
            taken += changes[at][1]
            peak = max(peak, taken)
            at += 1
        peaks[name] = peak  # of two runs under one mark, the second, which went well
    return peaks


def _free_nbytes() -> int:
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):  # a system that does not report it
        return 1 << 62
