"""A pass or training step that MLX evaluates for real, and the memory that its own counters report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_unflatten

from modelglass.frameworks.mlx.describe import dtype_name
from modelglass.frameworks.mlx.memory.lifetimes import Role
from modelglass.frameworks.mlx.substitution import find_arrays, make_substitution
from modelglass.frameworks.mlx.training.optimizers import Factory
from modelglass.frameworks.mlx.training.step import find_trainable, name_arrays, take_step
from modelglass.frameworks.shared.foreign import foreign_errors
from modelglass.frameworks.shared.request import Inputs, Request
from modelglass.frameworks.state.substitution import substitute_tensors
from modelglass.report import Lifetimes, Note, OptimizerStep, Step, Storage
from modelglass.report.lifetimes import Category, MemoryPhase
from modelglass.undo import UndoLog, run_and_undo

_OP = "mx.eval"


@dataclass(frozen=True)
class Measurement:
    """What a real run took. `error` is what ended it, and then there are no lifetimes."""

    lifetimes: Lifetimes | None
    notes: tuple[Note, ...] = ()
    error: BaseException | None = None


def measure(
    native: nn.Module,
    inputs: Inputs,
    request: Request,
    roles: Mapping[int, Role],
    factories: Mapping[str, Factory],
) -> Measurement:
    """Evaluate the model, or a training step of it, on its own arrays; `roles` are what they are, by id.

    The model's arrays and its inputs are evaluated first, so that making them does not count. The step works
    on copies of what trains. The model is as before afterwards; memory that MLX kept for later use is given
    back. MLX's peak counter is not reset as long as it rises by the run; when it does not, the run is
    repeated from zero, and a note is added. Call it where random states are kept.
    """
    roots = native, inputs.args, dict(inputs.kwargs)
    given = list(find_arrays(*roots))
    asked = dict(list(factories.items())[:1])  # not what others would take
    notes: tuple[Note, ...] = ()
    with foreign_errors() as found:  # whatever the user's call raises is an answer
        mx.eval(given)
        mx.synchronize()
        before = mx.get_peak_memory()
        taken = _run(roots, request, asked)
        if taken.peak <= before:  # it was higher before: this run's own peak is not known
            mx.reset_peak_memory()
            taken = _run(roots, request, asked)
            notes = (_reset_note(before),)
    if found.error is not None:
        return Measurement(None, error=found.error)
    base = [_initial_storage(array, roles[id(array)]) for array in given]
    return Measurement(_lifetimes(base, taken, next(iter(asked), "")), notes)


@dataclass(frozen=True)
class _PeakMemory:
    """The counter's peak, and bytes of it: there before, and of what is there afterwards."""

    peak: int
    active: int
    outputs: int = 0
    gradients: Mapping[str, int] | None = None  # None: no training
    state: Mapping[str, int] | None = None


def _run(roots: tuple[Any, ...], request: Request, factories: Mapping[str, Factory]) -> _PeakMemory:
    return run_and_undo(lambda log: _run_in(log, roots, request, factories))


def _run_in(
    log: UndoLog, roots: tuple[Any, ...], request: Request, factories: Mapping[str, Factory]
) -> _PeakMemory:
    # The substitutes are copies, which share values: a model may write into its inputs.
    (native, args, kwargs), _ = substitute_tensors(log, make_substitution(copy), *roots)
    _keep_no_memory(log)

    def call() -> Any:
        return native(*args, **kwargs)

    if not request.train:
        return _run_pass(call, native, args, kwargs)
    return _run_step(native, call, request.loss, factories)


def _run_pass(call: Callable[[], Any], *around: Any) -> _PeakMemory:
    """One pass: what it returns is evaluated, and what it leaves in the model and in what it was given."""
    active = mx.get_active_memory()
    outputs = list(find_arrays(call()))  # in whatever object they are
    mx.eval(outputs, list(find_arrays(*around)))
    return _PeakMemory(_peak(active), active, outputs=_nbytes(outputs))


