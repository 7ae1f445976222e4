"""Weights that one model keeps as several tensors and the other as one: joined side by side, or stacked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from math import prod
from typing import TYPE_CHECKING

from modelglass.analyses.comparison.parts import Match, Part, Slot, Sorts, describe

if TYPE_CHECKING:
    from modelglass.report import Shape

MOST_JOINED = 6  # parts in one, and parts that are looked at for that: 20 ways to choose three of six


def stacks(a: Part, b: Part) -> bool:
    """Whether `a` is a list of equal parts whose weights are stacked in `b`."""
    members = [part for part in a.children.values() if part.weighs]
    if len(members) < 2 or a.slots or not all(part.token.isdecimal() for part in members):
        return False
    if any(part.sort != members[0].sort for part in members) or a.numel != b.numel:
        return False
    shapes = [slot.shape or () for part in b.below() for slot in part.slots.values()]
    return bool(shapes) and all(shape[:1] == (len(members),) for shape in shapes)


def stack(part: Part, sorts: Sorts) -> Part:
    """A list of equal parts as one part with stacked weights."""
    members = [child for child in part.children.values() if child.weighs]
    stacked = _stacked(members, part.token)
    for each in reversed(list(stacked.below())):
        describe(each, sorts)
    return stacked


def _stacked(members: Sequence[Part], token: str) -> Part:
    first = members[0]
    made = Part(token=token, path=first.path.rpartition(".")[0], order=first.order, type=first.type)
    for role, slot in first.slots.items():
        made.slots[role] = _over([each.slots[role] for each in members if role in each.slots], slot)
    for name in first.children:
        below = [each.children[name] for each in members if name in each.children]
        made.children[name] = _stacked(below, name)
    return made


def _over(slots: Sequence[Slot], first: Slot) -> Slot:
    names = tuple(name for slot in slots for name in slot.names)
    shape = None if first.shape is None else (len(slots), *first.shape)
    return Slot(names=names, shape=shape, own_shape=shape, tensor=first.tensor)


def joined(
    left: Sequence[Part], right: Sequence[Part], sorts: Sorts
) -> Iterator[tuple[Match, Sequence[Part]]]:
    """Each part that several of the other side together make up, with all parts that are settled by that."""
    for ones, others, turned in ((left, right, False), (right, left, True)):
        free = [part for part in others if _is_matrix(part)]
        for one in [part for part in ones if _is_matrix(part)]:
            members = _members(one, free)
            if members is None:
                continue
            whole = _joined(members, one)
            describe(whole, sorts)
            free = [part for part in free if part not in members]
            yield (Match(whole, one, "joined") if turned else Match(one, whole, "joined")), [one, *members]


def _is_matrix(part: Part) -> bool:
    return part.is_leaf and part.weighs and len(_shape(part)) > 1


def _shape(part: Part) -> Shape:
    weight = part.slots.get("weight")
    return () if weight is None or weight.shape is None else weight.shape


def _members(one: Part, free: Sequence[Part]) -> Sequence[Part] | None:
    """The parts that together make up one: those whose names say so first, then neighbours, then any."""
    smaller = [part for part in free if prod(_shape(part)) < prod(_shape(one))]
    named = [part for part in smaller if _is_named(part.token, one.token)]
    for candidates in (named, smaller):
        for count in range(2, min(len(candidates), MOST_JOINED) + 1):
            runs = [candidates[at : at + count] for at in range(len(candidates) - count + 1)]
            choices = [*runs, *(combinations(candidates, count) if len(candidates) <= MOST_JOINED else ())]
            for members in choices:
                if _make_up([_shape(part) for part in members], _shape(one)):
                    return tuple(members)
    return None


def _is_named(token: str, whole: str) -> bool:
    """Whether a name is told in that of the whole: q_proj in qkv_proj, gate_proj in gate_up_proj."""
    word = token.removesuffix("_proj").removesuffix("_lin")
    return word in whole or (whole.startswith("qkv") and word[:1] in "qkv")


def _make_up(shapes: Sequence[Shape], whole: Shape) -> bool:
    """Whether matrices side by side are the whole, be it with inputs and outputs exchanged, or by heads."""
    if sum(map(prod, shapes)) != prod(whole):
        return False
    exchanged = (*whole[:-2], whole[-1], whole[-2])
    return (
        _beside_each_other(shapes, whole)
        or (len(whole) == 3 and _beside_each_other(shapes, exchanged))
        or _by_heads(shapes, whole)
    )


def _beside_each_other(shapes: Sequence[Shape], whole: Shape) -> bool:
    """Whether all differ from the whole in one and the same dimension, and not in what they take in."""
    if any(len(shape) != len(whole) for shape in shapes):
        return False
    unequal = {at for shape in shapes for at, (x, y) in enumerate(zip(shape, whole, strict=True)) if x != y}
    return len(unequal) == 1 and max(unequal) < max(1, len(whole) - 1)


def _by_heads(shapes: Sequence[Shape], whole: Shape) -> bool:
    """Whether each is a matrix per head, of which the whole has all heads one below the other."""
    if len(whole) != 2 or any(len(shape) != 3 or shape[0] != shapes[0][0] for shape in shapes):
        return False
    return all(whole[1] in shape[1:] for shape in shapes) and not whole[0] % shapes[0][0]


def _joined(members: Sequence[Part], one: Part) -> Part:
    first = members[0]
    path = first.path.rpartition(".")[0]
    made = Part(token=one.token, path=path, order=first.order, type=first.type, kind=first.kind)
    for role in dict.fromkeys(role for part in members for role in part.slots):
        slots = [part.slots[role] for part in members if role in part.slots]
        shape = _shape(one) if role == "weight" else _in_a_row([slot.shape for slot in slots])
        names = tuple(name for slot in slots for name in slot.names)
        made.slots[role] = Slot(names=names, shape=shape, own_shape=shape, tensor=slots[0].tensor)
    return made


def _in_a_row(shapes: Sequence[Shape | None]) -> Shape | None:
    """The shape of biases one after the other, along their last dimension."""
    known = [shape for shape in shapes if shape]
    return (*known[0][:-1], sum(shape[-1] for shape in known)) if known else None
