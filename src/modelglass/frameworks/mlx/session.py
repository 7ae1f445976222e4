"""One observed run of an MLX model: traced on substitutes for its arrays, so that nothing is evaluated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager
from contextvars import copy_context
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from mlx import nn

from modelglass.frameworks.mlx.graph.graph import trace
from modelglass.frameworks.mlx.inputs.reproduce import reproducer as reproducer
from modelglass.frameworks.mlx.inputs.resize import dimensions, resize_inputs, resize_inputs_at
from modelglass.frameworks.mlx.inputs.shapes import array as array, make_inputs, picture as picture
from modelglass.frameworks.mlx.outcome import Outcome, measure_memory, read_calls, read_graph
from modelglass.frameworks.mlx.process import (
    keep_process,
    one_at_a_time,
    seeded as seeded,
    untouched_process as untouched_process,
)
from modelglass.frameworks.mlx.structure import modules as structure
from modelglass.frameworks.mlx.structure.values import values as read_values
from modelglass.frameworks.mlx.tracing import Tracing, describe_forms
from modelglass.frameworks.mlx.training.step import check_request
from modelglass.frameworks.shared.request import Detail, Inputs, Request
from modelglass.frameworks.state.builtin_objects import note_moved
from modelglass.gc_pause import pause_gc, paused_gc
from modelglass.interrupts import hold_signals
from modelglass.report import Lifetimes, Model, Observation, Run
from modelglass.report.values import Values
from modelglass.undo import UndoLog, run_and_undo

if TYPE_CHECKING:
    from modelglass.frameworks.protocol import Trials

FRAMEWORK = "mlx"


def accepts(native: object) -> bool:
    """Whether this is something MLX can run as a model."""
    return isinstance(native, nn.Module)


def trials(native: Any) -> Trials | None:
    """How inputs are tried, by traced runs."""
    from modelglass.frameworks.mlx.inputs import trials

    return trials


def observe(native: nn.Module, request: Request) -> Observation:
    """Read the structure; run the model once when there are inputs and the request wants a run."""
    with paused_gc():
        return _observe(native, request)


def _observe(native: nn.Module, request: Request) -> Observation:
    model, notes = structure.read(native)
    if not request.runs:
        return Observation(model=model, run=Run(mode="none"), notes=notes)
    inputs = _inputs(native, request)
    outcome = _run(native, inputs, request, model)
    return Observation(
        model=replace(model, calls=outcome.calls, ops=outcome.ops),
        run=outcome.run,
        notes=(*notes, *outcome.notes),
        lifetimes=outcome.lifetimes,
        dataflow=outcome.dataflow,
        optimizer=outcome.optimizer,
        operators_unknown=outcome.operators_unknown,
        config=_config_of(native),
        cache_dtype=_cache_dtype(model),
    )


def run_shortened(native: nn.Module, request: Request, place: Any) -> Lifetimes | None:
    """None: a run costs so little that equal blocks are not worked out from few of them."""
    return None


def run_resized(native: nn.Module, request: Request, sizes: Mapping[tuple[int, int], int]) -> Observation:
    """What a forward pass shows with other sizes of the inputs; a failure is also a result.

    `sizes` are by input, in the order of `Run.inputs`, and dimension. Memory and cost are not looked at.
    """
    inputs = resize_inputs_at(_inputs(native, request), sizes)
    asked = replace(request, mode="fake", train=False, optimizer=None, calibrate=False, detail=Detail.FLOW)
    outcome = _run(native, inputs, asked, Model(name=type(native).__name__, source="mlx"))
    model = Model(name=type(native).__name__, source="mlx", calls=outcome.calls, ops=outcome.ops)
    return Observation(model=model, run=outcome.run, dataflow=outcome.dataflow)


def sizes(native: nn.Module, request: Request) -> tuple[int | None, int | None]:
    """The batch size and the sequence length that the inputs show, None for what they do not."""
    return dimensions(_inputs(native, request), request.axes)


def values(native: nn.Module) -> Mapping[str, Values | str]:
    """How to read the values of each array by name, or a few words on why that cannot be."""
    return read_values(native)


def training_mode(native: nn.Module) -> AbstractContextManager[None]:
    """The model in training mode inside; afterwards each module is in the mode it was in."""
    return structure.in_training(native)


def non_persistent_names(native: nn.Module) -> frozenset[str]:
    """The names of arrays that a checkpoint of the model does not have, by design."""
    return structure.find_non_persistent(native)


def _inputs(native: nn.Module, request: Request) -> Inputs:
    """The inputs, given or made from specs, with the batch size and sequence length that are asked for."""
    given = request.inputs
    inputs = given if isinstance(given, Inputs) else make_inputs(native, given or ())
    wanted = request.what_if.batch_size, request.what_if.seq_len
    return inputs if wanted == (None, None) else resize_inputs(inputs, *wanted, request.axes)


def _run(native: nn.Module, inputs: Inputs, request: Request, model: Model) -> Outcome:
    check_request(request)
    return run_and_undo(partial(_run_holding_signals, native, inputs, request, model))


def _run_holding_signals(
    native: nn.Module, inputs: Inputs, request: Request, model: Model, log: UndoLog
) -> Outcome:
    """What a run shows, while interruptions wait for moments at which they do no damage."""
    hold_signals(log)
    # What the run sets in variables of its context stays in a context of its own.
    outcome: Outcome = copy_context().run(run_and_undo, partial(_run_in, native, inputs, request, model))
    return outcome


def _run_in(native: nn.Module, inputs: Inputs, request: Request, model: Model, log: UndoLog) -> Outcome:
    log.hold(one_at_a_time)
    keep_process(log)
    pause_gc(log)
    tracing = Tracing(native, inputs, request)
    graph = trace(tracing.trace, tracing.examples())
    if _is_changed_by_instruments(tracing):
        tracing.is_watched = False
        graph = trace(tracing.trace, tracing.examples())
    if graph.unexported is not None and not request.train:  # gradients need the whole in one piece
        graph = tracing.trace_split()
    if tracing.needs_values:
        tracing.run_untraced()
        outcome = read_calls(tracing, model)
    else:
        outcome = read_graph(tracing, graph, model)
    if request.mode == "real":
        outcome = measure_memory(tracing, outcome, model)
    return replace(outcome, notes=(*outcome.notes, *note_moved(tracing.witness)))


def _is_changed_by_instruments(tracing: Tracing) -> bool:
    """Whether the model gives something else when nobody watches it.

    It is called once more, lazily, to find out: where it failed, and where its code looks at classes.
    """
    request = tracing.request
    if (
        tracing.needs_values
        or request.train
        or request.detail is Detail.FLOW
        or request.what_if.weights is not None
    ):
        return False
    if tracing.error is None and not tracing.looks_at_classes():
        return False
    plain = tracing.unwatched_outputs()
    return plain is not None and (tracing.error is not None or plain != describe_forms(tracing.returned))


def _config_of(native: nn.Module) -> Mapping[str, Any] | None:
    """The configuration of a model: most language models keep the settings they were built from."""
    for key in ("args", "config"):
        kept = vars(native).get(key, native.get(key))
        if is_dataclass(kept) and not isinstance(kept, type):
            return {item.name: getattr(kept, item.name, None) for item in fields(kept)}
        if isinstance(kept, Mapping):
            return kept
    return None


def _cache_dtype(model: Model) -> str | None:
    """The type that most weights compute in, which keys and values also have; None where no weight does."""
    numels: Counter[str] = Counter()
    for tensor in model.tensors:
        if tensor.dtype in ("float16", "bfloat16", "float32"):
            numels[tensor.dtype] += tensor.numel or 0
    return max(numels, key=lambda name: numels[name]) if numels else None
