"""The sizes in the model that follow those of the inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import combinations

from modelglass.analyses.size_formulas import Point, formula, movers, product
from modelglass.report import Dims, Note, Shape, Value
from modelglass.symbols.search import Group
from modelglass.symbols.trials import Seen, Vary, varied

RUNS_OF_PAIRS = 3  # with two sizes changed, beyond the two with all of them changed


class Following:
    """The shapes in the model, as they follow the sizes that can change."""

    def __init__(self, first: Seen, names: tuple[str, ...], groups: tuple[Group, ...], vary: Vary) -> None:
        self._names = names
        self._groups = groups
        self._first = _Tensors(first)
        self._usual = tuple(group.size for group in groups)
        self._runs = [(sizes, self._first.seen_again(_Tensors(seen))) for sizes, seen in self._all(vary)]
        self._texts: dict[tuple[Point, ...], str] = {}
        self._known: dict[tuple[Point, ...], str] = {}  # of sizes that follow a single one

    def shapes(self) -> dict[int, Dims]:
        """By number, the shapes that a symbol is in."""
        found: dict[int, Dims] = {}
        for number, shape in self._first.shapes.items():
            there = [(sizes, shapes[number]) for sizes, shapes in self._runs if number in shapes]
            alike = [(sizes, again) for sizes, again in there if len(again) == len(shape)]
            if all(again == shape for _, again in alike):
                continue
            points = [(self._usual, shape), *alike]
            found[number] = tuple(
                self._text(tuple(Point(sizes, Fraction(each[dim])) for sizes, each in points))
                for dim in range(len(shape))
            )
        return found

    def notes(self) -> Iterator[Note]:
        for at, name in enumerate(self._names):
            alone = [shapes for sizes, shapes in self._runs if self._changes_alone(at, sizes)]
            lost = len(self._first.shapes) - min(map(len, alone))
            if lost:
                text = f"other operators run when {name} changes: of {lost:,} tensors it is not known how"
                yield Note(code="operators-follow-sizes", text=f"{text} they follow it")

    def _changes_alone(self, at: int, sizes: tuple[int, ...]) -> bool:
        return [index for index, size in enumerate(sizes) if size != self._usual[index]] == [at]

    def _all(self, vary: Vary) -> Iterator[tuple[tuple[int, ...], Seen]]:
        """Every run, with its sizes: those with one size changed, then those with several."""
        for at, group in enumerate(self._groups):
            for size, seen in group.runs:
                yield (*self._usual[:at], size, *self._usual[at + 1 :]), seen
        for sizes in self._together():
            changed: dict[tuple[int, int], int] = {}
            for group, size in zip(self._groups, sizes, strict=True):
                changed.update(group.at(size))
            again = varied(vary, changed)
            if again is not None:
                yield sizes, again

    def _together(self) -> Iterator[tuple[int, ...]]:
        """All sizes changed at once, twice, and each pair of those that are no batch."""
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

    def _text(self, points: tuple[Point, ...]) -> str:
        """A size as a formula; as a number with the symbols that it follows where none was found."""
        if points not in self._texts:
            found = formula(self._names, points) or product(points, self._known)
            if found is not None and len(movers(points)) == 1:
                self._known[points] = found
            if found is None:
                following = [self._names[at] for at in movers(points)] or self._names
                found = f"{points[0].value}{{{','.join(following)}}}"
            self._texts[points] = found
        return self._texts[points]


class _Tensors:
    """The tensors of a run: their shapes by number, and the operators that made them, in order."""

    def __init__(self, seen: Seen) -> None:
        model, run, flow = seen
        forward = [at for at, op in enumerate(model.ops) if op.phase == "forward"]
        self._ran = [(model.ops[at].name, model.ops[at].module) for at in forward]
        self._made = [flow.writes[at] for at in forward]
        self._wiring = flow.inputs, [flow.reads[at] for at in forward], self._made
        self._given = [number for number in flow.inputs if number is not None]
        self.shapes: dict[int, Shape] = {}
        self._take(flow.inputs, run.inputs)
        for at in forward:
            self._take(flow.writes[at], model.ops[at].outputs)

    def seen_again(self, other: _Tensors) -> dict[int, Shape]:
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
