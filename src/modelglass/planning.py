"""Does it fit, how large a batch or sequence does, and what would make it fit: a search over fake runs.

Nothing here needs a framework: whoever asks brings a function that runs the model with a change and tells
when each piece of memory was taken and given back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from itertools import combinations
from math import log2
from typing import Literal, TypeAlias

from modelglass.analyses.matrices import has_unknown
from modelglass.analyses.what_if import QUANTIZED, Units, is_estimate, memory_with, needs_run, units_of
from modelglass.errors import InspectError, UsageError
from modelglass.report.fit import NOTHING, Fit, Option, Sharding, WhatIf
from modelglass.report.lifetimes import Lifetimes
from modelglass.report.memory import Coverage, Memory, Method
from modelglass.report.model import Model, Module
from modelglass.report.report import Note

LARGEST = 2**20  # batch size or sequence length that a search goes to
MOST_DEVICES = 2**10
SAVES = 0.01  # of the memory, an option at the least
DEVICES_A_HALF = 8  # that an option may take for each time that it halves the memory
COMBINATIONS = 3  # that fit, of those looked for
TRIED = 8  # combinations, fitting or not
GUESSES = 8  # figures after which a search goes by halves
KEPT = 4  # runs whose lifetimes are kept; of the others, only figures

Observe = Callable[[WhatIf], Lifetimes]
Progress = Callable[[str], None]
Dimension: TypeAlias = Literal["batch_size", "seq_len"]


@dataclass(frozen=True)
class Figure:
    """What a change needs in memory, or why that cannot be known.

    `given` are the bytes of its inputs, `made` those of everything else that lives during the run.
    """

    nbytes: int | None
    method: Method = "exact"
    problem: str | None = None
    coverage: tuple[Coverage, ...] = ()
    given: int | None = None
    made: int | None = None

    def fits(self, device_nbytes: int) -> bool:
        return self.nbytes is not None and self.nbytes <= device_nbytes


@dataclass(frozen=True)
class LargestSize:
    """The largest size that fits, None when not even 1 does, and what it and one more need."""

    size: int | None = None
    figure: Figure | None = None
    next: Figure | None = None  # None: the search ended at its limit

    @property
    def nbytes(self) -> int | None:
        return None if self.figure is None else self.figure.nbytes

    @property
    def next_nbytes(self) -> int | None:
        return None if self.next is None else self.next.nbytes


class Planner:
    """Answers for one model and its inputs, with as few runs as it can.

    `observe` makes one fake run with those changes that need one, and raises `InspectError` when it fails.
    `batch_size` and `seq_len` are what the inputs show, `optimizer` the one that the step is for. `look`
    gives the model with what it executed, `context` is for how many positions it was made.
    """

    def __init__(
        self,
        observe: Observe,
        model: Model,
        *,
        train: bool = False,
        optimizer: str | None = None,
        batch_size: int | None = None,
        seq_len: int | None = None,
        progress: Progress | None = None,
        look: Callable[[], Model] | None = None,
        context: int | None = None,
    ) -> None:
        self._look, self._context = look, context
        self._notes: list[Note] = []
        self._observe, self._model, self._train = observe, model, train
        self._optimizer = optimizer if train else None
        self._sizes: dict[Dimension, int | None] = {"batch_size": batch_size, "seq_len": seq_len}
        self._progress = progress
        self._units: Units | None = None
        self._lifetimes: dict[WhatIf, Lifetimes] = {}
        self._figures: dict[WhatIf, Figure] = {}
        self.runs = 0

    def memory(self, what_if: WhatIf = NOTHING) -> Memory:
        """The memory of the step with a change."""
        lifetimes = self._lifetimes_with(what_if)
        optimizer = what_if.optimizer or self._optimizer
        if optimizer is not None and optimizer not in lifetimes.tails:
            raise UsageError(
                f"the run has no step of the optimizer {optimizer!r}",
                hint="it has " + (", ".join(lifetimes.tails) or "none: nothing trains"),
            )
        arithmetic = what_if.weights in QUANTIZED or what_if.sharding is not None
        units = self.units if arithmetic else None
        return memory_with(lifetimes, what_if, self._model, optimizer=optimizer, units=units)

    def fit(self, device_nbytes: int, *, base: WhatIf = NOTHING, options: bool = True) -> Fit:
        """Whether the step fits, the largest that does, and what else would when it does not.

        `base` is a change that all of it is about.
        """
        given = self.memory(base)
        figure = self._figures[base] = self._figure_of(given, base)
        batch, batch_problem = self._largest("batch_size", device_nbytes, base)
        seq, seq_len_problem = self._largest("seq_len", device_nbytes, base)
        fits = figure.fits(device_nbytes)
        looked_for = options and not fits
        found = _Options(self, device_nbytes, base, given.needed_nbytes).all() if looked_for else []
        return Fit(
            device_nbytes=device_nbytes,
            train=self._train,
            optimizer=given.optimizer,
            calibrated=given.calibrated,
            is_lower_bound=given.method == "exact",
            fits=fits,
            peak_nbytes=given.needed_nbytes,
            method=given.method,
            device=given.device,
            batch_size=self.size("batch_size", base),
            largest_batch=batch.size,
            largest_batch_peak_nbytes=batch.nbytes,
            next_batch_peak_nbytes=batch.next_nbytes,
            seq_len=self.size("seq_len", base),
            largest_seq_len=seq.size,
            largest_seq_len_peak_nbytes=seq.nbytes,
            next_seq_len_peak_nbytes=seq.next_nbytes,
            batch_problem=batch_problem,
            seq_len_problem=seq_len_problem,
            limited=LARGEST in (batch.size, seq.size),
            context_length=self._context,
            options=tuple(found),
            coverage=given.coverage,
            excludes=given.excludes,
            runs=self.runs,
            notes=tuple(self._notes),
        )

    @property
    def model(self) -> Model:
        return self._model

    @property
    def units(self) -> Units:
        """The model's repeated blocks."""
        if self._units is None:
            shown = self._look is not None and has_unknown(self._model)
            self._units = units_of(self._look() if shown and self._look is not None else self._model)
        return self._units

    @property
    def trains(self) -> bool:
        return self._train

    @property
    def optimizer(self) -> str | None:
        return self._optimizer

    def size(self, name: Dimension, what_if: WhatIf) -> int | None:
        """The batch size or sequence length with a change."""
        changed = what_if.batch_size if name == "batch_size" else what_if.seq_len
        return self._sizes[name] if changed is None else changed

    def figure(self, what_if: WhatIf) -> Figure:
        """What a change needs; a run that fails is an answer, too."""
        if what_if not in self._figures:
            try:
                self._figures[what_if] = self._figure_of(self.memory(what_if), what_if)
            except InspectError as error:
                method: Method = "estimate" if is_estimate(what_if, self._optimizer) else "exact"
                self._figures[what_if] = Figure(None, method, error.problem)
        return self._figures[what_if]

    def _figure_of(self, found: Memory, what_if: WhatIf) -> Figure:
        storages = self._lifetimes_with(what_if).storages
        given = sum(each.nbytes for each in storages if each.category == "inputs")
        made = sum(each.nbytes for each in storages) - given
        return Figure(found.needed_nbytes, found.method, coverage=found.coverage, given=given, made=made)

    def optimizers(self, what_if: WhatIf) -> Iterator[str]:
        """Those that the run of a change has a step of, besides the one that is asked for."""
        asked = what_if.optimizer or self._optimizer
        return (name for name in self._lifetimes_with(what_if).tails if asked is not None and name != asked)

    def _lifetimes_with(self, what_if: WhatIf) -> Lifetimes:
        """The run that a change needs, made unless it is among the last ones."""
        needed = needs_run(what_if)
        for name, size in self._sizes.items():
            if getattr(needed, name) == size:
                needed = _with_size(needed, name, None)
        if needed not in self._lifetimes:
            self.runs += 1
            if self._progress is not None:
                self._progress(f"fake run {self.runs:,}: {_describe(needed)}")
            self._lifetimes[needed] = self._observe(needed)
            if len(self._lifetimes) > KEPT:
                del self._lifetimes[list(self._lifetimes)[1]]  # the first is what options start from
        return self._lifetimes[needed]

    def _largest(self, name: Dimension, device_nbytes: int, base: WhatIf) -> tuple[LargestSize, str | None]:
        """The largest batch size or sequence length that fits; as an option, one more that cannot run."""
        start = self.size(name, base)
        if start is None:
            return LargestSize(), None
        known: dict[int, Figure] = {}

        def figure_at(size: int) -> Figure:
            known[size] = self.figure(_with_size(base, name, size))
            return known[size]

        table = _positions(self._model, start) if name == "seq_len" else None
        ends = [] if table is None else [table[1]]
        limit = min([LARGEST, *ends, *self._contexts(name, start)])
        found = find_largest(figure_at, start, device_nbytes, limit=limit)
        if _is_unread(known.values()):
            self._sizes[name] = None
            self._notes.append(_unread(name, start))
            return LargestSize(), None
        problem = None if found.next is None else found.next.problem
        if table is not None and found.size == table[1]:
            problem = f"{table[0]} has {table[1]:,} positions"
        return found, problem

    def _contexts(self, name: Dimension, start: int) -> Iterator[int]:
        """How long a sequence the model was made for, unless the given one is longer already."""
        if name == "seq_len" and self._context is not None:
            if start <= self._context:
                yield self._context
            else:
                text = f"the sequence is longer than the {self._context:,} positions the model was made for"
                self._notes.append(Note(code="beyond-context", severity="warning", text=text))


