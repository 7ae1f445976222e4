"""Options that change a run before its memory is worked out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from modelglass import api
from modelglass.cli._command import option, options, options_as
from modelglass.cli._options import calibrate_option, optimizer_option, parse_optimizer, train_option
from modelglass.cli._types import DtypeChoice
from modelglass.errors import UsageError

_GROUP = "What-if options"

what_if_options = options(
    option("--batch-size", type=click.IntRange(1), metavar="N", group=_GROUP, help="Batch size to assume."),
    option("--seq-len", type=click.IntRange(1), metavar="N", group=_GROUP, help="Sequence length to assume."),
    option(
        "--weights",
        type=DtypeChoice(api.WEIGHTS),
        aliases=("--dtype",),
        group=_GROUP,
        help="Assume weights and float inputs have this dtype.",
    ),
    option(
        "--autocast",
        type=DtypeChoice(api.AUTOCAST),
        group=_GROUP,
        help="Assume operators compute in this dtype under autocast.",
    ),
    option(
        "--master-weights",
        is_flag=True,
        group=_GROUP,
        help="Assume the optimizer keeps float32 copies of the weights.",
    ),
    option(
        "--accumulate",
        type=click.IntRange(1),
        metavar="N",
        group=_GROUP,
        help="Forward and backward passes before each optimizer step.",
    ),
    option(
        "--recompute",
        metavar="PATTERN",
        multiple=True,
        aliases=("--checkpoint",),
        group=_GROUP,
        help="Modules that run again in backward instead of saving: 'model.layers.*'. Repeatable.",
    ),
    option(
        "--sharding",
        type=click.Choice(["ddp", "fsdp2", "fsdp3", "tensor"]),
        group=_GROUP,
        help="How --devices share the work.",
    ),
    option(
        "--devices",
        type=click.IntRange(1),
        metavar="N",
        group=_GROUP,
        help="Number of devices that share the work; needs --sharding.",
    ),
)


@dataclass(frozen=True, kw_only=True)
class GivenRun:
    """A run and what is changed about it, as given on the command line."""

    train: bool
    optimizer: str | None
    calibrate: bool
    batch_size: int | None
    seq_len: int | None
    weights: str | None
    autocast: str | None
    master_weights: bool
    accumulate: int | None
    recompute: tuple[str, ...]
    sharding: Any
    devices: int | None

    @property
    def is_asked(self) -> bool:
        """Whether something is asked for that only a run can give."""
        return any(value not in (None, False, ()) for value in vars(self).values())

    @property
    def options(self) -> dict[str, Any]:
        """The run and its change, for functions of the API."""
        return {
            "train": self.train,
            "optimizer": parse_optimizer(self.train, self.optimizer),
            "calibrate": self.calibrate,
            "what_if": self._what_if(),
        }

    def _what_if(self) -> Any:
        """What changes about the run; None: nothing."""
        self._check()
        changed = api.WhatIf(
            batch_size=self.batch_size,
            seq_len=self.seq_len,
            weights=self.weights,
            autocast=self.autocast,
            master_weights=self.master_weights,
            accumulate=self.accumulate or 1,
            recompute=self.recompute,
            sharding=self.sharding,
            devices=self.devices or 1,
        )
        return None if changed == api.WhatIf() else changed

    def _check(self) -> None:
        for name, given in (
            ("--master-weights", self.master_weights),
            ("--accumulate", self.accumulate),
            ("--recompute", self.recompute),
        ):
            if given and not self.train:
                raise UsageError(f"{name} needs a training step", hint="add --train")
        if (self.sharding is None) != (self.devices is None):
            raise UsageError(
                "--sharding and --devices belong together",
                hint="give both, as in --sharding fsdp3 --devices 8",
            )


run_options = options_as("run", GivenRun, train_option, optimizer_option, what_if_options, calibrate_option)
