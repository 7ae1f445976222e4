"""A what-if as a few words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from modelglass.page.units import share

if TYPE_CHECKING:
    from modelglass.report.fit import Fit, WhatIf
    from modelglass.report.memory import Coverage, Memory

_SHARDING = {
    "ddp": "data parallel",
    "fsdp2": "FSDP stage 2",
    "fsdp3": "FSDP stage 3",
    "tensor": "tensor parallel",
}

_DEVICES = {"cpu": "CPU", "cuda": "CUDA", "gpu": "GPU", "mps": "MPS", "xpu": "XPU"}

# How sure a figure of memory is.
SURE = {
    "exact": "exact for live tensors",
    "measured": "measured, kernels' own scratch included",
    "estimate": "an estimate",
}


_CHANGED = {"weights": "in few bits", "sharding": "divided"}
_NAMED = 3  # weights that stay as they were


def coverage_text(coverage: Coverage) -> str:
    """How much of the weights a change is about, and which stay as they were."""
    part = share(coverage.nbytes, coverage.of_nbytes) if coverage.nbytes else "none"
    part += f" of the weights {_CHANGED[coverage.change]}"
    names, more = coverage.unchanged[:_NAMED], len(coverage.unchanged) - _NAMED
    if not names:
        return part
    left = f"{', '.join(names)} and {more:,} more" if more > 0 else " and ".join(names)
    return f"{part}; as they were: {left}"


def sure_text(figure: Memory | Fit) -> str:
    """How sure a peak is, and whose kernels it is of."""
    device = "" if figure.device is None else f", {_DEVICES.get(figure.device, figure.device)} kernels"
    return SURE[figure.method] + device


def what_if_text(what_if: WhatIf) -> str:
    """What is changed, as in "bfloat16 weights, batch 8"; patterns and names in it are as they were given."""
    return ", ".join(_changes(what_if)) or "nothing changed"


def _changes(what_if: WhatIf) -> Iterator[str]:
    if what_if.weights is not None:
        yield f"{what_if.weights} weights"
    if what_if.master_weights:
        yield "float32 master weights"
    if what_if.autocast is not None:
        yield f"autocast to {what_if.autocast}"
    if what_if.batch_size is not None:
        yield f"batch {what_if.batch_size:,}"
    if what_if.seq_len is not None:
        yield f"sequence length {what_if.seq_len:,}"
    if what_if.accumulate > 1:
        yield f"gradients accumulated over {what_if.accumulate:,} passes"
    if what_if.recompute:
        yield f"recomputation of {' and '.join(what_if.recompute)}"
    if what_if.optimizer is not None:
        yield f"optimizer {what_if.optimizer}"
    if what_if.sharding is not None:
        devices = "1 device" if what_if.devices == 1 else f"{what_if.devices:,} devices"
        yield f"{_SHARDING[what_if.sharding]} over {devices}"
