"""Which parts of two models are each other's counterparts: by name, by place, by shape, by likeness."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache

from modelglass.analyses.compare.alignment.joined_weights import (
    drop_zero_biases,
    find_stacked,
    match_declared,
    match_joined,
    stack,
    stacks,
)
from modelglass.analyses.compare.alignment.remaining import Remainder
from modelglass.analyses.compare.alignment.sequences import align_sequences, leave_unpaired
from modelglass.analyses.compare.alignment.similarity import (
    NEAR,
    are_leaves_alike,
    have_one_shape,
    mean_the_same,
    own_sort,
    similarity,
    whole_sort,
)
from modelglass.analyses.compare.alignment.wrappers import open_nested, open_wrappers
from modelglass.analyses.compare.common_form.parts import Interner, Match, Part, matched_names

__all__ = ["align_parts", "matched_names"]


def align_parts(a: Part, b: Part, sorts: Interner, *, served: bool = False) -> list[Match]:
    """Every part with its counterpart, where there is one; `served`: one of them is an engine's."""
    found = _Alignment(sorts)
    found.align(Match(a, b, "name"))
    found.align_rest(a, b, served)
    for match in found.matches:
        match.a.met = match.b.met = True
        drop_zero_biases(match)
    return found.matches


class _Alignment:
    """What has found each other so far."""

    def __init__(self, sorts: Interner) -> None:
        self.matches: list[Match] = []
        self._sorts = sorts
        self._alike = cache(similarity)

    def align(self, match: Match) -> None:
        waiting = [match]
        while waiting:
            a, b, how, moved = waiting.pop()
            a, b = open_wrappers(a, b)
            a.met = b.met = True
            if stacks(a, b):
                a, how = stack(a, self._sorts), "stacked"
            elif stacks(b, a):
                b, how = stack(b, self._sorts), "stacked"
            self.matches.append(Match(a, b, how, moved))
            found = self._match_children(list(a.children.values()), list(b.children.values()))
            if how == "stacked":
                found = [match._replace(how="stacked") for match in found]
            waiting.extend(reversed(found))

    def align_rest(self, a: Part, b: Part, served: bool) -> None:
        """Weights that have found nobody below their parents, wherever they are."""
        rest = Remainder(a, b, self.matches, self._alike, self._of_one_sort)
        self.matches += rest.match(served=served)

    def _match_children(self, left: list[Part], right: list[Part]) -> list[Match]:
        """The children of two counterparts that are each other's counterparts."""
        found: list[Match] = []
        if not (left and right):
            return found

        def settle(matches: Iterable[Match]) -> None:
            for match in matches:
                left.remove(match.a)
                right.remove(match.b)
                found.append(match)

        def settle_joined(matches: Iterable[tuple[Match, Sequence[Part]]]) -> None:
            for match, members in matches:
                found.append(match)
                for member in members:
                    (left if member in left else right).remove(member)

        while True:
            settle_joined(list(match_declared(left, right, self._sorts)))
            settle(_match_by_name(left, right))
            settle(self._match_by_place(left, right))
            settle(self._of_one_sort([part for part in left if len(part.sorts) > 1], right, found))
            if not open_nested(left, right):
                break
        settle(self._of_one_sort(left, right, found))
        settle_joined(match_joined(left, right, self._sorts))
        found += self._match_stacks(left, right, turned=False) + self._match_stacks(right, left, turned=True)
        settle(self._match_similar(left, right))
        return found

    def _match_stacks(self, left: list[Part], right: list[Part], *, turned: bool) -> list[Match]:
        """The weights of lists of equal parts, with the tensors in which the other model stacks them."""
        found: list[Match] = []
        while (pair := find_stacked(left, right)) is not None:
            part, tensors = pair
            left.remove(part)
            part.met = True
            for tensor in tensors:
                right.remove(tensor)
            members = list(stack(part, self._sorts).children.values())
            matches = (
                self._match_children(tensors, members) if turned else self._match_children(members, tensors)
            )
            found += [each if each.how == "joined" else each._replace(how="stacked") for each in matches]
        return found

    def _match_by_place(self, left: Sequence[Part], right: Sequence[Part]) -> list[Match]:
        """Members of lists: by their order, so that one that is missing does not shift all others."""
        rows, columns = _list_members(left), _list_members(right)
        named = self._of_one_number(rows, columns)
        if named is not None:
            return named
        pairs = align_sequences(rows, columns, key=whole_sort, likeness=self._alike)
        found = [Match(rows[i], columns[j], "order") for i, j in pairs]
        rest, others = leave_unpaired(rows, columns, pairs)
        moved = self._of_one_sort(rest, others)
        found += [match._replace(how="order", moved=True) for match in moved]
        if len(rows) == len(columns):
            met = {id(part) for match in found for part in (match.a, match.b)}
            found += [
                Match(a, b, "order")
                for a, b in zip(rows, columns, strict=True)
                if not (a.is_leaf or b.is_leaf or id(a) in met or id(b) in met)
            ]
        return found

    def _of_one_number(self, left: Sequence[Part], right: Sequence[Part]) -> list[Match] | None:
        """Members of two lists by their numbers, where those of one number are nearly equal; else None."""
        numbered = {part.token: part for part in right}
        if len(numbered) < len(right) or len({part.token for part in left}) < len(left):
            return None  # members of several lists
        found = [Match(part, numbered[part.token], "order") for part in left if part.token in numbered]
        alike = (a.sort == b.sort != 0 or self._alike(a, b) >= NEAR for a, b, _, _ in found)
        return found if all(alike) else None

    def _of_one_sort(
        self, left: Sequence[Part], right: Sequence[Part], met: Sequence[Match] = ()
    ) -> list[Match]:
        """Parts with weights of the same shapes: those whose names say the same, then by their order.

        Where one model has more of them than the other, their places among all parts tell which are missing,
        also those of the counterparts that they have already met.
        """
        rows, columns = _by_sort(left), _by_sort(right)
        sorts = [sort for sort in rows if sort in columns]
        found = [Match(*pair, "shape") for n in sorts for pair in _assign(rows[n], columns[n], _SAYING)]
        if any(len(rows[sort]) != len(columns[sort]) for sort in sorts if rows[sort] and columns[sort]):
            found += self._match_in_order(left, right, [*met, *found])
            settled = {id(part) for match in found for part in (match.a, match.b)}
            for parts in (*rows.values(), *columns.values()):
                parts[:] = [part for part in parts if id(part) not in settled]
        for sort in sorts:
            found += [Match(a, b, "shape") for a, b in _assign(rows[sort], columns[sort], _SHAPED)]
        return found

    def _match_in_order(
        self, left: Sequence[Part], right: Sequence[Part], met: Sequence[Match]
    ) -> list[Match]:
        """Parts that are equal, or nearly, by their order among all that have already met."""
        places = {id(part): -n for n, match in enumerate(met, 1) for part in (match.a, match.b)}
        rows, columns = (
            sorted(
                [*known, *(part for part in parts if part.weighs and id(part) not in places)],
                key=lambda part: part.order,
            )
            for parts, known in ((left, [match.a for match in met]), (right, [match.b for match in met]))
        )

        def alike(one: Part, other: Part) -> float:
            return 0.0 if id(one) in places or id(other) in places else _nearness(one, other, self._alike)

        def key(part: Part) -> object:
            return places.get(id(part), (part.sort, own_sort(part)))

        pairs = align_sequences(rows, columns, key=key, likeness=alike)
        found = [(rows[i], columns[j]) for i, j in pairs if id(rows[i]) not in places]
        return [Match(a, b, "shape" if a.sort == b.sort else "likeness") for a, b in found]

    def _match_similar(self, left: Sequence[Part], right: Sequence[Part]) -> list[Match]:
        rows = [part for part in left if part.weighs]
        columns = [part for part in right if part.weighs]
        pairs = align_sequences(rows, columns, key=id, likeness=self._alike)
        return [Match(rows[i], columns[j], "likeness") for i, j in pairs]


