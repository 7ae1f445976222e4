"""Wrappers and lists that only one of two models has: what is in them takes their place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from modelglass.analyses.compare.alignment.joined_weights import is_made_up
from modelglass.analyses.compare.alignment.similarity import LEAST, is_list, similarity
from modelglass.analyses.compare.common_form.parts import Part

_MOST = 0.5  # of the members of lists, that must be in the one list that has them all


def open_wrappers(a: Part, b: Part) -> tuple[Part, Part]:
    """What is inside of parts that only wrap one other part, where their counterpart has no such wrapper."""
    while True:
        inner_a, inner_b = _only_child(a, b), _only_child(b, a)
        if inner_a is not None and inner_b is not None:
            return a, b
        if inner_a is not None and (b.slots or not _is_member(inner_a, b)):
            a = inner_a
        elif inner_b is not None and (a.slots or not _is_member(inner_b, a)):
            b = inner_b
        else:
            return a, b


def open_nested(left: list[Part], right: list[Part]) -> bool:
    """Replace what only one of two models wraps by what is in it; False where there is nothing like that."""
    return (
        _spread_wrapper(left, right)
        or _spread_wrapper(right, left)
        or _spread_lists(left, right)
        or _spread_lists(right, left)
    )


def _is_member(inner: Part, other: Part) -> bool:
    """Whether a part is one of a list, of which the other model has more, or has a namesake there."""
    if inner.token in other.children:
        return True
    return inner.token.isdecimal() and any(token.isdecimal() for token in other.children)


def _only_child(part: Part, other: Part) -> Part | None:
    """What a part wraps; None where it is more, or what several parts of the other make up."""
    children = [child for child in part.children.values() if child.weighs]
    if len(children) != 1 or part.slots or is_made_up(children[0], other.children.values()):
        return None
    return children[0]


def _spread_wrapper(parts: list[Part], others: Sequence[Part]) -> bool:
    """Replace a wrapper by what is in it, where the other model has most of that without a wrapper."""
    names = {part.token: part for part in others if not part.token.isdecimal()}
    pieces = {name for part in others for slot in part.slots.values() for name in slot.pieces}
    sorts = {part.sort for part in others if len(part.sorts) > 1}
    shares = [0.0 if part.slots else _share(part, names, pieces, sorts) for part in parts]
    best = max(shares, default=0.0)
    if best < LEAST:
        return False
    _replace(parts, parts[shares.index(best)])
    return True


def _share(part: Part, names: Mapping[str, Part], pieces: Collection[str], sorts: Collection[int]) -> float:
    """Of what is in a part, how much the other model has under the same name or of the same shapes."""
    children = [child for child in part.children.values() if child.weighs]
    known = [
        child
        for child in children
        if child.sort in sorts or child.token in pieces or _has_namesake(child, names)
    ]
    return len(known) / len(children) if children else 0.0


def _has_namesake(part: Part, names: Mapping[str, Part]) -> bool:
    namesake = names.get(part.token)
    return namesake is not None and (namesake.sort == part.sort or similarity(namesake, part) > 0)


def _spread_lists(parts: list[Part], others: list[Part]) -> bool:
    """Replace a list, and the several lists that the other model has for it, by their members."""
    lists = [part for part in others if is_list(part)]
    for whole in [part for part in parts if is_list(part)]:
        members = _sizes(whole)
        pieces = [each for each in lists if (members & _sizes(each)).total() >= _MOST * len(each.children)]
        together = sum((_sizes(each) for each in pieces), Counter[int]())
        if len(pieces) > 1 and (members & together).total() >= _MOST * max(members.total(), together.total()):
            _replace(parts, whole)
            for each in pieces:
                _replace(others, each)
            return True
    return False


def _sizes(part: Part) -> Counter[int]:
    """How many members of a list hold how many weights."""
    return Counter(child.numel for child in part.children.values() if len(child.sorts) > 1)


def _replace(parts: list[Part], part: Part) -> None:
    place = parts.index(part)
    parts[place : place + 1] = part.children.values()
