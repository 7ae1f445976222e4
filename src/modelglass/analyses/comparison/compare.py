"""Two models side by side: what lines up, and where they differ."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from modelglass.analyses.comparison.aligning import aligned
from modelglass.analyses.comparison.judging import judged
from modelglass.analyses.comparison.leftovers import exchanged, lone, weightless
from modelglass.analyses.comparison.parts import Match, Part, Sorts, covered, parts
from modelglass.analyses.comparison.running import Runs, forward_macs
from modelglass.analyses.comparison.sides import STORED, Sides, side
from modelglass.analyses.comparison.steps import Settled, lone_pair, settled
from modelglass.analyses.comparison.telling import Told
from modelglass.report.comparison import Compared, Comparison, Pair

if TYPE_CHECKING:
    from modelglass.report import Checkpoint, Model

_Placed = tuple[float, Pair]  # with its place in the order of the first model


def compare(
    a: Model,
    b: Model,
    *,
    unsaved_a: Collection[str] | None = None,
    unsaved_b: Collection[str] | None = None,
    checkpoint_a: Checkpoint | None = None,
    checkpoint_b: Checkpoint | None = None,
) -> Comparison:
    """Which parts of two models are each other's counterparts, and in what they differ.

    `unsaved` are buffers that are never stored, so that a port need not have them; None: not known.
    `checkpoint` is what a model was read from. Of models that both ran, what their modules gave is compared.
    """
    sorts = Sorts()
    sides = Sides(side(a, unsaved_a, checkpoint_a), side(b, unsaved_b, checkpoint_b))
    root_a, root_b = (
        parts(replace(model, source=STORED) if each.stored else model, sorts)
        for model, each in zip((a, b), sides, strict=True)
    )
    found = settled(root_a, root_b, aligned(root_a, root_b, sorts), sides)
    runs = Runs(a, b)
    alone = list(_lone_pairs(root_a, root_b, found, sides))
    pairs = [*_pairs(found.matches, sides, runs, [pair for _, pair in alone]), *alone]
    ordered = tuple(pair for _, pair in sorted(pairs, key=lambda each: each[0]))
    # What only one Sequential runs was told as different, and is not noted again.
    told = [Match(part, part, "order") for part in (*found.lone_a, *found.lone_b)]
    notes = (*weightless(root_a, root_b, [*found.matches, *told], sides), *runs.notes(ordered))
    return Comparison(
        a=_compared(a, root_a, [(name, pair) for pair in ordered for t in pair.tensors for name in t.a]),
        b=_compared(b, root_b, [(name, pair) for pair in ordered for t in pair.tensors for name in t.b]),
        pairs=ordered,
        first=runs.first(ordered),
        notes=notes,
    )


def _pairs(matches: Sequence[Match], sides: Sides, runs: Runs, alone: Sequence[Pair]) -> Iterator[_Placed]:
    """Counterparts that hold weights, that are layers without any, or that differ."""
    crossed = exchanged(matches)
    pairs: list[tuple[Match, Pair]] = []
    for place, match in enumerate(matches):
        a, b = match.a, match.b
        tensors, found = judged(match, sides)
        deviations = (*found, *crossed.get(place, ()), *runs.outputs(a.path, b.path))
        types = {"type_a": a.type, "type_b": b.type}
        pair = Pair(a=a.path, b=b.path, **types, matched=match.how, tensors=tensors, deviations=deviations)
        pairs.append((match, pair))
    told = Told([pair for _, pair in pairs], alone, sides)
    for match, pair in sorted(pairs, key=lambda each: -len(each[0].a.path)):  # what is inside comes first
        whole = replace(pair, deviations=(*pair.deviations, *told.more(match)))
        a, b = match.a, match.b
        layers = a.kind is not None and b.kind is not None and not (a.weighs or b.weighs)
        if whole.tensors or whole.deviations or layers:
            yield float(a.order), whole


def _lone_pairs(root_a: Part, root_b: Part, found: Settled, sides: Sides) -> Iterator[_Placed]:
    """What has no counterpart; of the second model, behind what it stands behind there."""
    met_a, met_b = map(_and_repeated, (root_a, root_b), covered(found.matches))
    for part, pair in lone(root_a, met_a, of_a=True, unsaved=sides.a.unsaved):
        yield float(part.order), pair
    for part in found.lone_a:
        yield float(part.order), lone_pair(part, of_a=True)
    known = sorted((match.b.order, match.a.order) for match in found.matches if match.b.slots)
    orders = [order for order, _ in known]
    extra = list(lone(root_b, met_b, of_a=False, unsaved=sides.b.unsaved))
    for part, pair in [*extra, *((part, lone_pair(part, of_a=False)) for part in found.lone_b)]:
        at = bisect_right(orders, part.order)
        yield (known[at - 1][1] + 0.5 if at else -0.5), pair


def _and_repeated(root: Part, met: set[str]) -> set[str]:
    """The names of tensors that were met, and of those that hold the same memory in a file."""
    slots = [slot for part in root.below() for slot in part.slots.values() if slot.tied is None]
    kept = {slot.tensor.storage for slot in slots if met.issuperset(slot.names)}
    return met | {name for slot in slots if slot.tensor.storage in kept for name in slot.names}


def _compared(model: Model, root: Part, held: Sequence[tuple[str, Pair]]) -> Compared:
    """One of the two, with how many of its tensors have a counterpart that is the same."""
    slots = [slot for part in root.below() for slot in part.slots.values()]
    paired = {name for name, _ in held}
    names = {name for slot in slots for name in slot.names if not slot.constant or name in paired}
    tied = {slot.names[0] for slot in slots if slot.tied is not None}
    faulty = {
        name
        for _, pair in held
        for each in pair.deviations
        if each.standing == "different"
        for name in (each.tensor_a, each.tensor_b)
    }
    kept = {tensor.storage for tensor in model.tensors if tensor.name in paired}
    tied |= {tensor.name for tensor in model.tensors if tensor.storage in kept}
    matched = (paired | tied) - faulty
    sizes = {t.storage: t.logical_numel for t in model.tensors if t.name in names and t.kind != "buffer"}
    known = [size for size in sizes.values() if size is not None]
    macs = forward_macs(model)
    return Compared(
        name=model.name,
        source=model.source,
        tensors=len(names),
        matched=len(matched & names),
        params=sum(known) if len(known) == len(sizes) else None,
        macs=macs.known,
        macs_complete=macs.complete,
    )
