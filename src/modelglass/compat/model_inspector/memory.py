"""What training takes: the model's part, the batch's part, both, and what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from modelglass.compat.model_inspector._lines import INDENT, Figure, figures, heading, mebibytes, sentence
from modelglass.compat.model_inspector.summary import reason
from modelglass.compat.model_inspector.words import said, words
from modelglass.page.units import shape_text, share
from modelglass.renderers._escape import fitted, printable

if TYPE_CHECKING:
    from modelglass.compat.model_inspector.inspection import AlikeTensors, Estimate, Inspection
    from modelglass.compat.model_inspector.words import Words
    from modelglass.report import Memory

SHOWN_LARGEST = 3


def sections(inspection: Inspection, say: Words, language: str, width: int) -> Iterator[str]:
    """The estimate, or why there is none."""
    yield heading(say("memory"))
    found, trained = inspection.estimate, inspection.trained
    if found is None or trained is None or trained.memory is None:
        yield sentence(reason(inspection.unknown.get("memory", "needs-code"), say), width)
        return
    if inspection.batch_problem is not None:
        yield sentence(say("batch-kept").format(why=printable(inspection.batch_problem)), width)
    yield f"{say('model-memory')}:\n{figures(_model(found, say), say('unknown'))}"
    title = say("batch-memory-given")
    if found.batch_size is not None:
        title = say("batch-memory").format(n=found.batch_size)
    yield f"{title}:\n{figures(_batch(found, say), say('unknown'))}"
    total = figures(_total(inspection, found, trained.memory, language), say("unknown"))
    yield f"{say('total-usage')}:\n{total}"
    if "mixed" in inspection.unknown:
        why = reason(inspection.unknown["mixed"], say)
        yield sentence(f"{_mixed_title(inspection, say)}: {why}", width)
    if inspection.largest:
        listed = _largest(inspection.largest, trained.memory.peak_nbytes, say, language, width)
        yield f"{say('dominates')}:\n" + "\n".join(listed)
    excluded = ", ".join(said(language, each) for each in trained.memory.excludes)
    if excluded:
        yield sentence(f"{say('excludes')}: {excluded}", width)


def _model(found: Estimate, say: Words) -> Iterator[Figure]:
    yield Figure(say("parameters"), found.parameters)
    yield Figure(say("gradients"), found.gradients)
    optimizer = "" if found.optimizer is None else f"({found.optimizer})"
    yield Figure(say("optimizer"), found.optimizer_state, optimizer)
    yield Figure(say("total-model"), found.model_nbytes)


def _batch(found: Estimate, say: Words) -> Iterator[Figure]:
    for name, nbytes in found.inputs:
        yield Figure(name, nbytes)
    if found.shared:
        yield Figure(say("shared"), -found.shared)
    yield Figure(say("activations"), found.activations, f"({say('saved')})" if found.complete else "")
    yield Figure(say("total-batch"), found.batch_nbytes, least=not found.complete)


def _total(inspection: Inspection, found: Estimate, memory: Memory, language: str) -> Iterator[Figure]:
    say, least = words(language), not found.complete
    yield Figure(say("model"), found.model_nbytes)
    if found.buffers:
        yield Figure(say("buffers"), found.buffers)
    yield Figure(say("batch"), found.batch_nbytes, least=least)
    yield Figure(say("model-buffers-batch" if found.buffers else "model-batch"), found.nbytes, least=least)
    phase = "" if memory.peak is None else say("peak-text").format(phase=said(language, memory.peak.phase))
    yield Figure(say("peak"), found.needed_nbytes, f"({phase})" if phase else "")
    if inspection.mixed is not None:
        mixed = inspection.mixed
        yield Figure(_mixed_title(inspection, say), mixed.nbytes, least=not mixed.complete)
        yield Figure(say("mixed-peak"), mixed.needed_nbytes)


def _mixed_title(inspection: Inspection, say: Words) -> str:
    return say("mixed").format(dtype=inspection.mixed_dtype)


def _largest(
    found: Sequence[AlikeTensors], peak_nbytes: int, say: Words, language: str, width: int
) -> Iterator[str]:
    """The tensors that take most at the peak, those that are alike together."""
    for alike in found[:SHOWN_LARGEST]:
        tensor, amount = alike.first, mebibytes(alike.first.nbytes)
        if alike.count > 1:
            amount = say("times").format(n=alike.count, size=amount)
        place = tensor.name or ", ".join(filter(None, (tensor.module, tensor.op)))
        what = f"{said(language, tensor.category)} {shape_text(tensor.shape)} {tensor.dtype or ''}".rstrip()
        text = f"{amount}, {share(alike.nbytes, peak_nbytes)}: {what}" + (f" ({place})" if place else "")
        yield INDENT + fitted(printable(text), max(40, width - len(INDENT)))
