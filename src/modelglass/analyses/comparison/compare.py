"""Two models side by side: what lines up, and where they differ."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from modelglass.analyses.comparison.aligning import aligned, covered
from modelglass.analyses.comparison.judging import Sides, judged
from modelglass.analyses.comparison.leftovers import exchanged, lone, weightless
from modelglass.analyses.comparison.parts import Match, Part, Sorts, parts
from modelglass.analyses.comparison.running import Runs
from modelglass.report.comparison import Compared, Comparison, Pair

if TYPE_CHECKING:
    from modelglass.report import Model

_Placed = tuple[float, Pair]  # with its place in the order of the first model


def compare(
    a: Model,
    b: Model,
    *,
    unsaved_a: Collection[str] | None = None,
    unsaved_b: Collection[str] | None = None,
) -> Comparison:
    """Which parts of two models are each other's counterparts, and in what they differ.

    `unsaved` are buffers that are never stored, so that a port need not have them; None: not known. Of models
    that both ran, what their modules gave is compared, too.
    """
    sorts = Sorts()
    root_a, root_b = parts(a, sorts), parts(b, sorts)
    matches = aligned(root_a, root_b, sorts)
    sides = Sides(a.source, b.source, _known(unsaved_a), _known(unsaved_b))
    runs = Runs(a, b)
    pairs = [*_pairs(matches, sides, runs), *_lone_pairs(root_a, root_b, matches, sides)]
    ordered = tuple(pair for _, pair in sorted(pairs, key=lambda each: each[0]))
    notes = (*weightless(root_a, root_b, matches, sides), *runs.notes(ordered))
    return Comparison(
        a=_compared(a, root_a, [(name, pair) for pair in ordered for t in pair.tensors for name in t.a]),
        b=_compared(b, root_b, [(name, pair) for pair in ordered for t in pair.tensors for name in t.b]),
        pairs=ordered,
        first=runs.first(ordered),
        notes=notes,
    )


def _known(names: Collection[str] | None) -> frozenset[str] | None:
    return None if names is None else frozenset(names)


def _pairs(matches: Sequence[Match], sides: Sides, runs: Runs) -> Iterator[_Placed]:
    """Counterparts that hold weights, that are layers without any, or that differ."""
    crossed = exchanged(matches)
    for place, match in enumerate(matches):
        a, b = match.a, match.b
        tensors, found = judged(match, sides)
        deviations = (*found, *crossed.get(place, ()), *runs.outputs(a.path, b.path))
        layers = a.kind is not None and b.kind is not None and not (a.weighs or b.weighs)
        if tensors or deviations or layers:
            yield (
                float(a.order),
                Pair(
                    a=a.path,
                    b=b.path,
                    type_a=a.type,
                    type_b=b.type,
                    matched=match.how,
                    tensors=tensors,
                    deviations=deviations,
                ),
            )


def _lone_pairs(root_a: Part, root_b: Part, matches: Sequence[Match], sides: Sides) -> Iterator[_Placed]:
    """What has no counterpart; of the second model, behind what it stands behind there."""
    met_a, met_b = covered(matches)
    for part, pair in lone(root_a, met_a, of_a=True, unsaved=sides.unsaved_a):
        yield float(part.order), pair
    known = sorted((match.b.order, match.a.order) for match in matches if match.b.slots)
    orders = [order for order, _ in known]
    for part, pair in lone(root_b, met_b, of_a=False, unsaved=sides.unsaved_b):
        at = bisect_right(orders, part.order)
        yield (known[at - 1][1] + 0.5 if at else -0.5), pair


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
    matched = (paired | tied) - faulty
    sizes = {t.storage: t.logical_numel for t in model.tensors if t.name in names and t.kind != "buffer"}
    known = [size for size in sizes.values() if size is not None]
    macs = [op.macs for op in model.ops if op.macs is not None]
    return Compared(
        name=model.name,
        source=model.source,
        tensors=len(names),
        matched=len(matched & names),
        params=sum(known) if len(known) == len(sizes) else None,
        macs=sum(macs) if model.ops else None,
    )
