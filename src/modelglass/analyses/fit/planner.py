"""Does it fit, how large a batch or sequence does, and what would make it fit: a search over fake runs.

Nothing here needs a framework: the caller brings a function that runs the model with a change and returns the
lifetimes of all memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Literal, TypeAlias

from modelglass.analyses.cost.matrices import has_unknown
from modelglass.analyses.fit.options import Options, changed_fields
from modelglass.analyses.fit.search import LARGEST, Figure, LargestSize, find_largest
from modelglass.analyses.memory.what_if import QUANTIZED, Units, is_estimate, memory_with, needs_run, units_of
from modelglass.errors import InspectError, UsageError
from modelglass.report.fit import NOTHING, Fit, WhatIf
from modelglass.report.lifetimes import Lifetimes
from modelglass.report.memory import Memory, Method
from modelglass.report.model import Model, Module
from modelglass.report.report import Note

KEPT = 4  # runs whose lifetimes are kept; of the others, only figures

Observe = Callable[[WhatIf], Lifetimes]
Progress = Callable[[str], None]
Dimension: TypeAlias = Literal["batch_size", "seq_len"]


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
        found = Options(self, device_nbytes, base, given.needed_nbytes).all() if looked_for else []
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
        """What a change needs; a run that fails is an answer as well."""
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
    text = f"no {what} is known: no shape in the model follows the {size:,} that the inputs suggest for it"
    return Note(code=f"{what}-unknown", severity="warning", text=text)


def _with_size(what_if: WhatIf, name: Dimension, size: int | None) -> WhatIf:
    return replace(what_if, batch_size=size) if name == "batch_size" else replace(what_if, seq_len=size)


def _describe(what_if: WhatIf) -> str:
    """A change in the words of its fields."""
    words = []
    for name, value in changed_fields(what_if, NOTHING).items():
        shown = "" if value is True else " ".join(value) if isinstance(value, tuple) else value
        words.append(f"{name.replace('_', ' ')} {shown}".rstrip())
    return ", ".join(words) or "as given"


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
