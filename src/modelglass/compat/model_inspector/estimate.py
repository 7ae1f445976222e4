"""What a training step keeps in memory, added up: the model's part, and what a batch adds."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from modelglass.compat.model_inspector.inspection import AlikeTensors, Estimate
from modelglass.report import CATEGORIES

if TYPE_CHECKING:
    from modelglass.report import LiveTensor, Memory, Report


def estimate(report: Report) -> Estimate | None:
    """The figures of a training step that ran to its end; None: it did not."""
    memory = report.memory
    if memory is None:
        return None
    inputs = _inputs(report)
    held = memory.base_nbytes - _before(memory, "parameters") - _before(memory, "buffers")
    return Estimate(
        batch_size=None if memory.what_if is None else memory.what_if.batch_size,
        parameters=_before(memory, "parameters"),
        buffers=_before(memory, "buffers"),
        gradients=_most(memory, "gradients"),
        optimizer_state=_most(memory, "optimizer_state"),
        inputs=inputs,
        shared=sum(nbytes for _, nbytes in inputs) - held,
        activations=None if memory.saved_nbytes is None else _most(memory, "activations"),
        peak_nbytes=memory.peak_nbytes,
        later_peak_nbytes=memory.later_peak_nbytes,
        optimizer=memory.optimizer,
    )


def largest_at_peak(memory: Memory) -> tuple[AlikeTensors, ...]:
    """The tensors that take most at the peak, those of one size and kind together."""
    alike: dict[tuple[object, ...], list[LiveTensor]] = defaultdict(list)
    for tensor in memory.largest:
        alike[tensor.nbytes, tensor.category, tensor.shape, tensor.dtype].append(tensor)
    return tuple(AlikeTensors(first=several[0], count=len(several)) for several in alike.values())


def _inputs(report: Report) -> tuple[tuple[str, int], ...]:
    """Each tensor that the model is called with, by what the model calls it."""
    given = report.run.inputs
    known = () if report.dataflow is None else report.dataflow.names
    names = known if len(known) == len(given) else [value.name for value in given]
    return tuple(
        (name, value.nbytes) for name, value in zip(names, given, strict=True) if value.nbytes is not None
    )


def _before(memory: Memory, category: str) -> int:
    """What is held from the start."""
    if not memory.timeline:
        return memory.by_category.get(category, 0)
    return memory.timeline[0].held[CATEGORIES.index(category)]


def _most(memory: Memory, category: str) -> int:
    """The most that is ever held of a kind."""
    place = CATEGORIES.index(category)
    return max((moment.held[place] for moment in memory.timeline), default=0)
