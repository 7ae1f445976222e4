"""Which parts of two models are each other's counterparts: by name, by place, by shape, by likeness."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

from modelglass.analyses.comparison.conventions import sense
from modelglass.analyses.comparison.joining import joined, stack, stacks
from modelglass.analyses.comparison.parts import Match, Part, Sorts
from modelglass.analyses.comparison.sequences import lined_up

if TYPE_CHECKING:
    from modelglass.report.comparison import Matched

LEAST = 0.3  # how alike two parts must be to be each other's counterparts
_FUZZY = 0.9  # at most, of parts whose shapes differ
_NEAR = 0.85  # of parts that hold as many weights
_ROUNDING = 0.001  # of all weights, by which parts may differ that hold as many
_FAR = 8  # times as many weights: such layers are no counterparts
_WEIGHTLESS = 0.01  # what a layer without weights counts beside those with weights


def aligned(a: Part, b: Part, sorts: Sorts) -> list[Match]:
    """Every part with its counterpart, where there is one."""
    found = _Alignment(sorts)
    found.align(Match(a, b, "name"))
    found.align_rest(a, b)
    return found.matches


class _Alignment:
    """What has found each other so far."""

    def __init__(self, sorts: Sorts) -> None:
        self.matches: list[Match] = []
        self._sorts = sorts
        self._alike = cache(_likeness)

    def align(self, match: Match) -> None:
        waiting = [match]
        while waiting:
            a, b, how, moved = waiting.pop()
            a, b = _opened(a, b)
            if stacks(a, b):
                a, how = stack(a, self._sorts), "stacked"
            elif stacks(b, a):
                b, how = stack(b, self._sorts), "stacked"
            self.matches.append(Match(a, b, how, moved))
            found = self._children(list(a.children.values()), list(b.children.values()))
            if how == "stacked":
                found = [match._replace(how="stacked") for match in found]
            waiting.extend(reversed(found))

    def align_rest(self, a: Part, b: Part) -> None:
        """Weights that have found nobody below their parents, wherever they are."""
        met_a, met_b = covered(self.matches)
        homes = _Homes(a, b, self.matches)
        left = [part for part in a.below() if _is_lone(part, met_a)]
        right = [part for part in b.below() if _is_lone(part, met_b)]
        pairs = lined_up(left, right, key=homes.sort, likeness=lambda x, y: self._alike_at(homes, x, y))
        self.matches += [Match(left[i], right[j], _how(left[i], right[j])) for i, j in pairs]
        rest, others = _others(left, right, pairs)
        self.matches += [match for match in self._of_one_sort(rest, others) if homes.agree(match)]
        met_a, met_b = covered(self.matches)
        named = {_signature(part): part for part in b.below() if _is_apart(part, met_b)}
        for part in a.below():
            if _is_apart(part, met_a) and _signature(part) in named:
                self.matches.append(Match(part, named.pop(_signature(part)), "name"))

    def _alike_at(self, homes: _Homes, one: Part, other: Part) -> float:
        return self._alike(one, other) if homes.of(one) == homes.of(other) else 0.0

    def _children(self, left: list[Part], right: list[Part]) -> list[Match]:
        """The children of two counterparts that are each other's counterparts."""
        found: list[Match] = []
        if not (left and right):
            return found

        def settle(matches: Iterable[Match]) -> None:
            for match in matches:
                left.remove(match.a)
                right.remove(match.b)
                found.append(match)

        while True:
            settle(_by_name(left, right))
            settle(self._by_place(left, right))
            settle(self._of_one_sort([part for part in left if len(part.sorts) > 1], right))
            if not (_spread(left, right) or _spread(right, left)):
                break
        settle(self._of_one_sort(left, right))
        for match, members in joined(left, right, self._sorts):
            found.append(match)
            for member in members:
                (left if member in left else right).remove(member)
        settle(self._by_likeness(left, right))
        return found

    def _by_place(self, left: Sequence[Part], right: Sequence[Part]) -> list[Match]:
        """Members of lists: by their order, so that one that is missing does not shift all others."""
        rows, columns = _numbered(left), _numbered(right)
        named = self._of_one_number(rows, columns)
        if named is not None:
            return named
        pairs = lined_up(rows, columns, key=_whole_sort, likeness=self._alike)
        found = [Match(rows[i], columns[j], "order") for i, j in pairs]
        moved = self._of_one_sort(*_others(rows, columns, pairs))
        return [*found, *(match._replace(how="order", moved=True) for match in moved)]

    def _of_one_number(self, left: Sequence[Part], right: Sequence[Part]) -> list[Match] | None:
        """Members of two lists by their numbers, where those of one number are nearly equal; else None."""
        numbered = {part.token: part for part in right}
        found = [Match(part, numbered[part.token], "order") for part in left if part.token in numbered]
        alike = (a.sort == b.sort != 0 or self._alike(a, b) >= _NEAR for a, b, _, _ in found)
        return found if all(alike) else None

    def _of_one_sort(self, left: Sequence[Part], right: Sequence[Part]) -> list[Match]:
        """Parts with weights of the same shapes: those whose names say the same, then by their order."""
        by_sort: dict[int, list[Part]] = defaultdict(list)
        for part in right:
            if part.weighs:
                by_sort[part.sort].append(part)
        rows: dict[int, list[Part]] = defaultdict(list)
        for part in left:
            if part.sort in by_sort:
                rows[part.sort].append(part)
        found = []
        for sort, parts in rows.items():
            found += [Match(a, b, "shape") for a, b in _assigned(parts, by_sort[sort])]
        return found

    def _by_likeness(self, left: Sequence[Part], right: Sequence[Part]) -> list[Match]:
        rows = [part for part in left if part.weighs]
        columns = [part for part in right if part.weighs]
        pairs = lined_up(rows, columns, key=id, likeness=self._alike)
        return [Match(rows[i], columns[j], "likeness") for i, j in pairs]


