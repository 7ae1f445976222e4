"""Weights that one model keeps as several tensors and the other as one: joined side by side, or stacked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from math import prod
from typing import TYPE_CHECKING

from modelglass.analyses.compare.common_form.parts import Interner, Match, Part, Slot, describe, squeeze

if TYPE_CHECKING:
    from modelglass.report import Shape

MOST_JOINED = 6  # parts in one, and parts that are looked at for that: 20 ways to choose three of six


def stacks(a: Part, b: Part) -> bool:
    """Whether `a` is a list of equal parts whose weights are stacked in `b`, which may have others."""
    members = equal_members(a)
    if not members:
        return False
    shapes, each = _shapes(b), _shapes(members[0])
    if a.numel == b.numel:
        # A list of two square matrices is not a stack of itself: that has no more tensors than a member.
        fitting = 0 < len(shapes) <= len(each)
        return fitting and all(shape[:1] == (len(members),) for shape in shapes)
    ranks = sorted(len(shape) + 1 for shape in each)
    return ranks == sorted(map(len, shapes)) and len({shape[0] for shape in shapes}) == 1


def equal_members(part: Part) -> list[Part]:
    """The members of a list, if they all hold weights of the same shapes; else none."""
    members = [child for child in part.children.values() if child.weighs]
    if len(members) < 2 or part.slots or not all(child.token.isdecimal() for child in members):
        return []
    return members if all(child.sort == members[0].sort for child in members) else []


def find_stacked(left: Sequence[Part], right: Sequence[Part]) -> tuple[Part, list[Part]] | None:
    """A list of equal parts, and the tensors beside each other in which all their weights are stacked."""
    for part in left:
        members = equal_members(part)
        tensors = [other for other in right if other.is_leaf and _shape(other)[:1] == (len(members),)]
        fitting = members and 1 < len(tensors) <= len(_shapes(members[0]))
        if fitting and sum(other.numel for other in tensors) == part.numel:
            return part, tensors
    return None


def _shapes(part: Part) -> list[Shape]:
    return [slot.shape or () for each in part.below() for slot in each.slots.values()]


def stack(part: Part, sorts: Interner) -> Part:
    """A list of equal parts as one part with stacked weights."""
    members = [child for child in part.children.values() if child.weighs]
    stacked = _stack_members(members, part.token, members[0].path.rpartition(".")[0])
    for each in reversed(list(stacked.below())):
        describe(each, sorts)
    return stacked


def _stack_members(members: Sequence[Part], token: str, path: str) -> Part:
    first = members[0]
    made = Part(token=token, path=path, order=first.order, type=first.type)
    for role, slot in first.slots.items():
        made.slots[role] = _over([each.slots[role] for each in members if role in each.slots], slot)
    for name in first.children:
        below = [each.children[name] for each in members if name in each.children]
        made.children[name] = _stack_members(below, name, _below(path, name))
    return made


def _below(path: str, name: str) -> str:
    """Where the weights are of all members of a list that are called so."""
    return f"{path}.{name}" if "*" in path else f"{path}.*.{name}".lstrip(".")


def _over(slots: Sequence[Slot], first: Slot) -> Slot:
    names = tuple(name for slot in slots for name in slot.names)
    shape = None if first.shape is None else (len(slots), *first.shape)
    return Slot(names=names, shape=shape, own_shape=shape, tensor=first.tensor)


def match_declared(
    left: Sequence[Part], right: Sequence[Part], sorts: Interner
) -> Iterator[tuple[Match, Sequence[Part]]]:
    """Each part that says of which it is made up, with those of the other side that are called so."""
    for ones, others, turned in ((left, right, False), (right, left, True)):
        named = {part.token: part for part in others if part.weighs and part.is_leaf and part.slots}
        for one in ones:
            weight = one.slots.get("weight")
            names = () if weight is None else weight.pieces
            if len(set(names)) < 2 or one.token in named or not named.keys() >= set(names):
                continue
            members = [named.pop(name) for name in dict.fromkeys(names)]
            whole = _with_zero_biases(_join(members, one), members, one)
            describe(whole, sorts)
            yield (Match(whole, one, "joined") if turned else Match(one, whole, "joined")), [one, *members]


def is_made_up(one: Part, others: Iterable[Part]) -> bool:
    """Whether some of the other side together make up a part."""
    several = [part for part in others if _is_matrix(part)]
    if not _is_matrix(one) or len(several) < 2:
        return False
    named = {part.token for part in several}
    pieces = set(one.slots["weight"].pieces)
    return (len(pieces) > 1 and named >= pieces) or _members(one, several) is not None


def match_joined(
    left: Sequence[Part], right: Sequence[Part], sorts: Interner
) -> Iterator[tuple[Match, Sequence[Part]]]:
    """Each part that several of the other side together make up, with all parts that are settled by that."""
    for ones, others, turned in ((left, right, False), (right, left, True)):
        free = [part for part in others if _is_matrix(part)]
        for one in [part for part in ones if _is_matrix(part)]:
            members = _members(one, free)
            if members is None:
                continue
            whole = _join(members, one)
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
    named = [part for part in smaller if _is_named_in(part.token, one.token)]
    for candidates in (named, smaller):
        for count in range(2, min(len(candidates), MOST_JOINED) + 1):
            runs = [candidates[at : at + count] for at in range(len(candidates) - count + 1)]
            choices = [*runs, *(combinations(candidates, count) if len(candidates) <= MOST_JOINED else ())]
            for members in choices:
                if _make_up([_shape(part) for part in members], _shape(one)):
                    return tuple(members)
    return None


def _is_named_in(token: str, whole: str) -> bool:
    """Whether a name is part of the name of the whole: q_proj in qkv_proj, gate_proj in gate_up_proj."""
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
        or _one_below_the_other(shapes, whole)
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


def _one_below_the_other(shapes: Sequence[Shape], whole: Shape) -> bool:
    """Whether each has the matrices of all experts one below the other, of which the whole has a stack."""
    if len(whole) != 3 or any(len(shape) != 2 for shape in shapes):
        return False
    experts, width = whole[0], whole[2]
    return all(shape[1] == width and not shape[0] % experts for shape in shapes)


def _join(members: Sequence[Part], one: Part) -> Part:
    first = members[0]
    path = first.path.rpartition(".")[0]
    made = Part(token=one.token, path=path, order=first.order, type=first.type, kind=first.kind)
    for role in dict.fromkeys(role for part in members for role in part.slots):
        slots = [part.slots[role] for part in members if role in part.slots]
        fits = role == "weight" and _make_up([_shape(part) for part in members], _shape(one))
        shape = _shape(one) if fits else _join_shapes([slot.shape for slot in slots], matrix=role == "weight")
        names = tuple(name for slot in slots for name in slot.names)
        made.slots[role] = Slot(names=names, shape=shape, own_shape=shape, tensor=slots[0].tensor)
    return made


def _with_zero_biases(whole: Part, members: Sequence[Part], one: Part) -> Part:
    """The joined part, as long as the other's bias where that has zeros for members without a bias."""
    bias, own = whole.slots.get("bias"), one.slots.get("bias")
    without = tuple(part.token for part in members if "bias" not in part.slots)
    rows = sum(_shape(part)[0] for part in members if _shape(part))
    if bias is not None and own is not None and without and own.shape == (rows,):
        whole.slots["bias"] = replace(bias, shape=own.shape, filled=without)
    return whole


