"""Two models side by side: what lines up, and where they differ."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from modelglass.analyses.compare.alignment.align import align_parts
from modelglass.analyses.compare.alignment.sequentials import SequentialMatches, align_sequentials, lone_pair
from modelglass.analyses.compare.block_settings import BlockSettings
from modelglass.analyses.compare.common_form.parts import (
    Interner,
    Match,
    Part,
    build_tree,
    matched_names,
)
from modelglass.analyses.compare.differences import find_differences
from modelglass.analyses.compare.parameter_diff import Counted, explain_difference, note_unknown_sizes
from modelglass.analyses.compare.run_diff import RunDiff, forward_macs
from modelglass.analyses.compare.sides import STORED, Sides, describe_side
from modelglass.analyses.compare.unmatched import (
    find_exchanged,
    note_stages,
    note_weightless,
    unmatched_pairs,
)
from modelglass.analyses.serving import whole_model
from modelglass.report.comparison import ComparedModel, Comparison, Pair

if TYPE_CHECKING:
    from modelglass.analyses.compare.sides import Side
    from modelglass.report import Checkpoint, Engine, Model

_Placed = tuple[float, Pair]  # with its place in the order of the first model


def compare(
    a: Model,
    b: Model,
    *,
    unsaved_a: Collection[str] | None = None,
    unsaved_b: Collection[str] | None = None,
    checkpoint_a: Checkpoint | None = None,
    checkpoint_b: Checkpoint | None = None,
    engine_a: Engine | None = None,
    engine_b: Engine | None = None,
) -> Comparison:
    """Which parts of two models are each other's counterparts, and in what they differ.

    `unsaved` are buffers that are never stored, so that a port need not have them; None: not known.
    `checkpoint` is what a model was read from. `engine` is what serves it; tensors of a rank are compared as
    those of the whole model. Of models that both ran, what their modules gave is compared.
    """
    sorts = Interner()
    sides = Sides(
        describe_side(a, unsaved_a, checkpoint_a, engine_a),
        describe_side(b, unsaved_b, checkpoint_b, engine_b),
    )
    root_a, root_b = (_root(model, each, sorts) for model, each in zip((a, b), sides, strict=True))
    found = align_sequentials(root_a, root_b, align_parts(root_a, root_b, sorts, served=sides.served), sides)
    runs = RunDiff(a, b)
    alone = list(_lone_pairs(root_a, root_b, found, sides))
    pairs = [*_pairs(found.matches, sides, runs, [pair for _, pair in alone]), *alone]
    ordered = tuple(pair for _, pair in sorted(pairs, key=lambda each: each[0]))
    # What only one Sequential runs was reported as different, and is not noted again.
    told = [Match(part, part, "order") for part in (*found.lone_a, *found.lone_b)]
    notes = [*note_weightless(root_a, root_b, [*found.matches, *told], sides), *runs.notes(ordered)]
    notes += [
        note for name, engine in (("a", engine_a), ("b", engine_b)) for note in note_stages(name, engine)
    ]
    held_a = [(name, pair) for pair in ordered for t in pair.tensors for name in t.a]
    held_b = [(name, pair) for pair in ordered for t in pair.tensors for name in t.b]
    counted_a = Counted(a, _names(root_a, held_a), sides.a)
    counted_b = Counted(b, _names(root_b, held_b), sides.b)
    return Comparison(
        a=_compared_model(a, root_a, held_a, counted_a.params),
        b=_compared_model(b, root_b, held_b, counted_b.params),
        pairs=ordered,
        first=runs.first(ordered),
        notes=(*notes, *note_unknown_sizes("a", counted_a), *note_unknown_sizes("b", counted_b)),
        reconciliation=explain_difference(counted_a, counted_b, ordered),
    )


def _root(model: Model, side: Side, sorts: Interner) -> Part:
    """The tree of a model's parts, where the tensors of a rank are those of the whole model."""
    source = STORED if side.stored else side.source
    whole = whole_model(replace(model, source=source), side.shards)
    names = {tensor: tuple(piece.name for piece in shard.pieces) for tensor, shard in side.shards.items()}
    told = {
        tensor: tuple(name for name in pieces if name is not None)
        for tensor, pieces in names.items()
        if None not in pieces
    }
    return build_tree(whole, sorts, told, _homes(model) if side.served else None)


