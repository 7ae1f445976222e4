"""What a run takes in memory, moment by moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from modelglass.report.lifetimes import MemoryPiece

if TYPE_CHECKING:
    from modelglass.report.fit import WhatIf
    from modelglass.report.lifetimes import MemoryPhase

# What memory is held for, in the order in which figures are listed; `Moment.held` follows it.
CATEGORIES = (
    "parameters",
    "buffers",
    "inputs",
    "gradients",
    "optimizer_state",
    "activations",  # saved for the backward pass
    "temporaries",  # every other tensor of the run, outputs included
    "scratch",  # what a kernel takes for itself while it runs
)

# Notes on runs that came to their end and have no memory figures all the same.
UNKNOWN_MEMORY = frozenset({"shapes-unknown", "real-run", "optimizer-failed", "nothing-trains"})

Method: TypeAlias = Literal["exact", "measured", "estimate"]
Change: TypeAlias = Literal["weights", "sharding"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What is held while one kernel runs, in bytes, by category in the order of `CATEGORIES`."""

    op: str
    module: str
    phase: MemoryPhase
    held: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return sum(self.held)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveTensor(MemoryPiece):
    """A piece of memory that is held at the peak.

    `op` in `module` and `phase` made it; None: it was there before.
    """

    op: str | None = None
    module: str | None = None
    phase: MemoryPhase | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCache:
    """What attention keeps of each token while text is generated.

    One sequence of `tokens` takes `fixed_nbytes + nbytes_per_token * tokens`, and layers that look back only
    over a window stop growing there: `windows` has their bytes per token by the length of the window.
    """

    nbytes_per_token: int  # of layers that keep every token
    windows: Mapping[int, int]  # window length -> bytes per token of the layers that have it
    fixed_nbytes: int  # at any length: states of recurrent layers
    method: Method
    source: str  # "config" or "observed cache"

    def nbytes(self, tokens: int, sequences: int = 1) -> int:
        """Bytes for so many sequences of so many tokens."""
        windowed = sum(each * min(tokens, window) for window, each in self.windows.items())
        return sequences * (self.fixed_nbytes + self.nbytes_per_token * tokens + windowed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """How much of the weights a change is about that was worked out by arithmetic, in bytes before it.

    `has_effect` says whether it changed the memory of anything at all.
    """

    change: Change
    nbytes: int  # of weights that it makes smaller
    of_nbytes: int  # of all weights
    unchanged: tuple[str, ...] = ()  # the weights that stay as they were, largest first
    has_effect: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The memory of one pass or one training step, from the first kernel to the last.

    In the first training step gradients and optimizer state come into being; in each later one the state is
    there from the start. All figures are of the step that takes the most: of a later one, unless the first
    takes as much. The peaks of both are there besides.
    """

    peak_nbytes: int  # of the step that takes the most
    method: Method  # of the peak
    at: int | None  # the moment of the peak in `timeline`; None: nothing ran
    by_category: Mapping[str, int]  # at the peak, which is their sum
    base_nbytes: int  # parameters, buffers and inputs
    timeline: tuple[Moment, ...] = field(repr=False)
    largest: tuple[LiveTensor, ...] = field(repr=False)  # of what is held at the peak, largest first
    calibrated: bool = False  # kernels' own scratch was measured and is included
    excludes: tuple[str, ...] = ()  # what a device takes beyond these figures, in a few words each
    device: str | None = None  # whose kernels ran, "cpu" or "cuda"; None: the framework does not report it
    batch_size: int | None = None  # of the inputs; None: they do not show it
    seq_len: int | None = None  # of the inputs; None: they have none, or do not show it
    optimizer: str | None = None
    in_first_step: bool | None = None  # whether it is the first step; None: there is no optimizer
    first_peak_nbytes: int | None = None  # of the first step; None: there is no optimizer
    later_peak_nbytes: int | None = None  # the most that any step after it takes; None: there is no optimizer
    saved_nbytes: int | None = None  # held for backward when forward ends; None: no backward, or not known
    saved_by_module: Mapping[str, int] | None = None  # of it, what each module itself saved
    kv_cache: KvCache | None = None
    what_if: WhatIf | None = None  # None: the model and inputs as they are
    coverage: tuple[Coverage, ...] = ()  # of each change that was worked out by arithmetic, in order

    def __post_init__(self) -> None:
        if sum(self.by_category.values()) != self.peak_nbytes:
            raise ValueError("the categories do not add up to the peak")

    @property
    def needed_nbytes(self) -> int:
        """The most that any step takes."""
        return self.peak_nbytes

    @property
    def peak(self) -> Moment | None:
        """Where the peak is."""
        return None if self.at is None else self.timeline[self.at]