def _is_unread(figures: Iterable[Figure]) -> bool:
    """Whether inputs of other sizes changed nothing but the inputs."""
    seen = {(each.given, each.made) for each in figures if each.nbytes is not None}
    return len(seen) > 1 and len({made for _, made in seen}) == 1


def _unread(name: Dimension, size: int) -> Note:
    what = "batch" if name == "batch_size" else "sequence"
    text = f"no {what} is known: nothing in the model follows the {size:,} that the inputs suggest for it"
    return Note(code=f"{what}-unknown", severity="warning", text=text)


def find_largest(
    figure_at: Callable[[int], Figure], start: int, device_nbytes: int, *, limit: int = LARGEST
) -> LargestSize:
    """The largest size from 1 to `limit` that fits, by as few figures as it takes.

    Sizes are guessed from figures of other sizes; none is believed before it was itself found to fit, and one
    more was found not to. A size that cannot be worked out does not fit.
    """
    search = _Search(device_nbytes, limit)
    guess = min(start, limit)
    while search.high - search.low > 1:
        search.learn(guess, figure_at(guess))
        guess = search.guess()
    return LargestSize(search.low or None, search.known.get(search.low), search.known.get(search.high))


class _Search:
    """A size that fits, one that does not, and where between them to look next."""

    def __init__(self, device_nbytes: int, limit: int) -> None:
        self._device_nbytes, self._limit = device_nbytes, limit
        self.known: dict[int, Figure] = {}
        self.low, self.high = 0, limit + 1
        self._stride = 1

    def learn(self, size: int, figure: Figure) -> None:
        self.known[size] = figure
        if figure.fits(self._device_nbytes):
            self.low = size
        else:
            self.high = size

    def guess(self) -> int:
        """The next size to look at."""
        low, high = self.low, self.high
        if low == 0:
            return 1
        if len(self.known) == 1:
            return min(2 * low, high - 1)
        if len(self.known) >= GUESSES:
            return (low + high) // 2
        bends = len(self.known) % 2 == 1  # jumps look like bends, so straight lines have their turn, too
        points = _nearest(self.known, low, high)[: 3 if bends else 2]
        crossing = _crossing(points, low, high, self._device_nbytes)
        if low < crossing < high - 1:
            self._stride = 1
            return crossing
        if crossing > low and high <= self._limit and self.known[high].nbytes is None:
            return _between(low, high)
        return self._beside(crossing)

    def _beside(self, crossing: int) -> int:
        """A step from an edge that the curve takes for the answer, twice as long each time that it is not."""
        step, self._stride = self._stride, 2 * self._stride
        if 2 * step > self.high - self.low:
            return (self.low + self.high) // 2
        return self.low + step if crossing == self.low else self.high - step