def _homes(model: Model) -> Mapping[str, str]:
    """Modules that an engine uses again deep in its own ones, by path, and where they are at home."""
    nearest = {module.path: min(module.aliases, key=_depth) for module in model.modules if module.aliases}
    return {path: home for path, home in nearest.items() if _depth(home) < _depth(path)}


def _depth(path: str) -> int:
    return path.count(".")


def _names(root: Part, held: Sequence[tuple[str, Pair]]) -> frozenset[str]:
    """The tensors of a model, without constants that the other has not."""
    slots = [slot for part in root.below() for slot in part.slots.values()]
    paired = {name for name, _ in held}
    return frozenset(name for slot in slots for name in slot.names if not slot.constant or name in paired)


def _pairs(matches: Sequence[Match], sides: Sides, runs: RunDiff, alone: Sequence[Pair]) -> Iterator[_Placed]:
    """Counterparts that hold weights, that are layers without any, or that differ."""
    crossed = find_exchanged(matches)
    met = matched_names(matches)
    pairs: list[tuple[Match, Pair]] = []
    for place, match in enumerate(matches):
        a, b = match.a, match.b
        tensors, found = find_differences(match, sides, met)
        deviations = (*found, *crossed.get(place, ()), *runs.outputs(a.path, b.path))
        types = {"type_a": a.type, "type_b": b.type}
        pair = Pair(a=a.path, b=b.path, **types, matched=match.how, tensors=tensors, deviations=deviations)
        pairs.append((match, pair))
    told = BlockSettings([pair for _, pair in pairs], alone, sides)
    for match, pair in sorted(pairs, key=lambda each: -len(each[0].a.path)):  # what is inside comes first
        whole = replace(pair, deviations=(*pair.deviations, *told.more(match)))
        a, b = match.a, match.b
        layers = a.kind is not None and b.kind is not None and not (a.weighs or b.weighs)
        if whole.tensors or whole.deviations or layers:
            yield float(a.order), whole


def _lone_pairs(root_a: Part, root_b: Part, found: SequentialMatches, sides: Sides) -> Iterator[_Placed]:
    """What has no counterpart; of the second model, behind what it stands behind there."""
    met_a, met_b = map(_with_shared, (root_a, root_b), matched_names(found.matches), sides)
    for part, pair in unmatched_pairs(root_a, met_a, of_a=True, side=sides.a):
        yield float(part.order), pair
    for part in found.lone_a:
        yield float(part.order), lone_pair(part, of_a=True)
    known = sorted((match.b.order, match.a.order) for match in found.matches if match.b.slots)
    orders = [order for order, _ in known]
    extra = list(unmatched_pairs(root_b, met_b, of_a=False, side=sides.b))
    for part, pair in [*extra, *((part, lone_pair(part, of_a=False)) for part in found.lone_b)]:
        at = bisect_right(orders, part.order)
        yield (known[at - 1][1] + 0.5 if at else -0.5), pair


def _with_shared(root: Part, met: set[str], side: Side) -> set[str]:
    """The names of tensors that were met, and of those that hold the same memory in a file or an engine."""
    slots = [
        slot
        for part in root.below()
        for slot in part.slots.values()
        if (slot.tied is None or side.served) and not slot.constant
    ]
    kept = {slot.tensor.storage for slot in slots if met.issuperset(slot.names)}
    return met | {name for slot in slots if slot.tensor.storage in kept for name in slot.names}


def _compared_model(
    model: Model, root: Part, held: Sequence[tuple[str, Pair]], params: int | None
) -> ComparedModel:
    """One of the two, with how many of its tensors have a counterpart that is the same."""
    slots = [slot for part in root.below() for slot in part.slots.values()]
    paired = {name for name, _ in held}
    names = _names(root, held)
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
    macs = forward_macs(model)
    return ComparedModel(
        name=model.name,
        source=model.source,
        tensors=len(names),
        matched=len(matched & names),
        params=params,
        macs=macs.known,
        macs_complete=macs.complete,
    )