class _Homes:
    """Below which counterparts parts are that have found nobody."""

    def __init__(self, a: Part, b: Part, matches: Sequence[Match]) -> None:
        number = {id(part): place for place, match in enumerate(matches) for part in (match.a, match.b)}
        self._home: dict[int, int] = {}
        for root in (a, b):
            for part in root.below():
                home = self._home.setdefault(id(part), 0)
                below = number.get(id(part), home)
                self._home.update((id(child), below) for child in part.children.values())

    def of(self, part: Part) -> int:
        return self._home[id(part)]

    def sort(self, part: Part) -> object:
        """Equal for weights of the same shapes; many vectors are as long, so theirs must be in one place."""
        return _own_sort(part), self.of(part) if _are_vectors(part) else None

    def agree(self, match: Match) -> bool:
        return self.sort(match.a) == self.sort(match.b)


def _are_vectors(part: Part) -> bool:
    return all(len(slot.shape or ()) < 2 for slot in part.slots.values())


def covered(matches: Iterable[Match]) -> tuple[set[str], set[str]]:
    """The names of tensors, on each side, whose parts have counterparts with weights."""
    names: tuple[set[str], set[str]] = (set(), set())
    for match in matches:
        if match.a.slots and match.b.slots:
            for part, known in ((match.a, names[0]), (match.b, names[1])):
                known.update(name for slot in part.slots.values() for name in slot.names)
    return names


def _others(
    left: Sequence[Part], right: Sequence[Part], pairs: Sequence[tuple[int, int]]
) -> tuple[list[Part], list[Part]]:
    """Those that are in no pair."""
    rows, columns = {i for i, _ in pairs}, {j for _, j in pairs}
    return (
        [part for i, part in enumerate(left) if i not in rows],
        [part for j, part in enumerate(right) if j not in columns],
    )


def _opened(a: Part, b: Part) -> tuple[Part, Part]:
    """What is inside of parts that only wrap one other part, where their counterpart has no such wrapper."""
    while True:
        inner_a, inner_b = _only_child(a), _only_child(b)
        if inner_a is not None and inner_b is not None:
            return a, b
        if inner_a is not None and (b.slots or not _is_member(inner_a, b)):
            a = inner_a
        elif inner_b is not None and (a.slots or not _is_member(inner_b, a)):
            b = inner_b
        else:
            return a, b


def _is_member(inner: Part, other: Part) -> bool:
    """Whether a part is one of a list, of which the other model has more, or has a namesake there."""
    if inner.token in other.children:
        return True
    return inner.token.isdecimal() and any(token.isdecimal() for token in other.children)


def _only_child(part: Part) -> Part | None:
    children = [child for child in part.children.values() if child.weighs]
    return children[0] if len(children) == 1 and not part.slots else None


def _by_name(left: Sequence[Part], right: Sequence[Part]) -> list[Match]:
    named = {part.token: part for part in right if not part.token.isdecimal()}
    return [Match(part, named[part.token], "name") for part in left if part.token in named]


def _numbered(parts: Sequence[Part]) -> list[Part]:
    return sorted((part for part in parts if part.token.isdecimal()), key=lambda part: int(part.token))


