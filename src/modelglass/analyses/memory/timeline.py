"""What a run takes in memory, from the lifetimes of all the memory it took."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from modelglass.report import (
    CATEGORIES,
    Lifetimes,
    LiveTensor,
    Memory,
    MemoryPiece,
    Method,
    Moment,
    Step,
    Storage,
)
from modelglass.report.fields import fields_of

SHOWN_LARGEST = 20  # tensors at the peak
EXCLUDED = ("the allocator's rounding and reserve", "the device's context")
_PLACE = {category: index for index, category in enumerate(CATEGORIES)}
_SCRATCH = _PLACE["scratch"]
_GIVEN = ("parameters", "buffers", "inputs")


def memory(lifetimes: Lifetimes, *, optimizer: str | None = None) -> Memory:
    """The memory of a pass, or of that training step with an optimizer which takes the most."""
    if optimizer is None or optimizer not in lifetimes.tails:
        return _memory(_Course(lifetimes))
    first = _Course(lifetimes.with_optimizer(optimizer))
    later = [_Course(step) for step in lifetimes.later_steps(optimizer)]
    most = max(later, key=lambda each: each.peak_nbytes)
    is_first = first.peak_nbytes >= most.peak_nbytes
    return replace(
        _memory(first if is_first else most),
        method=_method(lifetimes),
        optimizer=optimizer,
        in_first_step=is_first,
        first_peak_nbytes=first.peak_nbytes,
        later_peak_nbytes=most.peak_nbytes,
        excludes=(*_unmeasured_parts(lifetimes), *_unsettled_parts(lifetimes), *EXCLUDED),
    )


class _Course:
    """A pass or step, and what is held at each moment of it."""

    def __init__(self, whole: Lifetimes) -> None:
        self.whole = whole
        self.moments = _moments(whole.steps, whole.storages)
        self.at = max(range(len(self.moments)), key=lambda index: sum(self.moments[index]), default=None)
        self.held = _storages_before(whole.storages) if self.at is None else self.moments[self.at]

    @property
    def peak_nbytes(self) -> int:
        return sum(self.held)


def _memory(course: _Course) -> Memory:
    whole, held = course.whole, course.held
    trains = whole.forward_steps < len(whole.steps)
    saved = _saved_bytes(whole) if trains and whole.tells_saved else None
    return Memory(
        peak_nbytes=course.peak_nbytes,
        method=_method(whole),
        at=course.at,
        by_category={category: held[place] for category, place in _PLACE.items() if held[place]},
        base_nbytes=sum(
            each.nbytes for each in whole.storages if each.category in _GIVEN and each.born is None
        ),
        timeline=tuple(
            Moment(op=step.op, module=step.module, phase=step.phase, held=tuple(held))
            for step, held in zip(whole.steps, course.moments, strict=True)
        ),
        largest=_largest(whole, course.at),
        excludes=(*_unmeasured_parts(whole), *EXCLUDED),
        calibrated=whole.calibrated,
        device=whole.device,
        saved_nbytes=None if saved is None else sum(saved.values()),
        saved_by_module=saved,
    )


def _method(whole: Lifetimes) -> Method:
    evaluates = any(tail.evaluates for tail in whole.tails.values())
    if whole.other_gradients or evaluates or not whole.settled or (whole.estimated and not whole.calibrated):
        return "estimate"
    if whole.calibrated:
        return "estimate" if whole.missing else "measured"
    return "exact"


def _unmeasured_parts(whole: Lifetimes) -> Iterator[str]:
    if whole.other_gradients:
        yield f"what {', '.join(whole.other_gradients)} or its backward pass does when it is not observed"
    if any(tail.evaluates for tail in whole.tails.values()):
        yield "further evaluations of the model by the optimizer, which depend on values"
    if whole.estimated:
        yield "results that are held while kernels are prepared ahead (a real run measures them)"
    elif not whole.calibrated:
        yield "kernels' own scratch (calibration measures it)"
    elif whole.missing:
        yield f"the scratch of {', '.join(sorted(whole.missing))}"


def _unsettled_parts(whole: Lifetimes) -> Iterator[str]:
    if not whole.settled:
        yield f"what steps after number {whole.followed} take"


def _moments(steps: Sequence[Step], storages: Iterable[Storage]) -> list[list[int]]:
    """What is held while each step runs, by category."""
    changes: list[list[tuple[int, int]]] = [[] for _ in range(len(steps) + 1)]
    for each in storages:
        place = _PLACE[each.category]
        changes[each.born or 0].append((place, each.nbytes))
        if each.died is not None:
            changes[each.died + 1].append((place, -each.nbytes))
    held = [0] * len(CATEGORIES)
    moments = []
    for step, changed in zip(steps, changes, strict=False):
        for place, nbytes in changed:
            held[place] += nbytes
        moment = held.copy()
        moment[_SCRATCH] = step.scratch_nbytes or 0
        moments.append(moment)
    return moments


def _storages_before(storages: Iterable[Storage]) -> list[int]:
    held = [0] * len(CATEGORIES)
    for each in storages:
        if each.born is None:
            held[_PLACE[each.category]] += each.nbytes
    return held


def _saved_bytes(whole: Lifetimes) -> Mapping[str, int]:
    """By module, the bytes it holds for backward when forward ends: no weights, each memory once."""
    end = whole.forward_steps
    found: dict[str, int] = {}
    for each in whole.storages:
        made = each.born is None or each.born < end
        alive = each.died is None or each.died >= end
        if each.saved_by is not None and made and alive and each.category not in ("parameters", "buffers"):
            found[each.saved_by] = found.get(each.saved_by, 0) + each.nbytes
    return found


def _largest(whole: Lifetimes, at: int | None) -> tuple[LiveTensor, ...]:
    """The largest pieces of memory that are held at a moment, with who made them."""
    alive = [each for each in whole.storages if at is None or _lives(each, at)]
    alive.sort(key=lambda each: each.nbytes, reverse=True)
    return tuple(_live_tensor(each, whole.steps) for each in alive[:SHOWN_LARGEST])


def _lives(storage: Storage, at: int) -> bool:
    return (storage.born or 0) <= at and (storage.died is None or storage.died >= at)


def _live_tensor(storage: Storage, steps: Sequence[Step]) -> LiveTensor:
    is_made = storage.born is not None and storage.born < len(steps)  # else before a step that never came
    maker = steps[storage.born or 0] if is_made else None
    return LiveTensor(
        **fields_of(MemoryPiece, storage),
        op=None if maker is None else maker.op,
        module=None if maker is None else maker.module,
        phase=None if maker is None else maker.phase,
    )
