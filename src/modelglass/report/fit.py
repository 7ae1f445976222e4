"""Whether a model fits into the memory of a device, and what would make it fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from modelglass.report.memory import Method

Sharding: TypeAlias = Literal["ddp", "fsdp2", "fsdp3", "tensor"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """What is changed about a step before its memory is worked out. None and the defaults: nothing."""

    batch_size: int | None = None
    seq_len: int | None = None
    optimizer: str | None = None
    weights: str | None = None  # element type of the weights: "bfloat16", "float16", "float32", "int8"
    autocast: str | None = None  # element type that operators compute in
    master_weights: bool = False  # the optimizer keeps float32 copies of weights that are not
    accumulate: int = 1  # forward and backward passes before each optimizer step
    checkpoint: tuple[str, ...] = ()  # patterns of modules that run again in backward instead of saving
    sharding: Sharding | None = None
    devices: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One change, and what it leads to. `problem` says why it could not be worked out."""

    what_if: WhatIf
    peak_nbytes: int | None
    method: Method
    fits: bool | None
    largest_batch: int | None = None  # with this change; None: not searched, or not even one fits
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Whether a pass or step fits, the largest that does, and what else would.

    `batch_size` and `seq_len` are those of the inputs as given. The largest are None when not even one fits,
    or when the inputs show no such dimension; `limited` says that the search ended at its own limit.
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
    limited: bool = False
    options: tuple[Option, ...] = ()
    runs: int = 0  # fake runs that this took

    @property
    def margin_nbytes(self) -> int:
        """What is left as given; negative: what is missing."""
        return self.device_nbytes - self.peak_nbytes
