"""The search for sizes of the inputs that can change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from modelglass.report import Note
from modelglass.symbols.trials import Sizes, TrialRun, Vary, run_resized

RUNS = 19  # that look for sizes that can change
RUNS_OF_A_GROUP = 4
MANY = 6  # places of one size: of more, not every choice is tried
_CHANNELS_LAST = frozenset({"mlx"})  # frameworks whose layers take pictures so
SMALL = 4  # sizes below it have no half to try; one more of a larger one may get lost in rounding


@dataclass(frozen=True)
class InputDim:
    """One dimension of one input."""

    index: int
    dim: int
    size: int
    name: str  # "x.0"
    rank: int
    floating: bool
    channels_last: bool = False

    @property
    def letter(self) -> str | None:
        """What it is called in a picture or volume; None: it is in none."""
        if not self.floating or self.rank < 4 or self.dim == 0:
            return None
        if self.dim == (self.rank - 1 if self.channels_last else 1):
            return "C"
        from_the_end = self.dim - self.rank + self.channels_last
        return "CDHW"[max(from_the_end, -4)]


@dataclass(frozen=True)
class Group:
    """Places that change together, and the runs with other sizes: two, and a third to see what is rounded."""

    places: tuple[InputDim, ...]
    runs: tuple[tuple[int, TrialRun], ...]

    @property
    def size(self) -> int:
        return self.places[0].size

    @property
    def is_first(self) -> bool:
        return all(place.dim == 0 for place in self.places)

    def at(self, size: int) -> dict[tuple[int, int], int]:
        return {(place.index, place.dim): size for place in self.places}


def find_input_dims(first: TrialRun) -> tuple[InputDim, ...]:
    """Every dimension of every tensor that is given, one given twice once."""
    model, run, flow = first
    channels_last = model.source in _CHANNELS_LAST
    places: list[InputDim] = []
    numbers: set[int] = set()
    for index, (value, number, name) in enumerate(zip(run.inputs, flow.inputs, flow.names, strict=True)):
        if number is None or number in numbers or value.shape is None or value.text is not None:
            continue  # one that is sparse or nested has more to it than its sizes
        numbers.add(number)
        floating = str(value.dtype).startswith(("float", "bfloat", "complex"))
        rank = len(value.shape)
        places.extend(
            InputDim(index, dim, size, f"{name}.{dim}", rank, floating, channels_last)
            for dim, size in enumerate(value.shape)
            if size > 0
        )
    return tuple(places)


def _candidates(places: Sequence[InputDim]) -> Iterator[tuple[InputDim, ...]]:
    """The groups that are tried first: batches, lengths, pictures, channels."""
    batches: dict[int, list[InputDim]] = {}
    lengths: dict[int, list[InputDim]] = {}
    pictures: dict[tuple[str, int], list[InputDim]] = {}
    channels: dict[int, list[InputDim]] = {}
    for place in places:
        if place.dim == 0:
            batches.setdefault(place.size, []).append(place)
        elif place.letter is None:
            lengths.setdefault(place.size, []).append(place)
        elif place.letter == "C":
            channels.setdefault(place.size, []).append(place)
        else:
            pictures.setdefault((place.letter, place.size), []).append(place)
    shared = sorted(batches.values(), key=len, reverse=True)
    yield from map(tuple, (*shared, *lengths.values(), *pictures.values(), *channels.values()))


class Search:
    """Looks for the groups of places that can change."""

    def __init__(self, places: tuple[InputDim, ...], vary: Vary) -> None:
        self._places = places
        self._vary = vary
        self._left = RUNS
        self._known: dict[tuple[tuple[tuple[int, int], int], ...], TrialRun | None] = {}
        self._stuck: dict[InputDim, None] = {}

    def groups(self) -> tuple[Group, ...]:
        """Those that can change: batches, then others, in the order of the inputs."""
        found: list[Group] = []
        failed: list[tuple[InputDim, ...]] = []
        for places in _candidates(self._places):
            group = self._try_group(places)
            if group is None:
                failed.append(places)
                self._stuck.update(dict.fromkeys(places))
            else:
                found.append(group)
        for places in failed:
            found.extend(self._try_subgroups(places))
        return tuple(
            sorted(found, key=lambda group: (not group.is_first, self._places.index(group.places[0])))
        )

    def notes(self) -> Iterator[Note]:
        where = tuple(place.name for place in self._stuck)
        if where and self._left > 0:
            yield Note(code="fixed-sizes", text="no other size worked for these dimensions", where=where)
        elif where:
            yield Note(code="sizes-not-tried", text="not every way to change these was tried", where=where)

    def _try_subgroups(self, places: tuple[InputDim, ...]) -> Iterator[Group]:
        """The groups that can change when those of a size cannot all do so together.

        Batches are not tied to anything else: what is left of them may be, with what is not first.
        """
        batch = all(place.dim == 0 for place in places)
        same = places if batch else tuple(p for p in self._stuck if p.size == places[0].size)
        for count in range(len(same), 0, -1) if len(same) <= MANY else (len(same), 1):
            for chosen in combinations(same, count):
                if chosen == places or not self._stuck.keys() >= set(chosen):
                    continue
                group = self._try_group(chosen)
                if group is not None:
                    for place in chosen:
                        del self._stuck[place]
                    yield group

    def _try_group(self, places: tuple[InputDim, ...]) -> Group | None:
        """The places as a group when the model runs with two other sizes."""
        size = places[0].size
        trial = _Trial(self, places)
        if trial.works(2 * size):
            more: tuple[int, ...] = (3 * size, size // 2, size + 1)
        elif trial.works(size // 2):
            more = (size // 4, size - 1, size - 2)
        elif size < SMALL and trial.works(size + 1):
            more = (size + 2, size - 1)
        else:
            return None
        for each in more:
            if len(trial.runs) < 2:
                trial.works(each)
        if len(trial.runs) < 2:
            return None
        if not all(place.dim == 0 for place in places):
            trial.works(next(iter(trial.runs)) + 1)  # no multiple: what is rounded shows
        return Group(tuple(sorted(places, key=self._places.index)), tuple(trial.runs.items()))

    def run(self, sizes: Sizes) -> TrialRun | None:
        """A run with these sizes, made once; None when it fails, or was one too many."""
        key = tuple(sorted(sizes.items()))
        if key not in self._known and self._left > 0:
            self._left -= 1
            self._known[key] = run_resized(self._vary, sizes)
        return self._known.get(key)


class _Trial:
    """The runs of one group: few, and none with a single element, which fits anything by being repeated."""

    def __init__(self, search: Search, places: tuple[InputDim, ...]) -> None:
        self._search = search
        self._group = Group(places, ())
        self._tried = {self._group.size}
        self.runs: dict[int, TrialRun] = {}

    def works(self, size: int) -> bool:
        if size < 2 or size in self._tried or len(self._tried) > RUNS_OF_A_GROUP:
            return False
        self._tried.add(size)
        seen = self._search.run(self._group.at(size))
        if seen is not None:
            self.runs[size] = seen
        return seen is not None


def name_groups(groups: Sequence[Group]) -> tuple[str, ...]:
    """Batches are B, height and width of what can change in both H and W, the others L; then B2, L2 ..."""
    pictures: dict[int, set[str | None]] = {}
    for group in groups:
        for place in group.places:
            pictures.setdefault(place.index, set()).add(place.letter)
    counts: dict[str, int] = {}
    names: list[str] = []
    for group in groups:
        letter = group.places[0].letter
        is_picture = letter is not None and len(pictures[group.places[0].index] & {"D", "H", "W"}) > 1
        name = (
            "B" if group.is_first else letter if letter is not None and (is_picture or letter == "C") else "L"
        )
        counts[name] = counts.get(name, 0) + 1
        names.append(name if counts[name] == 1 else f"{name}{counts[name]}")
    return tuple(names)
