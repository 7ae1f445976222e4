"""What the checkpoint says: its file, the state of the training, its weights, and how they fit the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from modelglass.compat.model_inspector._lines import INDENT, heading, rows, sentence
from modelglass.page.sections.checkpoint import part_text
from modelglass.page.units import shape_text, share, size
from modelglass.renderers._escape import fitted, printable

if TYPE_CHECKING:
    from modelglass.compat.model_inspector.inspection import Inspection, WeightFigures
    from modelglass.compat.model_inspector.words import Words
    from modelglass.report import Checkpoint, Difference, Matching, Report

SHOWN_NAMES = 20  # of a list, unless --verbose shows all
_STATE = ("progress", "loss", "optimizer", "scheduler", "training", "copy", "other")


def sections(inspection: Inspection, say: Words, width: int, verbose: bool) -> Iterator[str]:
    """The checkpoint, where there is one."""
    report = inspection.checkpoint
    if report is None or report.checkpoint is None:
        return
    yield heading(say("checkpoint"))
    yield rows(_file(report, report.checkpoint, say), width)
    parts = [part for part in report.checkpoint.parts if part.kind in _STATE]
    parts.sort(key=lambda part: _STATE.index(part.kind))
    state = [(part.key or part.kind, part_text(part)) for part in parts]
    if state:
        yield f"{say('training')}:\n{rows(state, width)}"
    if inspection.weights is not None:
        yield f"{say('weights')}:\n{rows(_weights(inspection.weights, say), width)}"
    elif "stats" in inspection.unknown:
        why = say("failed").format(why=printable(inspection.unknown["stats"]))
        yield f"{say('weights')}:\n{sentence(why, width)}"
    if inspection.matching is not None:
        yield f"{say('matching')}:\n{_matching(inspection.matching, say, width, verbose)}"


def _file(report: Report, checkpoint: Checkpoint, say: Words) -> Iterator[tuple[str, str]]:
    first, *rest = checkpoint.files
    more = f" {say('and-more').format(n=len(rest))}" if rest else ""
    yield say("file"), f"{first.path}{more}, {size(checkpoint.nbytes)}"
    yield say("format"), checkpoint.format
    yield say("tensors"), f"{len(report.model.tensors):,}"
    under = next((part.key for part in checkpoint.parts if part.kind == "model" and part.key), None)
    if under is not None:
        yield say("found-under"), under
    if checkpoint.prefix:
        yield say("prefix"), say("prefix-off").format(p=repr(checkpoint.prefix))


def _weights(found: WeightFigures, say: Words) -> Iterator[tuple[str, str]]:
    """The values of parameters in a few figures; those that are no numbers also of buffers."""
    yield say("values"), f"{found.count:,}"
    if found.low is not None and found.high is not None:
        yield say("range"), say("range-text").format(low=f"{found.low:.4g}", high=f"{found.high:.4g}")
    if found.largest is not None:
        yield say("largest-value"), f"{found.largest:.4g} ({found.largest_in})"
    yield say("zeros"), f"{found.zeros:,} ({share(found.zeros, found.count)})" if found.zeros else "0"
    yield say("nan"), _strange(found.nan, say)
    yield say("inf"), _strange(found.inf, say)


def _strange(counts: Mapping[str, int], say: Words) -> str:
    """How many values are no numbers, and in which tensors."""
    if not counts:
        return "0"
    more = f" {say('and-more').format(n=len(counts) - 3)}" if len(counts) > 3 else ""
    where = say("strange").format(names=", ".join([*counts][:3]) + more)
    return f"{sum(counts.values()):,} {where}"


def _matching(found: Matching, say: Words, width: int, verbose: bool) -> str:
    """How the tensors of both sides fit, and the names of those that do not."""
    facts = [
        (say("matched"), say("matched-text").format(found=f"{found.matched:,}", all=f"{found.wanted:,}"))
    ]
    if found.side is not None:
        facts.append((say("prefix"), say(f"prefix-{found.side}").format(p=repr(found.prefix))))
    if found.library is not None:
        facts.append((say("names"), say("names-text").format(library=found.library)))
    if found.tied:
        facts.append((say("tied"), say("tied-text").format(names=", ".join(found.tied[:4]))))
    lists = {
        "missing": found.missing,
        "unexpected": found.unexpected,
        "reshaped": [_reshape(each, say) for each in found.reshaped],
        "retyped": [_retype(each, say) for each in found.retyped],
    }
    facts += [(say(key), f"{len(names):,}" if names else say("none")) for key, names in lists.items()]
    blocks = [rows(facts, width)]
    for key, names in lists.items():
        if names:
            blocks.append(f"{INDENT}{say(key)}:\n{_names(names, say, width, verbose)}")
    return "\n\n".join(blocks)


def _names(names: Sequence[str], say: Words, width: int, verbose: bool) -> str:
    most = len(names) if verbose else SHOWN_NAMES
    lines = [f"{INDENT}  {fitted(printable(name), max(20, width - 5))}" for name in names[:most]]
    if len(names) > most:
        lines.append(f"{INDENT}  {say('and-more').format(n=f'{len(names) - most:,}')}")
    return "\n".join(lines)


def _reshape(each: Difference, say: Words) -> str:
    shapes = say("model-has").format(a=shape_text(each.shape), b=shape_text(each.stored_shape))
    return f"{each.name}: {shapes}{_stored(each, say)}"


def _retype(each: Difference, say: Words) -> str:
    return f"{each.name}: {say('model-has').format(a=each.dtype, b=each.stored_dtype)}{_stored(each, say)}"


def _stored(each: Difference, say: Words) -> str:
    return "" if each.stored == each.name else f" ({say('stored-as').format(name=each.stored)})"
