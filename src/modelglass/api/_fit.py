"""Whether a model fits a device, and what would make it fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from modelglass.analyses.analyse import analyse
from modelglass.api._axes import axes_of
from modelglass.api._inspect import request_for, require_complete
from modelglass.api._memory import unknown_memory
from modelglass.api._models import BuiltModel, with_model
from modelglass.errors import UsageError
from modelglass.options import BuildOptions, Progress, RunOptions, as_needed
from modelglass.targets import resolve

if TYPE_CHECKING:
    from modelglass.analyses.fit.planner import Planner
    from modelglass.frameworks.protocol import Adapter
    from modelglass.frameworks.shared.request import Request
    from modelglass.report import Fit, Lifetimes, Model, Observation, WhatIf

# What a step with another optimizer would take is looked at in the same run.
OTHER_OPTIMIZERS = ("sgd", "adamw", "adam8bit")


def fit(
    target: Any,
    inputs: Any = None,
    *,
    device_memory: int | str | None = None,
    input_shape: Sequence[Any] | None = None,
    batch_size: int = 1,
    dtype: Any = None,
    device: Any = None,
    train: bool = False,
    optimizer: Any = "adamw",
    loss: Callable[[Any], Any] | None = None,
    calibrate: bool = False,
    what_if: WhatIf | None = None,
    options: bool = True,
    builder: Any = None,
    model_key: str | None = None,
    trust: bool = False,
    progress: Progress | None = None,
    device_nbytes: int | None = None,
) -> Fit:
    """Whether a pass or, with `train=True`, a training step fits into the memory of a device.

    `device_memory` is in bytes, or a text such as "24GiB" (`device_nbytes` is its earlier name). The answer
    has the largest batch and sequence that fit, found by running on fake tensors, and changes that would
    make it fit. `what_if` is a change that the whole answer assumes. The target may be a configuration, as
    for `inspect`.

    >>> import torch
    >>> found = fit(torch.nn.Linear(1024, 1024), torch.ones(1, 1024), device_memory="8MiB")
    >>> found.fits, found.largest_batch
    (True, 511)
    """
    nbytes = _device_nbytes(device_memory, device_nbytes)
    run = RunOptions(
        inputs=as_needed(inputs) if input_shape is None else inputs,
        input_shape=input_shape,
        batch_size=batch_size,
        dtype=dtype,
        device=device,
        train=train,
        optimizer=optimizer if train else None,
        loss=loss,
        calibrate=calibrate,
        what_if=what_if,
    )
    build = BuildOptions(builder=builder, model_key=model_key, trust=trust)
    runnable = resolve(target, build, run, runs=True).to_run()

    def look(built: BuiltModel) -> Fit:
        return _fit_model(built, run, nbytes, options=options, progress=progress)

    return with_model(runnable, run, look, progress=progress)


def _fit_model(
    built: BuiltModel, run: RunOptions, device_nbytes: int, *, options: bool, progress: Progress | None
) -> Fit:
    from modelglass.analyses.notes import memory_notes
    from modelglass.frameworks.shared.request import Detail
    from modelglass.report import WhatIf

    base = replace(run.what_if or WhatIf(), optimizer=None)
    with built.training(run) as step:
        request = replace(
            request_for(built, replace(run, what_if=None), step),
            other_optimizers=OTHER_OPTIMIZERS if step is not None else (),
            progress=progress,
            detail=Detail.MEMORY,
        )
        first = _complete(built.observe(request))
        _check_optimizer_ran(first)
        axes, notes = axes_of(built, request, first)
        planner = _planner(built, replace(request, axes=axes), first)
        fit = planner.fit(device_nbytes, base=base, options=options)
    more = (*notes, *memory_notes(_lifetimes(first)), *fit.notes)
    return replace(fit, notes=(*built.notes, *first.notes, *more))


def _planner(built: BuiltModel, request: Request, first: Observation) -> Planner:
    from modelglass.analyses.fit.planner import Planner

    batch, seq_len = built.adapter.sizes(built.native, request)

    def look() -> Model:
        from modelglass.analyses.cost.cost import with_macs
        from modelglass.frameworks.shared.request import Detail

        whole = replace(request, train=False, optimizer=None, detail=Detail.FULL, progress=None)
        return with_macs(built.adapter.observe(built.native, whole).model)

    return Planner(
        _observer(built.adapter, built.native, request, first),
        first.model,
        look=look,
        context=context_of(first),
        train=request.train,
        optimizer=first.optimizer,
        batch_size=batch,
        seq_len=seq_len,
        progress=request.progress,
    )


def context_of(observation: Observation) -> int | None:
    """How many positions the model is made for, if its configuration specifies it."""
    from modelglass.analyses.architecture import architecture

    if observation.config is None:
        return None
    return architecture(observation.config, observation.model).context_length


def _observer(
    adapter: Adapter, native: Any, request: Request, first: Observation
) -> Callable[[WhatIf], Lifetimes]:
    """How to run with a change; `first` is the run without one.

    Equal blocks are worked out from few of them where that gives all that the whole run gave.
    """
    from modelglass.analyses.memory.extrapolation import extrapolate

    folds = adapter.run_shortened(native, request, extrapolate) == first.lifetimes

    def observe(changed: WhatIf) -> Lifetimes:
        if changed == request.what_if:
            return _lifetimes(first)
        asked = replace(request, what_if=changed)
        found: Lifetimes | None = adapter.run_shortened(native, asked, extrapolate) if folds else None
        return found or _lifetimes(_observe(adapter, native, asked))

    return observe


def _device_nbytes(memory: int | str | None, earlier_name: int | None) -> int:
    """The memory of the device, by either name of the option."""
    from modelglass.report.sizes import device_nbytes

    if memory is not None and earlier_name is not None:
        raise UsageError("device_memory and device_nbytes are the same option", hint="give device_memory")
    if memory is not None:
        return device_nbytes(memory)
    if earlier_name is not None:
        return device_nbytes(earlier_name, "device_nbytes")
    raise UsageError("fit needs device_memory", hint='write device_memory="24GiB"')


def _check_optimizer_ran(observation: Observation) -> None:
    """That the step of the optimizer is there, or why it is not."""
    if observation.optimizer is not None and observation.optimizer not in _lifetimes(observation).tails:
        codes = ("optimizer-failed", "nothing-trains")
        reasons = [note.text for note in observation.notes if note.code in codes]
        raise UsageError(
            reasons[0] if reasons else f"{observation.optimizer} took no step",
            hint="choose another optimizer, or none: forward and backward alone",
        )


def _observe(adapter: Adapter, native: Any, request: Request) -> Observation:
    """A run that reached its end."""
    return _complete(adapter.observe(native, request))


def _complete(observation: Observation) -> Observation:
    if observation.run.failure is not None:
        # Operators were not looked at.
        require_complete(analyse(replace(observation, operators_unknown=True)))
    return observation


def _lifetimes(observation: Observation) -> Lifetimes:
    if observation.lifetimes is None:
        raise unknown_memory(observation.notes)
    return observation.lifetimes