def _spread(parts: list[Part], others: Sequence[Part]) -> bool:
    """Replace a wrapper by what is in it, where the other model has most of that without a wrapper."""
    names = {part.token for part in others if not part.token.isdecimal()}
    sorts = {part.sort for part in others if len(part.sorts) > 1}
    shares = [0.0 if part.slots else _share(part, names, sorts) for part in parts]
    best = max(shares, default=0.0)
    if best < LEAST:
        return False
    place = shares.index(best)
    parts[place : place + 1] = parts[place].children.values()
    return True


def _share(part: Part, names: Collection[str], sorts: Collection[int]) -> float:
    """Of what is in a part, how much the other model has under the same name or of the same shapes."""
    children = [child for child in part.children.values() if child.weighs]
    known = [child for child in children if child.token in names or child.sort in sorts]
    return len(known) / len(children) if children else 0.0


def _assigned(left: Sequence[Part], right: Sequence[Part]) -> Iterator[tuple[Part, Part]]:
    """Pairs of parts of one sort, each at most once."""
    rest, others = list(left), list(right)
    for agree in (_say_the_same, _have_one_shape, _are_leaves_alike):
        for a in list(rest):
            b = next((b for b in others if agree(a, b)), None)
            if b is not None:
                rest.remove(a)
                others.remove(b)
                yield a, b


def _say_the_same(a: Part, b: Part) -> bool:
    return sense(a.token) == sense(b.token) and _have_one_shape(a, b)


def _have_one_shape(a: Part, b: Part) -> bool:
    return all(
        role not in b.slots or b.slots[role].shape == slot.shape for role, slot in a.slots.items()
    ) and _are_leaves_alike(a, b)


def _are_leaves_alike(a: Part, b: Part) -> bool:
    return a.is_leaf == b.is_leaf


def _is_lone(part: Part, met: set[str]) -> bool:
    """Whether a part holds weights that have found nobody."""
    slots = part.slots.values()
    return any(s.tied is None and not s.constant and not met.issuperset(s.names) for s in slots)


def _is_apart(part: Part, met: set[str]) -> bool:
    """Whether a part holds anything that has found nobody."""
    return any(not met.issuperset(slot.names) for slot in part.slots.values())


def _signature(part: Part) -> object:
    return part.token, _own_sort(part)


def _own_sort(part: Part) -> object:
    return tuple(sorted((role, slot.shape or ()) for role, slot in part.slots.items()))


def _whole_sort(part: Part) -> object:
    return part.sort or ("no weights", part.kind or part.type)


def _how(a: Part, b: Part) -> Matched:
    return "shape" if _own_sort(a) == _own_sort(b) else "likeness"


def _likeness(a: Part, b: Part) -> float:
    """How alike two parts are: from 0, for not at all, to less than 1."""
    if not (a.weighs and b.weighs):
        if a.weighs or b.weighs:
            return 0.0
        return _FUZZY if a.kind == b.kind is not None else _WEIGHTLESS
    if a.is_leaf and b.is_leaf:
        return _likeness_of_leaves(a, b)
    if abs(a.numel - b.numel) <= _ROUNDING * a.numel:
        return _FUZZY if a.numel == b.numel else _NEAR
    if a.is_leaf or b.is_leaf:
        return 0.0
    common = sum((Counter(a.sorts) & Counter(b.sorts)).values())
    share = common / max(len(a.sorts), len(b.sorts))
    by_name = _FUZZY * len(a.children.keys() & b.children.keys()) / len(a.children.keys() | b.children.keys())
    alike = max(_FUZZY * share, by_name)
    return alike if alike >= LEAST else 0.0


def _likeness_of_leaves(a: Part, b: Part) -> float:
    """Less than half, so that two that are alike never count as much as one that is equal."""
    if a.kind is not None and b.kind is not None and a.kind != b.kind:
        return 0.0
    one, other = a.slots.get("weight"), b.slots.get("weight")
    if one is None or other is None or one.shape is None or other.shape is None:
        return LEAST if a.slots.keys() & b.slots.keys() else 0.0
    if len(one.shape) != len(other.shape) or not 1 / _FAR <= (one.numel + 1) / (other.numel + 1) <= _FAR:
        return 0.0
    equal = sum(x == y for x, y in zip(one.shape, other.shape, strict=True)) / max(1, len(one.shape))
    return LEAST + 0.1 * equal + (0.05 if sense(a.token) == sense(b.token) else 0.0)
