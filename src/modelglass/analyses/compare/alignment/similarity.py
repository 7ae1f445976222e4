"""How alike two parts are, and what makes them equal."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from modelglass.analyses.compare.alignment.joined_weights import stacks
from modelglass.analyses.compare.common_form.conventions import canonical_name
from modelglass.analyses.compare.common_form.parts import Part
from modelglass.analyses.compare.layouts import are_one_below_the_other

if TYPE_CHECKING:
    from modelglass.report.comparison import Matched

LEAST = 0.3  # how alike two parts must be to be each other's counterparts
NEAR = 0.85  # of parts that hold as many weights
_FUZZY = 0.9  # at most, of parts whose shapes differ
_ROUNDING = 0.001  # of all weights, by which parts may differ that hold as many
_FAR = 8  # times as many weights: such layers are no counterparts
_WEIGHTLESS = 0.01  # what a layer without weights counts beside those with weights


def similarity(a: Part, b: Part) -> float:
    """How alike two parts are: from 0, for not at all, to less than 1."""
    if not (a.weighs and b.weighs):
        if a.weighs or b.weighs:
            return 0.0
        return _FUZZY if a.kind == b.kind is not None else _WEIGHTLESS
    if a.is_leaf and b.is_leaf:
        return _likeness_of_leaves(a, b)
    if abs(a.numel - b.numel) <= _ROUNDING * a.numel:
        return _FUZZY if a.numel == b.numel else NEAR
    if is_list(a) != is_list(b) and (stacks(a, b) or stacks(b, a)):
        return LEAST
    if a.is_leaf or b.is_leaf:
        return 0.0
    common = sum((Counter(a.sorts) & Counter(b.sorts)).values())
    share = common / max(len(a.sorts), len(b.sorts))
    alike = max(_FUZZY * share, _likeness_of_names(a, b))
    return alike if alike >= LEAST else 0.0


def own_sort(part: Part) -> object:
    """Equal for parts that hold weights of the same shapes themselves."""
    return tuple(sorted((role, slot.shape or ()) for role, slot in part.slots.items()))


def whole_sort(part: Part) -> object:
    """Equal for parts that hold weights of the same shapes in all, or that are of one kind without any."""
    return part.sort or ("no weights", part.kind or part.type)


def match_kind(a: Part, b: Part) -> Matched:
    return "shape" if own_sort(a) == own_sort(b) else "likeness"


def is_list(part: Part) -> bool:
    """Whether everything with weights in a part is numbered."""
    members = [child for child in part.children.values() if child.weighs]
    return bool(members) and not part.slots and all(child.token.isdecimal() for child in members)


def mean_the_same(a: Part, b: Part) -> bool:
    return canonical_name(a.token) == canonical_name(b.token)


def have_one_shape(a: Part, b: Part) -> bool:
    return all(
        role not in b.slots or b.slots[role].shape == slot.shape for role, slot in a.slots.items()
    ) and are_leaves_alike(a, b)


def are_leaves_alike(a: Part, b: Part) -> bool:
    return a.is_leaf == b.is_leaf


def _likeness_of_names(a: Part, b: Part) -> float:
    """By what two parts call what is in them. Numbers say nothing: of lists, their first members do."""
    if is_list(a) and is_list(b):
        first, other = (next(c for c in part.children.values() if c.weighs) for part in (a, b))
        return min(_FUZZY, similarity(first, other))
    left, right = ({token for token in part.children if not token.isdecimal()} for part in (a, b))
    return _FUZZY * len(left & right) / max(1, len(left | right))


def _likeness_of_leaves(a: Part, b: Part) -> float:
    """Less than half, so that two that are alike never count as much as one that is equal."""
    if a.kind is not None and b.kind is not None and a.kind != b.kind:
        return 0.0
    one, other = a.slots.get("weight"), b.slots.get("weight")
    if one is None or other is None or one.shape is None or other.shape is None:
        return LEAST if a.slots.keys() & b.slots.keys() else 0.0
    if are_one_below_the_other(one.shape, other.shape):
        return LEAST + (0.05 if mean_the_same(a, b) else 0.0)
    if len(one.shape) != len(other.shape) or not 1 / _FAR <= (one.numel + 1) / (other.numel + 1) <= _FAR:
        return 0.0
    equal = sum(x == y for x, y in zip(one.shape, other.shape, strict=True)) / max(1, len(one.shape))
    return LEAST + 0.1 * equal + (0.05 if mean_the_same(a, b) else 0.0)