def _run_step(
    native: nn.Module,
    call: Callable[[], Any],
    loss: Callable[[Any], Any] | None,
    factories: Mapping[str, Factory],
) -> _PeakMemory:
    """One step as a training loop has it: gradients are held, new weights take the place of old ones."""
    _copy_trainable(native)
    active = mx.get_active_memory()
    step = take_step(native, call, loss, factories)
    step.output = None
    state: list[tuple[str, mx.array]] = []
    for each in step.taken.values():
        nn.Module.update(native, tree_unflatten(list(each.parameters.items())), strict=False)
        state += each.state
    mx.eval(list(step.arrays()))
    return _PeakMemory(
        _peak(active),
        active,
        gradients=_sizes(step.gradients.items()),
        state=_sizes(state) if step.taken else None,
    )


def _peak(active: int) -> int:
    """The counter's; one that was reset stays at zero until something is allocated."""
    mx.synchronize()
    return max(mx.get_peak_memory(), active)


def _copy_trainable(native: nn.Module) -> None:
    """Have the model hold copies of what trains, so that the old weights can go as new ones come."""
    copies = {id(array): mx.array(array) for array in find_trainable(native).values()}
    places = [(name, copies[id(a)]) for name, a in name_arrays(native.parameters()) if id(a) in copies]
    nn.Module.update(native, tree_unflatten(places), strict=False)
    mx.eval(list(copies.values()))
    mx.synchronize()


def _keep_no_memory(log: UndoLog) -> None:
    """Freed memory goes back to the system: what MLX keeps to use again may be larger than need be."""
    before: list[int] = []
    log.record(lambda: mx.set_cache_limit(*before) if before else None)
    before.extend(map(mx.set_cache_limit, (0,)))  # one call of Python's own, which nothing interrupts


def _initial_storage(array: mx.array, role: Role) -> Storage:
    return Storage(
        nbytes=array.nbytes,
        category=role.category,
        shape=tuple(array.shape),
        dtype=dtype_name(array.dtype),
        name=role.name,
    )


def _lifetimes(base: list[Storage], taken: _PeakMemory, optimizer: str) -> Lifetimes:
    """All of the run as one step: the counter does not show what happened in between."""
    phase: MemoryPhase = "forward" if taken.gradients is None else "backward"
    made = [*_build_storages("gradients", taken.gradients), *_build_storages("optimizer_state", taken.state)]
    rest = taken.peak - taken.active - sum(each.nbytes for each in made)
    outputs = min(taken.outputs, max(rest, 0))
    made += [
        Storage(nbytes=max(rest, 0) - outputs, category="temporaries", born=0, died=0),
        Storage(nbytes=outputs, category="temporaries", born=0, name="outputs"),
    ]
    made = [each for each in made if each.nbytes]
    if taken.state is None:
        step = Step(op=_OP, module="", phase=phase)
        forward = 1 if taken.gradients is None else 0
        return _mark_measured((step,), (*base, *made), forward)
    tail = OptimizerStep(steps=(Step(op=_OP, module="", phase="optimizer"),), storages=tuple(made))
    return _mark_measured((), tuple(base), 0, {optimizer: tail})


def _mark_measured(
    steps: tuple[Step, ...],
    storages: tuple[Storage, ...],
    forward: int,
    tails: Mapping[str, OptimizerStep] | None = None,
) -> Lifetimes:
    return Lifetimes(
        steps=steps,
        storages=storages,
        forward_steps=forward,
        tails=tails or {},
        tells_saved=False,
        calibrated=True,
    )


def _build_storages(category: Category, sizes: Mapping[str, int] | None) -> Iterator[Storage]:
    for name, nbytes in (sizes or {}).items():
        yield Storage(nbytes=nbytes, category=category, born=0, name=name)


def _sizes(named: Any) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for name, array in named:
        sizes[name] = sizes.get(name, 0) + array.nbytes
    return sizes


def _nbytes(arrays: list[mx.array]) -> int:
    return sum(array.nbytes for array in {id(array): array for array in arrays}.values())


def _reset_note(before: int) -> Note:
    return Note(
        code="peak-counter-reset",
        text="MLX's peak counter was reset to measure the run; mx.get_peak_memory() gave "
        f"{before:,} bytes before",
    )
