"""What a run takes in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from modelglass.api._inspect import inspect_run, require_complete
from modelglass.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from modelglass.report import Memory, Note


def memory(target: Any, inputs: Any = None, **options: Any) -> Memory:
    """How much memory a pass or, with `train=True`, a training step takes: its peak, what is held, and when.

    `target` is a report, or anything that `inspect` takes, with its inputs and options; without inputs, they
    are made from the model's own configuration.

    >>> import torch
    >>> memory(torch.nn.Linear(1024, 1024), torch.ones(1, 1024)).peak_nbytes
    4206592
    """
    report = require_complete(inspect_run(target, inputs, **options))
    if report.memory is None:
        raise unknown_memory(report.notes)
    return report.memory


def unknown_memory(notes: Iterable[Note]) -> UsageError:
    """Why the memory of a run is not known."""
    from modelglass.report.memory import UNKNOWN_MEMORY

    reasons = [f": {note.text}" for note in notes if note.code in UNKNOWN_MEMORY]
    return UsageError(
        f"the memory of this run cannot be worked out{''.join(reasons[:1])}",
        hint='measure it: mg.inspect(model, inputs, run="real")',
    )
