"""What a run takes in memory."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from modelglass.api._inspect import inspect_run, require_complete, resolve_before
from modelglass.errors import UsageError
from modelglass.options import BuildOptions, RunOptions
from modelglass.report.snapshot import MemorySnapshot
from modelglass.targets import as_recording

if TYPE_CHECKING:
    from collections.abc import Iterable

    from modelglass.report import Memory, Note, Report


def memory(target: Any, inputs: Any = None, **options: Any) -> Memory | MemorySnapshot:
    """How much memory a pass or, with `train=True`, a training step takes: its peak, what is held, and when.

    `target` is a report, or anything that `inspect` takes, with its inputs and options; without inputs, they
    are made from the model's own configuration. Of a file that `torch.cuda.memory._dump_snapshot` wrote, what
    was recorded.

    >>> import torch
    >>> memory(torch.nn.Linear(1024, 1024), torch.ones(1, 1024)).peak_nbytes
    4206592
    """
    found = inspect_memory(target, inputs, **options)
    if isinstance(found, MemorySnapshot):
        return found
    report = require_complete(found)
    if report.memory is None:
        raise unknown_memory(report.notes)
    return report.memory


def inspect_memory(target: Any, inputs: Any = None, **options: Any) -> Report | MemorySnapshot:
    """The report of a run; of a recording of GPU memory, what it shows."""
    found = resolve_before(target, options, runs=True)
    recording = as_recording(found)
    if recording is None:
        return inspect_run(found, inputs, **options)
    build, run = (
        {option.name for option in fields(kind) if option.init} for kind in (BuildOptions, RunOptions)
    )
    recording.check(
        BuildOptions(**{name: options[name] for name in options.keys() & build}),
        RunOptions(inputs=inputs, **{name: options[name] for name in options.keys() & run}),
    )
    return recording.snapshot()


def unknown_memory(notes: Iterable[Note]) -> UsageError:
    """Why the memory of a run is not known."""
    from modelglass.report.memory import UNKNOWN_MEMORY

    reasons = [f": {note.text}" for note in notes if note.code in UNKNOWN_MEMORY]
    return UsageError(
        f"the memory of this run cannot be worked out{''.join(reasons[:1])}",
        hint='measure it: mg.inspect(model, inputs, run="real")',
    )
