"""Whether a model fits into the memory of a device, and what would make it fit."""

from __future__ import annotations

from dataclasses import InitVar, dataclass
from typing import Literal, TypeAlias, get_args

from modelglass.errors import UsageError
from modelglass.printing import Printed
from modelglass.report.dtypes import full_dtype_name
from modelglass.report.memory import Coverage, Method
from modelglass.report.report import Note

Sharding: TypeAlias = Literal["ddp", "fsdp2", "fsdp3", "tensor"]

WEIGHTS = ("float32", "bfloat16", "float16", "int8", "int4")
AUTOCAST = ("bfloat16", "float16")
IMITATED = ("adam8bit", "adamw8bit")  # optimizers whose state is as large as theirs, their kernels unknown
MOST = 2**32  # of anything that is counted


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """What is changed about a step before its memory is worked out. None and the defaults: nothing."""

    batch_size: int | None = None
    seq_len: int | None = None
    optimizer: str | None = None
    weights: str | None = None  # element type of the weights, one of WEIGHTS
    autocast: str | None = None  # element type that operators compute in, one of AUTOCAST
    master_weights: bool = False  # the optimizer keeps float32 copies of weights that are not
    accumulate: int = 1  # forward and backward passes before each optimizer step
    recompute: tuple[str, ...] = ()  # patterns of modules that run again in backward instead of saving
    sharding: Sharding | None = None
    devices: int = 1
    checkpoint: InitVar[tuple[str, ...]] = ()  # the name that `recompute` had first

    def __post_init__(self, checkpoint: tuple[str, ...]) -> None:
        if checkpoint and not self.recompute:
            object.__setattr__(self, "recompute", checkpoint)
        for name in ("weights", "autocast"):
            given = getattr(self, name)
            if given is not None:
                object.__setattr__(self, name, full_dtype_name(str(given)))
        for name in ("batch_size", "seq_len", "accumulate", "devices"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or not 1 <= value <= MOST):
                raise UsageError(
                    f"{name} must be a whole number from 1 to {MOST:,}, got {value!r}",
                    hint=f"leave {name} out, or give a number such as 8",
                )
        for name, known in (("weights", WEIGHTS), ("autocast", AUTOCAST), ("sharding", get_args(Sharding))):
            value = getattr(self, name)
            if value is not None and value not in known:
                raise UsageError(f"{name}={value!r} is not known", hint=f"one of {', '.join(known)}")
        if self.devices > 1 and self.sharding is None:
            raise UsageError(
                f"devices={self.devices} needs sharding: how they share the work",
                hint=f"add sharding: {', '.join(get_args(Sharding))}",
            )
        if type(self.recompute) is not tuple or not all(isinstance(each, str) for each in self.recompute):
            raise UsageError(
                f"recompute must be a tuple of patterns, got {self.recompute!r}",
                hint='write ("model.layers.*",)',
            )


NOTHING = WhatIf()


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """Which dimensions of an input are the batch and the sequence; `leaf` is its place in `Run.inputs`."""

    leaf: int | None = None
    batch: int | None = None
    seq: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One change, and what it leads to. `problem`: why it could not be computed."""

    what_if: WhatIf
    peak_nbytes: int | None
    method: Method
    fits: bool | None
    problem: str | None = None
    coverage: tuple[Coverage, ...] = ()  # of each part of the change that was worked out by arithmetic


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit(Printed):
    """Whether a pass or step fits, the largest that does, and what else would.

    `batch_size` and `seq_len` are those of the inputs as given. The largest are None when not even one fits,
    or when the inputs show no such dimension; `limited` says that the search ended at its own limit, and a
    problem why one more than the largest cannot run at all. `is_lower_bound` says that kernels may take more
    than these figures: they are of tensors, and nobody measured what kernels take for themselves.
    """

    device_nbytes: int
    train: bool
    optimizer: str | None
    calibrated: bool
    fits: bool
    peak_nbytes: int  # as given
    method: Method
    batch_size: int | None
    largest_batch: int | None
    largest_batch_peak_nbytes: int | None
    next_batch_peak_nbytes: int | None  # of one more than the largest
    seq_len: int | None = None
    largest_seq_len: int | None = None
    largest_seq_len_peak_nbytes: int | None = None
    next_seq_len_peak_nbytes: int | None = None
    batch_problem: str | None = None
    seq_len_problem: str | None = None
    limited: bool = False
    is_lower_bound: bool = False
    context_length: int | None = None  # positions that the model was made for, the most looked at
    options: tuple[Option, ...] = ()
    coverage: tuple[Coverage, ...] = ()  # of the change that all of it is about
    device: str | None = None  # whose kernels ran; None: the framework does not report it
    runs: int = 0  # fake runs that this took
    excludes: tuple[str, ...] = ()  # what a device takes beyond these figures, in a few words each
    notes: tuple[Note, ...] = ()

    @property
    def margin_nbytes(self) -> int:
        """What is left as given; negative: what is missing."""
        return self.device_nbytes - self.peak_nbytes