def _join_shapes(shapes: Sequence[Shape | None], *, matrix: bool) -> Shape | None:
    """The shape of biases one after the other, or of matrices one below the other."""
    known = [shape for shape in shapes if shape]
    if not known:
        return None
    at = len(known[0]) - 1 - matrix
    return (*known[0][:at], sum(shape[at] for shape in known), *known[0][at + 1 :])


def drop_zero_biases(match: Match) -> None:
    """Give weights that differ only in dimensions of 1 one shape: a convolution of 1x1 is a linear layer."""
    a, b = match.a, match.b
    for role in a.slots.keys() & b.slots.keys():
        one, other = a.slots[role].shape, b.slots[role].shape
        if one is None or other is None or len(one) == len(other) or squeeze(one) != squeeze(other):
            continue
        longer, shorter = (a, b) if len(one) > len(other) else (b, a)
        shorter.slots[role] = replace(shorter.slots[role], shape=longer.slots[role].shape)
        if role == "weight" and _steps_by_one(longer):
            shorter.kind, shorter.sure = None, False


def _steps_by_one(part: Part) -> bool:
    """Whether a convolution looks at every place, as a linear layer does."""
    stride = part.config.get("stride", 1)
    return all(step == 1 for step in (stride if isinstance(stride, list | tuple) else (stride,)))
