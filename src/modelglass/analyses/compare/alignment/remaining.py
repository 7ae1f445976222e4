"""Weights that have found nobody below their parents, and find somebody elsewhere."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property

from modelglass.analyses.compare.alignment.sequences import align_sequences, leave_unpaired
from modelglass.analyses.compare.alignment.similarity import match_kind, own_sort
from modelglass.analyses.compare.common_form.parts import Match, Part, matched_names

_ELSEWHERE = 0.9  # how alike weights of one shape are that are not below the same counterparts

Likeness = Callable[[Part, Part], float]
Assigned = Callable[[Sequence[Part], Sequence[Part]], Iterable[Match]]


class Remainder:
    """What is left over, and finds its counterparts by and by.

    A matrix may be anywhere. Many vectors are as long, so theirs must be in the same block; their order among
    the weights that have found each other tells which is whose.
    """

    def __init__(
        self, a: Part, b: Part, matches: Sequence[Match], likeness: Likeness, of_one_sort: Assigned
    ) -> None:
        self._roots = a, b
        self._before = len(matches)
        self._matches = list(matches)
        self._apart = [
            [part for part in root.below() if part.slots and _is_apart(part, met)]
            for root, met in zip(self._roots, matched_names(matches), strict=True)
        ]
        self._likeness = likeness
        self._of_one_sort = of_one_sort

    def match(self, *, served: bool) -> list[Match]:
        """The counterparts of what has found nobody so far."""
        if not all(self._apart):
            return []
        self._match_matrices()
        self._match_vectors()
        self._match_namesakes()
        self._match_shared()
        if served:
            self._match_buffers()
        return self._matches[self._before :]

    @cached_property
    def _homes(self) -> _Homes:
        return _Homes(*self._roots, self._matches[: self._before])

    def _match_matrices(self) -> None:
        left, right = (_matrices(parts) for parts in self._unmatched())
        pairs = align_sequences(left, right, key=own_sort, likeness=self._alike_at_home)
        self._add(Match(left[i], right[j], match_kind(left[i], right[j])) for i, j in pairs)
        rest, others = leave_unpaired(left, right, pairs)
        rows, columns = self._homes.group(rest), self._homes.group(others)
        found = [match for home in rows for match in self._equal_ones(rows[home], columns.get(home, ()))]
        self._add(found)
        met = {id(part) for match in found for part in (match.a, match.b)}
        rest, others = ([part for part in parts if id(part) not in met] for parts in (rest, others))
        self._add(self._equal_ones(rest, others))

    def _match_vectors(self) -> None:
        rows, columns = (self._homes.group_by_block(parts) for parts in self._free_vectors())
        known: dict[int, list[Match]] = defaultdict(list)
        for match in self._matches:
            block = self._homes.block(match.a)
            if match.a.slots and match.b.slots and block == self._homes.block(match.b):
                known[block].append(match)
        for block in [block for block in rows if block in columns]:
            left, right = rows[block], columns[block]
            pairs = self._match_in_order(left, right, known[block])
            self._add(Match(a, b, match_kind(a, b)) for a, b in pairs)
            met = {id(part) for pair in pairs for part in pair}
            rest, others = ([part for part in parts if id(part) not in met] for parts in (left, right))
            self._add(self._equal_ones(rest, others))

    def _free_vectors(self) -> Iterator[list[Part]]:
        """Vectors that have found nobody, on each side; those of a block that is missing stay with it."""
        for root, met, parts in zip(
            self._roots, matched_names(self._matches), self._unmatched(), strict=True
        ):
            bound = _find_free(root, met) if parts else ()
            yield [part for part in parts if id(part) not in bound]

    def _match_in_order(
        self, left: Sequence[Part], right: Sequence[Part], known: Sequence[Match]
    ) -> list[tuple[Part, Part]]:
        """Vectors of a block by their order among all its weights, most of which have met."""
        places = {id(part): n for n, match in enumerate(known, 1) for part in (match.a, match.b)}
        rows = sorted([*left, *(match.a for match in known)], key=_order)
        columns = sorted([*right, *(match.b for match in known)], key=_order)

        def key(part: Part) -> object:
            return places.get(id(part)) or (own_sort(part), self._homes.of(part))

        def alike(one: Part, other: Part) -> float:
            if id(one) in places or id(other) in places:
                return 0.0
            return _ELSEWHERE if own_sort(one) == own_sort(other) else self._alike_at_home(one, other)

        pairs = align_sequences(rows, columns, key=key, likeness=alike)
        return [(rows[i], columns[j]) for i, j in pairs if id(rows[i]) not in places]

    def _match_shared(self) -> None:
        """Weights that share their memory with others in one model, and have their own in the other."""
        for lone_side in (0, 1):
            lone = defaultdict(list)
            for part in self._unmatched()[lone_side]:
                lone[own_sort(part)].append(part)
            met = matched_names(self._matches)[1 - lone_side]
            for part in self._apart[1 - lone_side]:
                slots = part.slots.values()
                tied = bool(slots) and all(slot.tied is not None and not slot.constant for slot in slots)
                if tied and _is_apart(part, met) and lone.get(own_sort(part)):
                    other = lone[own_sort(part)].pop(0)
                    self._add([Match(part, other, "shape") if lone_side else Match(other, part, "shape")])

    def _match_buffers(self) -> None:
        """Buffers that an engine keeps among its parameters: the only ones of their shape in a block."""
        met_a, met_b = matched_names(self._matches)
        rows = self._homes.group_by_block(part for part in self._apart[0] if _is_apart(part, met_a))
        columns = self._homes.group_by_block(part for part in self._apart[1] if _is_apart(part, met_b))
        for block in [block for block in rows if block in columns]:
            left, right = (_by_shape(parts[block]) for parts in (rows, columns))
            for shape in [shape for shape in left if len(left[shape]) == len(right.get(shape, ())) == 1]:
                a, b = left[shape][0], right[shape][0]
                if _is_constant(a) != _is_constant(b):
                    self._add([Match(a, b, "shape")])

    def _match_namesakes(self) -> None:
        met_a, met_b = matched_names(self._matches)
        named = {_signature(part): part for part in self._apart[1] if _is_apart(part, met_b)}
        for part in self._apart[0]:
            if _is_apart(part, met_a) and _signature(part) in named:
                self._add([Match(part, named.pop(_signature(part)), "name")])

    def _unmatched(self) -> tuple[list[Part], list[Part]]:
        met_a, met_b = matched_names(self._matches)
        left, right = self._apart
        return [p for p in left if _is_lone(p, met_a)], [p for p in right if _is_lone(p, met_b)]

    def _equal_ones(self, left: Sequence[Part], right: Sequence[Part]) -> list[Match]:
        return [match for match in self._of_one_sort(left, right) if own_sort(match.a) == own_sort(match.b)]

    def _alike_at_home(self, one: Part, other: Part) -> float:
        return self._likeness(one, other) if self._homes.of(one) == self._homes.of(other) else 0.0

    def _add(self, matches: Iterable[Match]) -> None:
        self._matches += matches


class _Homes:
    """Below which counterparts parts are, and in which block: below which members of lists."""

    def __init__(self, a: Part, b: Part, matches: Sequence[Match]) -> None:
        number = {id(part): place for place, match in enumerate(matches) for part in (match.a, match.b)}
        blocks = {n for n, m in enumerate(matches) if m.a.token.isdecimal() and m.b.token.isdecimal()}
        self._home: dict[int, tuple[int, int]] = {}
        for root in (a, b):
            for part in root.below():
                home, block = self._home.setdefault(id(part), (0, 0))
                home = number.get(id(part), home)
                below = home, home if home in blocks else block
                self._home.update((id(child), below) for child in part.children.values())

    def of(self, part: Part) -> int:
        return self._home.get(id(part), (-1, -1))[0]

    def block(self, part: Part) -> int:
        return self._home.get(id(part), (-1, -1))[1]

    def group(self, parts: Iterable[Part]) -> dict[int, list[Part]]:
        return _group(parts, self.of)

    def group_by_block(self, parts: Iterable[Part]) -> dict[int, list[Part]]:
        return _group(parts, self.block)


def _group(parts: Iterable[Part], key: Callable[[Part], int]) -> dict[int, list[Part]]:
    found: dict[int, list[Part]] = defaultdict(list)
    for part in parts:
        found[key(part)].append(part)
    return found


def _order(part: Part) -> int:
    return part.order


def _matrices(parts: Iterable[Part]) -> list[Part]:
    return [part for part in parts if not _are_vectors(part)]


def _are_vectors(part: Part) -> bool:
    return all(len(slot.shape or ()) < 2 for slot in part.slots.values())


def _find_free(root: Part, met: set[str]) -> set[int]:
    """Parts below the largest ones that have found nobody, and that hold more than vectors."""
    parts = list(root.below())
    some: dict[int, bool] = {}  # whether anything in or below a part has found somebody
    matrix: dict[int, bool] = {}  # whether anything in or below it holds a matrix
    for part in reversed(parts):
        children = part.children.values()
        names = [name for slot in part.slots.values() for name in slot.names]
        some[id(part)] = not met.isdisjoint(names) or any(some[id(child)] for child in children)
        matrix[id(part)] = not _are_vectors(part) or any(matrix[id(child)] for child in children)
    found: set[int] = set()
    for part in parts:
        if id(part) in found or (matrix[id(part)] and not some[id(part)]):
            found.update((id(part), *map(id, part.children.values())))
    return found


def _is_lone(part: Part, met: set[str]) -> bool:
    """Whether a part holds weights that have found nobody."""
    slots = part.slots.values()
    return any(s.tied is None and not s.constant and not met.issuperset(s.names) for s in slots)


def _is_apart(part: Part, met: set[str]) -> bool:
    """Whether a part holds anything that has found nobody."""
    return any(not met.issuperset(slot.names) for slot in part.slots.values())


def _by_shape(parts: Iterable[Part]) -> dict[object, list[Part]]:
    """Parts with a weight of several elements, or a buffer, that is not shared, by its shape."""
    found: dict[object, list[Part]] = defaultdict(list)
    for part in parts:
        slots = list(part.slots.values())
        if len(slots) == 1 and slots[0].numel > 1 and slots[0].tied is None:
            found[slots[0].shape].append(part)
    return found


def _is_constant(part: Part) -> bool:
    return all(slot.constant for slot in part.slots.values())


def _signature(part: Part) -> object:
    return part.token, own_sort(part)
