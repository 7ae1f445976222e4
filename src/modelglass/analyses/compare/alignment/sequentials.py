"""Layers without weights in a Sequential, which runs its members and nothing else: there, each one counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from modelglass.analyses.compare.alignment.sequences import align_sequences
from modelglass.analyses.compare.common_form.conventions import IDLE, SEQUENTIAL
from modelglass.analyses.compare.common_form.parts import Match, Part
from modelglass.report.comparison import Deviation, Pair

if TYPE_CHECKING:
    from modelglass.analyses.compare.sides import Side, Sides

_UNLIKE = 0.01  # layers of other kinds at the same place are still each other's counterparts


class SequentialMatches(NamedTuple):
    """Counterparts, those in Sequentials settled anew, and what only one of two Sequentials runs."""

    matches: list[Match]
    lone_a: list[Part]
    lone_b: list[Part]


def align_sequentials(
    root_a: Part, root_b: Part, matches: Sequence[Match], sides: Sides
) -> SequentialMatches:
    """Line up the layers without weights of every two Sequentials that are each other's counterparts."""
    rows = _Sequentials(root_a, sides.a, {id(match.a) for match in matches})
    columns = _Sequentials(root_b, sides.b, {id(match.b) for match in matches})
    found, lone_a, lone_b = _Found(matches), list[Part](), list[Part]()
    for match in matches:
        if not (rows.is_one(match.a) and columns.is_one(match.b)) or (_is_bare(match.a) and match.a.token):
            continue
        left, right = list(rows.steps(match.a)), list(columns.steps(match.b))
        made, one, other, seen = _align_members(left, right, found.partners)
        found.forget(seen)
        found.add(made)
        lone_a += one
        lone_b += other
    return SequentialMatches(found.matches(), lone_a, lone_b)


def lone_pair(part: Part, *, of_a: bool) -> Pair:
    """A layer without weights that only one of two Sequentials runs."""
    return Pair(
        a=part.path if of_a else None,
        b=None if of_a else part.path,
        type_a=part.type if of_a else "",
        type_b="" if of_a else part.type,
        deviations=(
            Deviation(
                code="missing-in-b" if of_a else "extra-in-b",
                standing="different",
                text="a layer without weights",
                a=part.type if of_a else "",
                b="" if of_a else part.type,
            ),
        ),
    )


class _Found:
    """Counterparts in the order in which they were found; those of a few parts can be forgotten again.

    `partners` are those that did not move, of each part of the first model.
    """

    def __init__(self, matches: Sequence[Match]) -> None:
        self.partners: dict[int, int] = {}
        self._matches: dict[int, Match] = {}
        self._of: dict[int, list[int]] = {}
        self._count = 0
        self.add(matches)

    def matches(self) -> list[Match]:
        return list(self._matches.values())

    def add(self, matches: Sequence[Match]) -> None:
        for match in matches:
            self._matches[self._count] = match
            for part in (match.a, match.b):
                self._of.setdefault(id(part), []).append(self._count)
            if not match.moved:
                self.partners[id(match.a)] = id(match.b)
            self._count += 1

    def forget(self, parts: set[int]) -> None:
        """Drop every match of one of these parts."""
        numbers = {number for part in parts for number in self._of.pop(part, ())}
        for number in numbers:
            match = self._matches.pop(number, None)
            if match is not None:
                self.partners.pop(id(match.a), None)


