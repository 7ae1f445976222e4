"""Tensors of b that hold what another tensor of a held: exchanged with it, or a copy of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from modelglass.analyses.diff.numbers import floats, rounded
from modelglass.errors import FileError

if TYPE_CHECKING:
    from modelglass.analyses.diff.stream import Streamed
    from modelglass.report import Values

_SAMPLE = 512  # elements at either end, of which a tensor is known
_STEP = 1 << 18


class Moved(NamedTuple):
    """What a tensor of b holds: the place of the pair whose a it was."""

    kind: str
    source: int


def find_moved(found: Sequence[Streamed], changed: Sequence[int]) -> dict[int, Moved]:
    """The changed pairs whose b is the a of another pair, after rounding to b's type."""
    types = {found[place].b.dtype for place in changed}  # type: ignore[union-attr]
    held = {dtype: _by_sample(found, dtype) for dtype in types}
    sources: dict[int, int] = {}
    for place in changed:
        b = found[place].b
        assert b is not None
        sample = _sample(b, b.dtype)
        for other in held[b.dtype].get((b.shape, sample), ()) if sample else ():
            if other != place and _are_equal(found[other].a, b):
                sources[place] = other
                break
    kept = set(sources.values())
    return {
        place: Moved("exchanged" if place in kept else "repeated", source)
        for place, source in sources.items()
    }


def _by_sample(found: Sequence[Streamed], dtype: str) -> dict[object, list[int]]:
    """The places of tensors of a by their shape and a sample of them."""
    places: dict[object, list[int]] = defaultdict(list)
    for place, each in enumerate(found):
        if each.a is not None and each.b is not None and each.b.dtype == dtype:
            sample = _sample(each.a, dtype)
            if sample:
                places[each.a.shape, sample].append(place)
    return places


def _sample(values: Values, dtype: str) -> bytes:
    """Some elements as the type has them; nothing where they are all the same."""
    size = min(_SAMPLE, values.numel)
    try:
        with values.holding():
            ends = floats(values, 0, size), floats(values, values.numel - size, values.numel)
    except FileError:
        return b""
    numbers = rounded(np.concatenate(ends), dtype)
    return numbers.tobytes() if size > 1 and (numbers != numbers[0]).any() else b""


def _are_equal(a: Values | None, b: Values) -> bool:
    if a is None:
        return False
    with a.holding(), b.holding():
        for start in range(0, b.numel, _STEP):
            stop = min(start + _STEP, b.numel)
            one, other = floats(a, start, stop), floats(b, start, stop)
            if not np.array_equal(rounded(one, b.dtype), other):
                return False
    return True
