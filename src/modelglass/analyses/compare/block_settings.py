"""Report a setting of a block only if nothing inside it reports the same."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from modelglass.analyses.compare.common_form import settings
from modelglass.analyses.compare.differences import of_setting

if TYPE_CHECKING:
    from modelglass.analyses.compare.common_form.parts import Match, Part
    from modelglass.analyses.compare.sides import Sides
    from modelglass.report.comparison import Deviation, Pair


class BlockSettings:
    """What was reported of parts, and of all that is in them."""

    def __init__(self, pairs: Sequence[Pair], alone: Sequence[Pair], sides: Sides) -> None:
        self._sides = sides
        self._divided = bool(sides.a.rank), bool(sides.b.rank)
        self._broken: set[tuple[str, str]] = set()
        self._reshaped: set[str] = set()
        self._settings: dict[str, set[tuple[str, str]]] = defaultdict(set)
        for pair in (*pairs, *alone):
            for each in pair.deviations:
                if each.standing == "different":
                    self._add(pair.a, pair.b, each)

    def more(self, match: Match) -> Iterator[Deviation]:
        """Numbers of heads, and arguments of two modules of one class, as far as nothing else reported them.

        Those inside of it must have been asked before.
        """
        a, b = match.a, match.b
        if match.how in ("joined", "stacked") or not (a.type and b.type) or _are_unlike(a, b):
            return
        found = [] if a.path in self._reshaped else list(settings.of_heads(a, b, divided=self._divided))
        whole = ("a", a.path) not in self._broken and ("b", b.path) not in self._broken
        whole = whole and self._sides.a.rank == self._sides.b.rank  # else each rank reports its share
        if whole and self._sides.a.types.get(a.path) == self._sides.b.types.get(b.path):
            found += settings.of_one_class(a, b)
        for deviation in map(of_setting, found):
            if (deviation.a, deviation.b) not in self._settings[a.path]:
                self._add(a.path, b.path, deviation)
                yield deviation

    def _add(self, a: str | None, b: str | None, deviation: Deviation) -> None:
        """Note a difference for a part and all that it is in, where other sizes explain other settings."""
        if deviation.code == "config":
            for path in _and_around(a):
                self._settings[path].add((deviation.a, deviation.b))
            return
        if deviation.code == "shape":
            self._reshaped.update(_and_around(a))
        self._broken.update(("a", path) for path in _and_around(a))
        self._broken.update(("b", path) for path in _and_around(b))


def _are_unlike(a: Part, b: Part) -> bool:
    return a.sure and b.sure and a.kind != b.kind


def _and_around(path: str | None) -> Iterator[str]:
    """A path and those of all that it is in."""
    if path is None:
        return
    while path:
        yield path
        path = path.rpartition(".")[0]
    yield ""
