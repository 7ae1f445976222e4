"""The sizes in the model that follow those of the inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import combinations

from modelglass.analyses.sizes.formulas import Known, Point, formula, movers
from modelglass.report import Dims, Note, Shape, Value
from modelglass.symbols.further_runs import FurtherRuns, Sizes, Vector
from modelglass.symbols.search import Group
from modelglass.symbols.trials import TrialRun, Vary, run_resized

RUNS_OF_PAIRS = 3  # with two sizes changed, beyond the two with all of them changed
ROUNDS_OF_CHECKS = 2


class FollowingShapes:
    """The shapes in the model, as they follow the sizes that can change."""

    def __init__(
        self, first: TrialRun, names: tuple[str, ...], groups: tuple[Group, ...], vary: Vary
    ) -> None:
        self._names = names
        self._groups = groups
        self._vary = vary
        self._first = _Tensors(first)
        self._usual = tuple(group.size for group in groups)
        self._runs: list[tuple[Sizes, dict[int, Shape]]] = []
        self._found: dict[Vector, str | None] = {}
        self._known: dict[tuple[Sizes, ...], Known] = {}  # by the runs that the formulas are of
        self._further = FurtherRuns(groups, len(first[0].ops), self._run)
        self._make_runs()

    def shapes(self) -> dict[int, Dims]:
        """By number, the shapes that a symbol is in."""
        vectors = self._vectors()
        texts: dict[Vector, str] = {}
        found: dict[int, Dims] = {}
        for number, dims in vectors.items():
            sources = [vectors[each] for each in self._first.sources.get(number, ()) if each in vectors]
            for dim, points in enumerate(dims):
                if points not in texts:
                    parts = [each[dim] for each in sources if len(each) == len(dims)]
                    texts[points] = (
                        self._check_formula(points) or self._sum(points, parts) or self._number(points)
                    )
            if any(map(_varies, dims)):
                found[number] = tuple(texts[points] for points in dims)
        return found

    def _make_runs(self) -> None:
        """The runs of the search, all sizes and pairs at once, further runs, and checks of them all.

        Where a check finds another formula than was found without it, it has taught something, and one
        further check is made.
        """
        for at, group in enumerate(self._groups):
            for size, seen in group.runs:
                self._take((*self._usual[:at], size, *self._usual[at + 1 :]), seen)
        for sizes in self._together():
            self._run(sizes)
        self._unchecked = len(self._runs)
        if not self._groups:
            return
        self._further.explore(self._find_distinct, self._find_unsolved)
        for _ in range(ROUNDS_OF_CHECKS):
            self._unchecked = len(self._runs)
            self._further.check()
            vectors = list(self._find_distinct())
            if all(self._formula(points) == self._formula(self._early(points)) for points in vectors):
                break

    def _run(self, sizes: Sizes) -> bool:
        changed: dict[tuple[int, int], int] = {}
        for group, size, usual in zip(self._groups, sizes, self._usual, strict=True):
            if size != usual:
                changed.update(group.at(size))
        seen = run_resized(self._vary, changed)
        if seen is not None:
            self._take(sizes, seen)
        return seen is not None

    def _take(self, sizes: Sizes, seen: TrialRun) -> None:
        self._runs.append((sizes, self._first.match(_Tensors(seen))))

    def _vectors(self) -> dict[int, tuple[Vector, ...]]:
        """By number, of each dimension its size in every run that had the tensor."""
        made: dict[tuple[Shape | None, ...], tuple[Vector, ...]] = {}
        found: dict[int, tuple[Vector, ...]] = {}
        for number, shape in self._first.shapes.items():
            history = (shape, *(shapes.get(number) for _, shapes in self._runs))
            if history not in made:
                there = zip((self._usual, *(sizes for sizes, _ in self._runs)), history, strict=True)
                alike = [
                    (sizes, each) for sizes, each in there if each is not None and len(each) == len(shape)
                ]
                made[history] = tuple(
                    tuple(Point(sizes, Fraction(each[dim])) for sizes, each in alike)
                    for dim in range(len(shape))
                )
            found[number] = made[history]
        return found

    def _find_distinct(self) -> Iterator[Vector]:
        """Each of the values that vary once, in the order of the tensors."""
        vectors = dict.fromkeys(points for each in self._vectors().values() for points in each)
        return filter(_varies, vectors)

    def _find_unsolved(self) -> list[Vector]:
        self._found, self._known = {}, {}
        return [points for points in self._find_distinct() if self._formula(points) is None]

    def _early(self, points: Vector) -> Vector:
        """The points without those of the checks."""
        checks = {sizes for sizes, _ in self._runs[self._unchecked :]}
        return tuple(point for point in points if point.sizes not in checks)

    def _formula(self, points: Vector) -> str | None:
        if points not in self._found:
            known = self._known.setdefault(
                tuple(point.sizes for point in points), Known(self._further.is_settled)
            )
            self._found[points] = formula(self._names, points, known)
        return self._found[points]

    def _check_formula(self, points: Vector) -> str | None:
        """The formula of a size, where the checks changed nothing of it."""
        found = self._formula(points)
        return found if found == self._formula(self._early(points)) else None

    def _sum(self, points: Vector, parts: Sequence[Vector]) -> str | None:
        """A size that tensors were put together to, as the sum of theirs."""
        texts = list(map(self._check_formula, parts))
        if len(parts) < 2 or any(len(part) != len(points) for part in parts):
            return None
        sums = (sum(point.value for point in at) for at in zip(*parts, strict=True))
        is_sum = all(point.value == value for point, value in zip(points, sums, strict=True))
        return "+".join(text for text in texts if text).replace("+-", "-") if is_sum and all(texts) else None

    def _number(self, points: Vector) -> str:
        """A size as a number with what it follows."""
        following = [self._names[at] for at in movers(points)] or self._names
        return f"{points[0].value}{{{','.join(following)}}}"

    def notes(self) -> Iterator[Note]:
        for at, name in enumerate(self._names):
            alone = [shapes for sizes, shapes in self._runs if self._changes_alone(at, sizes)]
            lost = len(self._first.shapes) - min(map(len, alone))
            if lost:
                text = f"other operators run when {name} changes: of {lost:,} tensors it is not known how"
                yield Note(code="operators-follow-sizes", text=f"{text} they follow it")

    def _changes_alone(self, at: int, sizes: tuple[int, ...]) -> bool:
        return [index for index, size in enumerate(sizes) if size != self._usual[index]] == [at]

    def _together(self) -> Iterator[tuple[int, ...]]:
        """All sizes changed at once, twice, and each pair of sizes other than batches."""
        if len(self._groups) < 2:
            return
        for turn in (0, 1):
            yield tuple(group.runs[(at + turn) % 2][0] for at, group in enumerate(self._groups))
        others = [at for at, group in enumerate(self._groups) if not group.is_first]
        pairs = list(combinations(others, 2)) if len(self._groups) > 2 else []
        for pair in pairs[:RUNS_OF_PAIRS]:
            yield tuple(
                group.runs[0][0] if at in pair else group.size for at, group in enumerate(self._groups)
            )


def _varies(points: Vector) -> bool:
    return any(point.value != points[0].value for point in points)


class _Tensors:
    """The tensors of a run: their shapes by number, and the operators that made them, in order."""

    def __init__(self, seen: TrialRun) -> None:
        model, run, flow = seen
        forward = [at for at, op in enumerate(model.ops) if op.phase == "forward"]
        self._ran = [(model.ops[at].name, model.ops[at].module) for at in forward]
        self._made = [flow.writes[at] for at in forward]
        self._wiring = flow.inputs, [flow.reads[at] for at in forward], self._made
        self.sources = {
            made: flow.reads[at] for at in forward for made in flow.writes[at] if made is not None
        }
        self._given = [number for number in flow.inputs if number is not None]
        self.shapes: dict[int, Shape] = {}
        self._take(flow.inputs, run.inputs)
        for at in forward:
            self._take(flow.writes[at], model.ops[at].outputs)

    def match(self, other: _Tensors) -> dict[int, Shape]:
        """The shapes in another run of the tensors that both have: same inputs, same operators in order.

        Where other operators ran in between, those before and after are the same.
        """
        if self._wiring == other._wiring:
            return {number: other.shapes[number] for number in self.shapes if number in other.shapes}
        mine, theirs = self._ran, other._ran
        shorter = min(len(mine), len(theirs))
        before = next((at for at in range(shorter) if mine[at] != theirs[at]), shorter)
        left = range(shorter - before)
        after = next((at for at in left if mine[-1 - at] != theirs[-1 - at]), shorter - before)
        same = dict(zip(self._given, other._given, strict=True))
        for at in (*range(before), *range(-after, 0)):
            pairs = zip(self._made[at], other._made[at], strict=False)
            same.update((one, two) for one, two in pairs if one is not None and two is not None)
        return {one: other.shapes[two] for one, two in same.items() if two in other.shapes}

    def _take(self, numbers: Sequence[int | None], values: Sequence[Value]) -> None:
        for number, value in zip(numbers, values, strict=False):  # after outputs, what else was written to
            if number is not None and value.shape is not None:
                self.shapes[number] = value.shape