_Agree = Callable[[Part, Part], bool]


def _mean_the_same(a: Part, b: Part) -> bool:
    return mean_the_same(a, b) and have_one_shape(a, b)


_SAYING: tuple[_Agree, ...] = (_mean_the_same,)
_SHAPED: tuple[_Agree, ...] = (have_one_shape, are_leaves_alike)


def _match_by_name(left: Sequence[Part], right: Sequence[Part]) -> list[Match]:
    """Namesakes; where wrappers were opened there may be several, of which equal ones belong together."""
    named: dict[str, list[Part]] = defaultdict(list)
    for part in right:
        if not part.token.isdecimal():
            named[part.token].append(part)
    found = []
    rest = [part for part in left if part.token in named]
    for equal in (True, False):
        for part in list(rest):
            others = [b for b in named[part.token] if b.sort == part.sort or not equal]
            if others:
                rest.remove(part)
                named[part.token].remove(others[0])
                found.append(Match(part, others[0], "name"))
    return found


def _list_members(parts: Sequence[Part]) -> list[Part]:
    return [part for part in parts if part.token.isdecimal()]


def _by_sort(parts: Iterable[Part]) -> dict[int, list[Part]]:
    found: dict[int, list[Part]] = defaultdict(list)
    for part in parts:
        if part.weighs:
            found[part.sort].append(part)
    return found


def _assign(left: list[Part], right: list[Part], rules: Iterable[_Agree]) -> Iterator[tuple[Part, Part]]:
    """Pairs of parts of one sort, each at most once; they are taken out of the lists."""
    for agree in rules:
        for a in list(left):
            b = next((b for b in right if agree(a, b)), None)
            if b is not None:
                left.remove(a)
                right.remove(b)
                yield a, b


def _nearness(a: Part, b: Part, alike: Callable[[Part, Part], float]) -> float:
    """How alike two parts are that may be the same but for a bias; 0 for all others."""
    if a.is_leaf and b.is_leaf and a.sort != b.sort:
        one, other = a.slots.get("weight"), b.slots.get("weight")
        near = one is not None and other is not None and one.shape == other.shape and a.kind == b.kind
        return NEAR if near else 0.0
    nearness = NEAR if a.sort == b.sort else alike(a, b)
    return nearness if nearness >= NEAR else 0.0
