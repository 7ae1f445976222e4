"""Options that change a run before its memory is worked out."""

from __future__ import annotations

from typing import Any

import click

from modelglass import api
from modelglass.cli._command import option, options
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


def parse_what_if(
    train: bool,
    *,
    accumulate: int | None,
    devices: int | None,
    **changes: Any,
) -> Any:
    """What the options change about the run; None: nothing."""
    for name, given in (
        ("--master-weights", changes["master_weights"]),
        ("--accumulate", accumulate),
        ("--recompute", changes["recompute"]),
    ):
        if given and not train:
            raise UsageError(f"{name} needs a training step", hint="add --train")
    if (changes["sharding"] is None) != (devices is None):
        raise UsageError(
            "--sharding and --devices belong together", hint="give both, as in --sharding fsdp3 --devices 8"
        )
    changed = api.WhatIf(accumulate=accumulate or 1, devices=devices or 1, **changes)
    return None if changed == api.WhatIf() else changed
