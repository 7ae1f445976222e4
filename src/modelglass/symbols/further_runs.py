"""Further runs, with the sizes at which formulas that still fit differ, and then with fresh ones.

- Sizes that run may be multiples of a step; the smallest step that runs is looked for.
- One run is with all sizes far beyond the usual ones: what is cut or filled up to a limit shows there.
- Of rounded quotients, each run halves the shifts that fit. Sizes are changed together where that runs, so
  that a single run serves all of them.
- Where a size may have been multiplied between two roundings, one size with each rest runs.
- The last runs are with fresh sizes. A formula stands only if it is found without them as with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from modelglass.analyses.sizes.formulas import Point, movers, quotient_fits
from modelglass.analyses.sizes.quotients import Fit, differing
from modelglass.symbols.axis import Axis
from modelglass.symbols.search import Group

RUNS = 40
OPERATORS = 40_000  # in all further runs: of large models, fewer runs are made
FEWEST = 12
CHECKS = 3
FEW_RESTS = 8

Sizes = tuple[int, ...]
Vector = tuple[Point, ...]


class FurtherRuns:
    """Makes runs with `run`, which returns whether the model ran with these sizes."""

    def __init__(self, groups: Sequence[Group], operators: int, run: Callable[[Sizes], bool]) -> None:
        self.axes = tuple(map(Axis, groups))
        self._usual = tuple(group.size for group in groups)
        self._loops = [any(len(seen[0].ops) != operators for _, seen in group.runs) for group in groups]
        self._run_with = run
        self._left = min(RUNS, max(FEWEST, OPERATORS // max(operators, 1)))
        self._are_free = True  # sizes that run each alone do so together

    def explore(
        self, vectors: Callable[[], Iterable[Vector]], unsolved: Callable[[], Iterable[Vector]]
    ) -> None:
        """Runs that distinguish formulas of values: those of one size, then the `unsolved` ones of several.

        Of several, each size is changed alone.
        """
        for at, axis in enumerate(self.axes):
            self._find_step(at, axis)
        self._run_all({at: axis.small for at, axis in enumerate(self.axes)})
        self._run_all({at: axis.large for at, axis in enumerate(self.axes) if not self._loops[at]})
        while self._left > 0 and (wanted := self._choose_sizes(_of_one_size(vectors()))):
            sizes = {at: wanted.get(at) or axis.fresh() for at, axis in enumerate(self.axes)}
            self._run_all(sizes, alone=wanted)
        while self._left > 0 and (wanted := self._choose_sizes(unsolved())):
            for at, size in wanted.items():
                self._run({at: size})

    def check(self) -> None:
        """Runs with fresh sizes."""
        self._left = CHECKS * (len(self.axes) + 1)
        for _ in range(CHECKS):
            self._run_all({at: axis.fresh() for at, axis in enumerate(self.axes)})

    def is_settled(self, at: int, fits: Sequence[Fit]) -> bool:
        """Whether no size that may run would distinguish the formulas that fit."""
        return self._find_distinguishing(fits, self.axes[at]) is None

    def _find_step(self, at: int, axis: Axis) -> None:
        for step, size in axis.steps():
            if self._run({at: size}):
                axis.step = step
                break

    def _choose_sizes(self, vectors: Iterable[Vector]) -> dict[int, int]:
        """For each axis, the size that shows most of the quotient with the largest divisor."""
        fitting = [(at, quotient_fits(points, at)) for points in vectors for at in movers(points)]
        found: dict[int, int] = {}
        for at, fits in sorted((each for each in fitting if each[1]), key=lambda each: -each[1][0].below):
            size = None if at in found else self._find_distinguishing(fits, self.axes[at])
            if size is not None:
                found[at] = size
        return found

    def _find_distinguishing(self, fits: Sequence[Fit], axis: Axis) -> int | None:
        size = fits[0].distinguishing(axis.sizes)
        if size is None:
            size = differing(fits, axis.far(2 * fits[0].below))
        return axis.with_another_rest(_rests(fits[0])) if size is None else size

    def _run_all(self, sizes: Mapping[int, int | None], alone: Mapping[int, int] | None = None) -> None:
        """One run with all sizes; where it fails, each for itself."""
        changed = {at: size for at, size in sizes.items() if size is not None}
        together = self._are_free and len(changed) > 1
        if together and self._run(changed):
            return
        ran = [self._run({at: size}) for at, size in changed.items() if alone is None or at in alone]
        self._are_free = self._are_free and not (together and all(ran) and self._left > 0)

    def _run(self, changed: Mapping[int, int]) -> bool:
        if self._left <= 0:
            return False
        self._left -= 1
        ran = self._run_with(tuple(changed.get(at, size) for at, size in enumerate(self._usual)))
        if ran or len(changed) == 1:
            for at, size in changed.items():
                self.axes[at].note(size, ran=ran)
        return ran


def _rests(fit: Fit) -> int:
    """By what sizes are divided of which each rest must have run.

    Between two roundings a size may have been multiplied, and then the two are not one, though they look so
    at most sizes: ⌊3·⌊n/4⌋/4⌋ is less than ⌊3·n/16⌋ now and then.
    """
    return fit.below if fit.over > 1 else min(fit.below, FEW_RESTS) if fit.times > 1 else 1


def _of_one_size(vectors: Iterable[Vector]) -> Iterator[Vector]:
    return (points for points in vectors if len(movers(points)) == 1)