def _between(low: int, high: int) -> int:
    """Where to look when it is not memory that ends it: tables are made in powers of two."""
    first, last = low.bit_length(), (high - 1).bit_length() - 1
    if first <= last:
        return int(2 ** ((first + last) // 2))
    return low + 1 if low.bit_count() == 1 else (low + high) // 2


def _nearest(known: dict[int, Figure], low: int, high: int) -> list[tuple[int, int]]:
    """Sizes with what they need, those at the edge first."""
    points = [(size, figure.nbytes) for size, figure in known.items() if figure.nbytes is not None]
    return sorted(points, key=lambda point: min(abs(point[0] - low), abs(point[0] - high)))


def _crossing(points: list[tuple[int, int]], low: int, high: int, device_nbytes: int) -> int:
    """The largest size for which the curve through the points stays within the device."""
    while high - low > 1:
        middle = (low + high) // 2
        if _on_curve(points, middle) <= device_nbytes:
            low = middle
        else:
            high = middle
    return low


def _on_curve(points: list[tuple[int, int]], at: int) -> Fraction:
    """The polynomial through the points: memory grows with the batch, and with the square of a sequence."""
    total = Fraction(0)
    for size, nbytes in points:
        share = Fraction(nbytes)
        for other, _ in points:
            if other != size:
                share *= Fraction(at - other, size - other)
        total += share
    return total


_COMPANIONS = {"devices", "accumulate"}  # of another change, and none by themselves


class _Options:
    """The changes that may make a step fit, each worked out."""

    def __init__(self, planner: Planner, device_nbytes: int, base: WhatIf, given_nbytes: int) -> None:
        self._planner, self._base = planner, base
        self._device_nbytes, self._given_nbytes = device_nbytes, given_nbytes

    def all(self) -> list[Option]:
        """Every one that saves something, and those that cannot run; what leaves most comes first."""
        singles = [self._option(change) for change in self._singles()]
        sharded = [self._least(self._base, kind) for kind in self._kinds()]
        found = [*singles, *filter(None, sharded), *self._combine(singles)]
        return sorted(filter(self._is_useful, found), key=self._rank)

    def _is_useful(self, option: Option) -> bool:
        return option.peak_nbytes is None or option.peak_nbytes <= self._given_nbytes * (1 - SAVES)

    def _is_worth_it(self, option: Option) -> bool:
        """Whether the devices are few for what they save: some for each half, or twice the least."""
        times = self._given_nbytes / max(option.peak_nbytes or self._given_nbytes, 1)
        devices = option.what_if.devices
        return times > 1 and devices <= max(DEVICES_A_HALF * log2(times), 2 * (times - 1))

    def _rank(self, option: Option) -> tuple[bool, int, int]:
        changes = len(_changes(option.what_if, self._base).keys() - _COMPANIONS)
        return option.peak_nbytes is None, option.peak_nbytes or 0, changes

    def _option(self, what_if: WhatIf) -> Option:
        figure = self._planner.figure(what_if)
        return Option(
            what_if=what_if,
            peak_nbytes=figure.nbytes,
            method=figure.method,
            fits=None if figure.nbytes is None else figure.fits(self._device_nbytes),
            problem=figure.problem,
            coverage=figure.coverage,
        )

    def _singles(self) -> Iterator[WhatIf]:
        """One change each, as far as it makes sense for this model."""
        base, planner = self._base, self._planner
        half = base.weights is None and _has_float32(planner.model)
        for name in planner.optimizers(base):
            yield replace(base, optimizer=name)
        if half:
            yield replace(base, weights="bfloat16")
        if planner.trains:
            yield from self._for_training(half=half)
        elif base.weights is None and planner.units.linear:
            yield from (replace(base, weights=weights) for weights in QUANTIZED)

    def _for_training(self, *, half: bool) -> Iterator[WhatIf]:
        base, planner = self._base, self._planner
        batch = planner.size("batch_size", base)
        if half and planner.optimizer is not None:
            yield replace(base, weights="bfloat16", master_weights=True)
        if half and base.autocast is None:
            yield replace(base, autocast="bfloat16")
        if planner.units.patterns and not base.recompute:
            yield replace(base, recompute=planner.units.patterns)
        if batch is not None and batch > 1:
            yield replace(base, batch_size=1, accumulate=base.accumulate * batch)

    def _kinds(self) -> tuple[Sharding, ...]:
        if self._base.sharding is not None:
            return ()
        kinds: tuple[Sharding, ...] = ("fsdp2", "fsdp3") if self._planner.trains else ("fsdp3",)
        return (*kinds, "tensor") if self._planner.units.matrices else kinds

    def _least(self, what_if: WhatIf, kind: Sharding) -> Option | None:
        """Over as few devices as fit, by powers of two; over those that come closest when none does.

        Shards are whole rows, so that from some number of devices on each more takes more; and there are no
        more parts of a layer than it has rows or heads. None: what many devices save is not worth them.
        """
        best, last = None, self._given_nbytes
        for count in range(1, MOST_DEVICES.bit_length()):
            option = self._option(replace(what_if, sharding=kind, devices=2**count))
            if option.peak_nbytes is None or option.peak_nbytes >= last:
                break
            last = option.peak_nbytes
            best = option if self._is_worth_it(option) else best
            if option.fits:
                break
        return best

    def _combine(self, singles: Iterable[Option]) -> Iterator[Option]:
        """Changes that save something and are not enough alone, together: pairs, else threes, else all."""
        useful = [
            option
            for option in singles
            if option.fits is False and (option.peak_nbytes or 0) < self._given_nbytes
        ]
        useful.sort(key=lambda option: option.peak_nbytes or 0)
        tried = 0
        for count in (2, 3):
            fitting = 0
            for what_if in self._unions(useful, count):
                if tried == TRIED or fitting == COMBINATIONS:
                    break
                tried += 1
                option = self._option(what_if)
                if option.fits:
                    fitting += 1
                    yield option
            if fitting:
                return
        if not any(option.fits for option in singles):
            yield from self._everything(useful)

    def _unions(self, useful: list[Option], count: int) -> Iterator[WhatIf]:
        """So many changes at once, those that save most first."""
        groups = sorted(
            combinations(useful, count), key=lambda group: sum(option.peak_nbytes or 0 for option in group)
        )
        seen = {option.what_if for option in useful}
        for group in groups:
            union = _union([option.what_if for option in group], self._base)
            if union is not None and union not in seen:
                seen.add(union)
                yield union

    def _everything(self, useful: list[Option]) -> Iterator[Option]:
        """All that goes together, and over as few devices as fit when that is not enough."""
        whole = self._base
        for option in useful:
            whole = _union([whole, option.what_if], self._base) or whole
        option = self._option(whole)
        if option.fits:
            yield option
        elif self._base.sharding is None and whole != self._base:
            yield from filter(None, [self._least(whole, "fsdp3")])


def _union(changes: list[WhatIf], base: WhatIf) -> WhatIf | None:
    """All the changes in one; None when two of them contradict each other."""
    together: dict[str, object] = {}
    for each in changes:
        chosen = _changes(each, base)
        if "weights" in chosen:
            chosen["master_weights"] = each.master_weights  # with copies or without is a choice of its own
        for name, value in chosen.items():
            if together.setdefault(name, value) != value:
                return None
    if "weights" in together and "autocast" in together:
        return None  # two ways to the same end
    return replace(base, **together)  # type: ignore[arg-type]


def _changes(what_if: WhatIf, base: WhatIf) -> dict[str, object]:
    return {
        field.name: getattr(what_if, field.name)
        for field in fields(WhatIf)
        if getattr(what_if, field.name) != getattr(base, field.name)
    }


def _with_size(what_if: WhatIf, name: Dimension, size: int | None) -> WhatIf:
    return replace(what_if, batch_size=size) if name == "batch_size" else replace(what_if, seq_len=size)


def _describe(what_if: WhatIf) -> str:
    """A change in the words of its fields."""
    told = []
    for name, value in _changes(what_if, NOTHING).items():
        shown = "" if value is True else " ".join(value) if isinstance(value, tuple) else value
        told.append(f"{name.replace('_', ' ')} {shown}".rstrip())
    return ", ".join(told) or "as given"


def _has_float32(model: Model) -> bool:
    return any(
        tensor.kind == "parameter" and tensor.dtype in ("float32", "float64") for tensor in model.tensors
    )


def _positions(model: Model, seq_len: int) -> tuple[str, int] | None:
    """The shortest table of learned positions that is looked up by sequence, and how many it has.

    A run without values does not notice a position beyond the table. Tables are known by their names; where
    the model's calls are known, only those that were asked for as many positions as the sequence has.
    """
    asked = {
        call.module: {value.shape[-1] for value in call.inputs if value.shape}
        for call in model.calls
        if call.inputs
    }
    found = [
        (module.path, count)
        for module in model.modules
        if (count := _table_length(module)) is not None
        and count >= seq_len
        and seq_len in asked.get(module.path, {seq_len})
    ]
    return min(found, key=lambda table: table[1], default=None)


def _table_length(module: Module) -> int | None:
    rows, name = module.config.get("num_embeddings"), module.name.lower()
    if type(rows) is not int or "relative" in name or not ("pos" in name or name == "wpe"):
        return None
    padding, offset = module.config.get("padding_idx"), module.config.get("offset")
    skipped = (0 if type(padding) is not int else padding + 1) + (0 if type(offset) is not int else offset)
    return rows - skipped
