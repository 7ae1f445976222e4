"""The order in which one model joined what the other keeps apart, as the values tell."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from modelglass.analyses.diff.numbers import floats, is_known
from modelglass.errors import FileError
from modelglass.report import Values

if TYPE_CHECKING:
    from modelglass.analyses.diff.pairing import Paired, Piece
    from modelglass.analyses.diff.stream import Sources

_MOST_MEMBERS = 4  # of one joined tensor, whose orders are all tried
_SAMPLE = 2048  # elements of each

_Side = Literal["a", "b"]


def in_joined_order(pairs: Sequence[Paired], a: Sources, b: Sources) -> list[Paired]:
    """The pairs, where parts of a joined tensor are at the places whose values are likest."""
    found = list(pairs)
    groups: dict[tuple[_Side, str], list[int]] = defaultdict(list)
    for place, pair in enumerate(pairs):
        for joined in _joined_sides(pair):
            groups[joined].append(place)
    for (side, _), places in groups.items():
        if 1 < len(places) <= _MOST_MEMBERS:
            members = [found[place] for place in places]
            for place, each in zip(places, _likest(members, side, a, b), strict=True):
                found[place] = each
    return found


def _joined_sides(pair: Paired) -> list[tuple[_Side, str]]:
    sides: tuple[tuple[_Side, Piece | None], ...] = (("a", pair.a), ("b", pair.b))
    return [
        (side, piece.name)
        for side, piece in sides
        if piece is not None and pair.trouble is None and piece.is_part
    ]


def _likest(members: Sequence[Paired], side: _Side, a: Sources, b: Sources) -> list[Paired]:
    """The members with the parts in the order that fits best; the first order wins where none does better."""
    orders = [_placed(members, side, order) for order in permutations(range(len(members)))]
    try:
        scores = [sum(_likeness(pair, a, b) for pair in order) for order in orders]
    except FileError:
        return list(members)  # reading its values will say so
    return orders[int(np.argmax(np.round(scores, 2)))]


def _placed(members: Sequence[Paired], side: _Side, order: Sequence[int]) -> list[Paired]:
    """The members as if their parts were joined in that order."""
    parts: list[Any] = [getattr(member, side) for member in members]
    start = min(part.start for part in parts)
    found = list(members)
    for index in order:
        changed: dict[str, Any] = {side: parts[index]._replace(start=start)}
        found[index] = replace(members[index], **changed)
        start += parts[index].numel
    return found


def _likeness(pair: Paired, a: Sources, b: Sources) -> float:
    samples = []
    for piece, sources in ((pair.a, a), (pair.b, b)):
        source = None if piece is None else sources.get(piece.name)
        if piece is None or not isinstance(source, Values) or not is_known(source.dtype):
            return 0.0
        if piece.start + piece.numel > source.numel:
            return 0.0
        with source.holding():
            numbers = floats(source, piece.start, piece.start + min(piece.numel, _SAMPLE))
        samples.append(numbers.astype(np.float64))
    one, other = samples
    scale = float(np.linalg.norm(one) * np.linalg.norm(other))
    likeness = float(np.dot(one, other)) / scale if scale else 0.0
    return likeness if np.isfinite(likeness) else 0.0