class _Sequentials:
    """The Sequentials of one model, and what they run."""

    def __init__(self, root: Part, side: Side, matched: set[int]) -> None:
        self._types = side.types
        self._matched = matched
        self._again: dict[str, dict[str, str]] = {}
        self._parts: Mapping[str, Part] = {part.path: part for part in root.below() if part.type}
        for alias, path in side.aliases.items():
            home, _, name = alias.rpartition(".")
            self._again.setdefault(home, {})[name] = path

    def is_one(self, part: Part) -> bool:
        """Whether a part is a Sequential, and everything that it runs is known in its order."""
        if not part.type or self._types.get(part.path) not in SEQUENTIAL:
            return False
        return all(name.isdecimal() for name in self._shared_members(part))

    def steps(self, part: Part) -> Iterator[Part]:
        """What a Sequential runs, in order; what is in others that have found no counterpart, with it."""
        members = dict(self._parts.get(part.path, part).children)
        for name, path in self._shared_members(part).items():
            if path in self._parts:
                known = self._parts[path]
                path = f"{part.path}.{name}".lstrip(".")
                members[name] = replace(known, path=path) if _is_bare(known) else known
        if all(name.isdecimal() for name in members):
            members = {name: members[name] for name in sorted(members, key=int)}
        for member in members.values():
            if self.is_one(member) and (id(member) not in self._matched or _is_bare(member)):
                yield from self.steps(member)
            else:
                yield member

    def _shared_members(self, part: Part) -> Mapping[str, str]:
        """Members that are met elsewhere as well, by name."""
        return self._again.get(part.path, {})


def _align_members(
    left: Sequence[Part], right: Sequence[Part], partners: Mapping[int, int]
) -> tuple[list[Match], list[Part], list[Part], set[int]]:
    """Counterparts among the layers of two Sequentials, those without any, and all that were looked at."""
    made: list[Match] = []
    one: list[Part] = []
    other: list[Part] = []
    for rows, columns in _gaps(left, right, partners):
        found, lone_a, lone_b = _of_gap(rows, columns)
        made += found
        one += lone_a
        other += lone_b
    for part in list(one):
        twin = next((each for each in other if each.kind == part.kind), None)
        if twin is not None:
            made.append(Match(part, twin, "order", moved=True))
            one.remove(part)
            other.remove(twin)
    seen = {id(part) for part in (*left, *right) if _is_bare(part)}
    return made, one, other, seen


def _gaps(
    left: Sequence[Part], right: Sequence[Part], partners: Mapping[int, int]
) -> Iterator[tuple[list[Part], list[Part]]]:
    """What stands between the same two layers with weights, on each side."""
    places = {id(part): place for place, part in enumerate(right)}
    held = [(i, places[j]) for i, part in enumerate(left) if (j := _partner(part, partners)) in places]
    ahead = sorted(held, key=lambda pair: pair[1])
    kept = align_sequences(held, ahead, key=lambda pair: pair, likeness=lambda x, y: 0.0)
    begin, start = 0, 0
    for i, j in [*(held[at] for at, _ in kept), (len(left), len(right))]:
        yield [*left[begin:i]], [*right[start:j]]
        begin, start = i + 1, j + 1


def _partner(part: Part, partners: Mapping[int, int]) -> int | None:
    return None if _is_bare(part) else partners.get(id(part))


def _of_gap(left: Sequence[Part], right: Sequence[Part]) -> tuple[list[Match], list[Part], list[Part]]:
    """Counterparts in a gap, and what has none; nothing is missing where a stranger may do the same."""
    found: list[Match] = []
    strange = any(_is_strange(part) for part in (*left, *right))
    for idle in (True, False):
        rows = [part for part in left if _is_layer(part) and (part.kind in IDLE) == idle]
        columns = [part for part in right if _is_layer(part) and (part.kind in IDLE) == idle]
        likeness = 0.0 if strange and not idle else _UNLIKE
        pairs = align_sequences(rows, columns, key=lambda part: part.kind, likeness=lambda x, y: likeness)  # noqa: B023
        found += [Match(rows[i], columns[j], "order") for i, j in pairs]
    if strange:
        return found, [], []
    met = {id(part) for match in found for part in (match.a, match.b)}
    lone_a, lone_b = (
        [part for part in parts if _is_layer(part) and part.kind not in IDLE and id(part) not in met]
        for parts in (left, right)
    )
    return found, lone_a, lone_b


def _is_layer(part: Part) -> bool:
    return _is_bare(part) and part.sure


def _is_strange(part: Part) -> bool:
    """Whether nobody knows what a step does: code of anybody's, or a block that has no counterpart."""
    if _is_bare(part):
        return not part.sure
    return not part.is_leaf or part.kind is None


def _is_bare(part: Part) -> bool:
    """Whether there are no weights in or below it."""
    return not any(each.slots for each in part.below())
