"""One observed run of a torch model: fake when possible, real on copies when not, no trace either way."""

from __future__ import annotations

import logging
import sys
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from modelglass.errors import InputsError
from modelglass.frameworks.shared.describe import join_path
from modelglass.frameworks.shared.request import Detail, Inputs, Request
from modelglass.frameworks.shared.training_notes import training_notes
from modelglass.frameworks.state.builtin_objects import Witness, note_moved
from modelglass.frameworks.state.substitution import substitute_tensors
from modelglass.frameworks.torch.describe import Describer, memory_of, tensors_in, unobserved
from modelglass.frameworks.torch.fake.accepted_types import is_refusal
from modelglass.frameworks.torch.fake.class_checks import ClassChecks
from modelglass.frameworks.torch.fake.conversions import convert_by_replacing
from modelglass.frameworks.torch.fake.known_values import expose_known_values
from modelglass.frameworks.torch.fake.left_behind import find_left_behind
from modelglass.frameworks.torch.fake.mode import FakeMode
from modelglass.frameworks.torch.fake.tensors import CannotFakeError, DtypeCast, FakeTensors, TensorCopies
from modelglass.frameworks.torch.inputs.reproduce import reproducer as reproducer
from modelglass.frameworks.torch.inputs.resize import dimensions, resize_inputs, resize_inputs_at
from modelglass.frameworks.torch.inputs.shapes import (
    array as array,
    device_of,
    find_dtype,
    make_inputs,
    picture as picture,
)
from modelglass.frameworks.torch.memory.cache import cache_dtype, config_of, find_cache
from modelglass.frameworks.torch.memory.calibration import Probe
from modelglass.frameworks.torch.memory.tracker import MemoryTracker, find_held_tensors, named_tensors
from modelglass.frameworks.torch.observing.levels import refuses_operator_level, watching, watching_kernels
from modelglass.frameworks.torch.observing.recorder import NEEDS_VALUES, Recorder
from modelglass.frameworks.torch.observing.thread_state import keep_thread_state
from modelglass.frameworks.torch.observing.unseen_work import UnseenWork
from modelglass.frameworks.torch.privates import (
    NEEDS_GRADIENTS,
    NO_SAVING_HOOKS,
    FakeTensor,
    FakeTensorMode,
    has_fake_tensors,
    is_meta_by_default,
    optimized_execution,
    version_notes,
)
from modelglass.frameworks.torch.process import (
    keep_process,
    one_at_a_time,
    seeded as seeded,
    untouched_process as untouched_process,
    use_own_modes,
)
from modelglass.frameworks.torch.structure import modules as structure, repeated_blocks
from modelglass.frameworks.torch.structure.repeated_blocks import Place, find_repeated
from modelglass.frameworks.torch.structure.values import values as read_values
from modelglass.frameworks.torch.substitution import make_substitution
from modelglass.frameworks.torch.training.optimizers import make_factory
from modelglass.frameworks.torch.training.passes import (
    Pass,
    checkpoint_modules,
    track_random_states,
    track_resizing,
)
from modelglass.gc_pause import pause_gc, paused_gc
from modelglass.interrupts import hold_signals
from modelglass.report import Call, Dataflow, KvCache, Lifetimes, Model, Note, Observation, Op, Run, Value
from modelglass.report.values import Values
from modelglass.undo import UndoLog, drop_tracebacks, forget_frames, raise_interruption, run_and_undo

if TYPE_CHECKING:
    from modelglass.frameworks.protocol import Trials

FRAMEWORK = "torch"


def accepts(native: object) -> bool:
    """Whether this is something torch can run as a model."""
    return isinstance(native, (nn.Module, torch.export.ExportedProgram))


@contextmanager
def _with_real_default_device() -> Iterator[None]:
    """What is made inside without a word about its device has values, also where the user's would not."""
    with torch.device("cpu") if is_meta_by_default() else nullcontext():
        yield


def trials(native: Any) -> Trials | None:
    """How inputs are tried; exported programs say themselves what they take."""
    from modelglass.frameworks.torch.inputs import trials

    return trials if isinstance(native, nn.Module) else None


def observe(native: Any, request: Request) -> Observation:
    """Read the structure; run the model once when there are inputs and the request wants a run."""
    with _with_real_default_device(), paused_gc():
        return _observe(_module(native), request)


def _observe(native: Any, request: Request) -> Observation:
    model, notes = structure.read(native)
    notes = (*notes, *version_notes())
    if not request.runs:
        return Observation(model=model, run=Run(mode="none"), notes=notes)
    optimizer = None if request.optimizer is None else make_factory(request.optimizer)[0]
    outcome, more = _attempt(native, request)
    model = replace(model, calls=outcome.calls, ops=outcome.ops)
    return Observation(
        model=model,
        run=outcome.run,
        notes=(*notes, *more),
        lifetimes=outcome.lifetimes,
        dataflow=outcome.dataflow,
        optimizer=optimizer,
        kv_cache=outcome.kv_cache,
        config=config_of(native),
        cache_dtype=cache_dtype(native),
    )


@_with_real_default_device()
def run_shortened(native: Any, request: Request, place: Place) -> Lifetimes | None:
    """What `observe` would find of memory, from short runs with few of the model's equal blocks.

    `place` works it out for all of them. None: there are no equal blocks, or short runs do not determine it.
    """
    native = _module(native)
    if request.mode != "fake" or request.calibrate:
        return None
    lists = find_repeated(native)
    if not lists or not all(blocks.are_alike_to(request.what_if.recompute) for blocks in lists):
        return None
    return repeated_blocks.run_with_few(lists, lambda: _run(native, request, fake=True).lifetimes, place)


@_with_real_default_device()
def run_resized(native: Any, request: Request, sizes: Mapping[tuple[int, int], int]) -> Observation:
    """What a fake forward pass shows with other sizes of the inputs; a failure is also a result.

    `sizes` are by input, in the order of `Run.inputs`, and dimension. Memory and cost are not looked at.
    """
    native = _module(native)
    inputs = resize_inputs_at(_sized_inputs(native, request, fake=True), sizes)
    asked = replace(request, mode="fake", train=False, optimizer=None, calibrate=False, detail=Detail.FLOW)
    outcome = _run_with(native, inputs, asked, _RunMode(fake=True, gradients=request.train))
    model = Model(name=type(native).__name__, source="torch", calls=outcome.calls, ops=outcome.ops)
    return Observation(model=model, run=outcome.run, dataflow=outcome.dataflow)


@_with_real_default_device()
def run_fake(native: Any, request: Request, *, in_copy: bool) -> tuple[int, Run, bool]:
    """How many operators a fake forward pass runs, what it showed, and whether it stopped for want of values.

    In a copy of the process nobody looks for what the run left behind.
    """
    native = _module(native)
    inputs = _sized_inputs(native, request, fake=True)
    outcome = _run_with(native, inputs, request, _RunMode(fake=True, gradients=False, in_copy=in_copy))
    return len(outcome.ops), outcome.run, isinstance(outcome.error, NEEDS_VALUES)


def values(native: Any) -> Mapping[str, Values | str]:
    """How to read the values of each tensor by name, or a few words on why that cannot be."""
    return read_values(_module(native))


def training_mode(native: Any) -> AbstractContextManager[None]:
    """The model in training mode inside; afterwards each module is in the mode it was in."""
    return structure.in_training(native) if isinstance(native, nn.Module) else nullcontext()


def non_persistent_names(native: Any) -> frozenset[str]:
    """The names of tensors that a checkpoint of the model does not have, by design."""
    return structure.find_non_persistent(_module(native))


@_with_real_default_device()
def sizes(native: Any, request: Request) -> tuple[int | None, int | None]:
    """The batch size and the sequence length that the inputs show, None for what they do not."""
    return dimensions(_sized_inputs(_module(native), request, fake=True), request.axes)


def _module(native: Any) -> nn.Module:
    return native.module() if isinstance(native, torch.export.ExportedProgram) else native


@dataclass(frozen=True)
class _Outcome:
    """What one run, complete or cut short, showed."""

    calls: tuple[Call, ...]
    ops: tuple[Op, ...]
    run: Run
    error: BaseException | None = None
    trained: bool = True
    lifetimes: Lifetimes | None = None
    dataflow: Dataflow | None = None
    optimizer_problems: Mapping[str, str] = field(default_factory=dict)  # by the optimizer's name
    kv_cache: KvCache | None = None
    guessed: str | None = None  # on what the path may depend, which is another thing in a real run
    notes: tuple[Note, ...] = ()


@dataclass(frozen=True)
class _RunMode:
    """One way to run: on fake tensors or copies, watching operators or functions, with gradients or not."""

    fake: bool
    gradients: bool
    functions: bool = False
    saving: bool = True  # autograd reports what it saves, which function transforms do not allow
    in_copy: bool = False  # of the process, which ends before anybody could meet what is left behind


def _attempt(native: nn.Module, request: Request) -> tuple[_Outcome, tuple[Note, ...]]:
    """A fake run, then a real one where values decide."""
    notes: list[Note] = []
    fake = request.mode == "fake"
    valueless = _valueless(native, request)
    if not fake and valueless:
        raise InputsError(
            "a real run needs values, and this model or its inputs have none (meta or fake tensors)",
            hint='use run="fake", or build the model with real weights',
        )
    outcome = _run(native, request, fake=fake)
    if fake and outcome.error is not None and not valueless:
        reason = _reason(outcome)
        outcome = _run(native, request, fake=False)
        if outcome.error is None:
            notes.append(_note_real_run(reason))
    elif fake and outcome.guessed is not None:
        if valueless:
            notes.append(_may_differ(outcome.guessed))
        else:
            notes.append(_note_real_run(outcome.guessed))
            outcome = _run(native, request, fake=False)
    elif fake and not valueless and _find_step_problem(outcome, request) is not None:
        real = _run(native, request, fake=False)
        if real.error is None and _find_step_problem(real, request) is None:
            notes.append(_note_real_run(str(_find_step_problem(outcome, request))))
            outcome = real
    notes.extend(_notes(native, outcome, request))
    return outcome, tuple(notes)


def _find_step_problem(outcome: _Outcome, request: Request) -> str | None:
    """Why the optimizer that is asked for took no step; None: it did, or no optimizer was given."""
    if request.optimizer is None:
        return None
    return outcome.optimizer_problems.get(make_factory(request.optimizer)[0])


def _note_real_run(reason: str) -> Note:
    return Note(code="real-run", text=f"{reason}, so the model ran for real, on copies of its tensors")


def _may_differ(reason: str) -> Note:
    text = f"{reason}, which is another one without values: with values it may take another path"
    return Note(code="path-unsure", severity="warning", text=text)


def _reason(outcome: _Outcome) -> str:
    """Why fake tensors would not do, in a user's words."""
    failure = outcome.run.failure
    where = f" in {failure.module}" if failure is not None and failure.module else ""
    if isinstance(outcome.error, NEEDS_VALUES):
        operator = failure.op if failure is not None and failure.op else "an operator"
        return f"{operator}{where} depends on values, which fake tensors do not have"
    return f"fake tensors cannot run this model ({_first_line(outcome.error)}{where})"


def _run(native: nn.Module, request: Request, *, fake: bool) -> _Outcome:
    inputs = _sized_inputs(native, request, fake=fake)
    return _run_with(native, inputs, request, _RunMode(fake=fake, gradients=request.train))


def _run_with(native: nn.Module, inputs: Inputs, request: Request, how: _RunMode) -> _Outcome:
    """A run in the way that is asked for, or in the next one that the model allows."""
    outcome = _run_once(native, inputs, request, how)
    if refuses_operator_level(outcome.error):
        how = replace(how, functions=True)
        outcome = _run_once(native, inputs, request, how)
    if NEEDS_GRADIENTS.is_of(outcome.error) and not how.gradients:
        # The model differentiates on its own, as force fields do.
        outcome = _run_once(native, inputs, request, replace(how, gradients=True))
    if NO_SAVING_HOOKS.is_of(outcome.error):
        outcome = _run_once(native, inputs, request, replace(how, saving=False))
    return outcome


def _sized_inputs(native: nn.Module, request: Request, *, fake: bool) -> Inputs:
    """The inputs, given or made from specs, with the batch size and sequence length that are asked for."""
    inputs = request.inputs
    if not isinstance(inputs, Inputs):
        inputs = make_inputs(native, inputs or (), request.device, fake=fake)
    sizes = request.what_if.batch_size, request.what_if.seq_len
    return inputs if sizes == (None, None) else resize_inputs(inputs, *sizes, request.axes)


def _run_once(native: nn.Module, inputs: Inputs, request: Request, how: _RunMode) -> _Outcome:
    return run_and_undo(partial(_run_holding_signals, _Session(request, how), native, inputs))


def _run_holding_signals(session: _Session, native: nn.Module, inputs: Inputs, log: UndoLog) -> _Outcome:
    """What a run shows, while interruptions wait for moments at which they do no damage."""
    hold_signals(log)
    try:
        # What the run sets in variables of its context stays in a context of its own.
        copy_context().run(run_and_undo, partial(_run_alone, session, native, inputs))
    except CannotFakeError as error:  # its frames are forgotten
        session.error = error
    return session.outcome()


def _run_alone(session: _Session, native: nn.Module, inputs: Inputs, log: UndoLog) -> None:
    """Run the model while no other thread runs one.

    What torch keeps for this thread is set back last, after all that an interruption has left half open.
    """
    log.hold(one_at_a_time)
    keep_thread_state(log)
    run_and_undo(partial(_run_in, session, native, inputs))


def _run_in(session: _Session, native: nn.Module, inputs: Inputs, log: UndoLog) -> None:
    """Run the model in the surroundings that a run needs, all of which the log has undone."""
    request, how = session.request, session.how
    log.enter(unobserved())  # modes of the user's own would count our run as theirs
    use_own_modes(log)
    keep_process(log)
    _hide_logs(log)
    log.record(
        setattr, torch, "manual_seed", torch.manual_seed
    )  # the first fake mode puts another in its place
    if how.fake and not has_fake_tensors:
        raise CannotFakeError("this torch has none")
    mode = FakeMode() if how.fake else None
    if mode is not None:
        session.mode = weakref.ref(mode)
        pause_gc(log)
    if how.gradients:  # copies made in inference mode could not train
        log.enter(torch.inference_mode(False))
    cast = _cast(native, inputs, request)
    substitute = TensorCopies(cast) if mode is None else FakeTensors(mode, cast)
    substitution = make_substitution(substitute, None if mode is None else session.checks)
    replaced, session.witness = substitute_tensors(
        log, substitution, native, inputs.args, dict(inputs.kwargs)
    )
    _set_conditions(log, mode, gradients=how.gradients)
    session.watch(log, *replaced)
    if mode is not None:  # the model may have caught it, and gone another way
        session.error = session.error or mode.reads.unanswered
        session.guessed = mode.reads.guessed


class _Session:
    """One run being observed."""

    def __init__(self, request: Request, how: _RunMode) -> None:
        self.request = self._request = request
        self.how = self._how = how
        self.mode: weakref.ref[FakeMode] | None = None
        self.witness = Witness()
        self._recorder = Recorder(Describer(), request)
        self._tracker = MemoryTracker(self._recorder.place)
        self._given: tuple[Value, ...] = ()
        self._returned: tuple[Value, ...] = ()
        self._pass: Pass | None = None
        self._kv_cache: KvCache | None = None
        self._unseen = UnseenWork()
        self.checks = ClassChecks()
        self.guessed: str | None = None
        self.error: BaseException | None = None

    def watch(self, log: UndoLog, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Take the pass or step that is asked for."""
        request = self._request
        self._recorder = Recorder(Describer(_names_by_storage(model)), request)
        self._tracker = MemoryTracker(
            self._recorder.place,
            Probe(request.progress) if request.calibrate else None,
            saving=request.train and self._how.saving,
            device=device_of(model).type,
        )
        self._tracker.add_base("parameters", named_tensors(model, "_parameters"))
        self._tracker.add_base("buffers", named_tensors(model, "_buffers"))
        self._tracker.add_base("inputs", find_held_tensors(args, kwargs))
        self._given = Describer().arguments(args, kwargs)
        self._recorder.tracker.enter(model, args, kwargs)
        checkpoint_modules(model, request.what_if.recompute)
        for path, module in structure.walk(model):
            self._recorder.wrap(path, module)
        track_random_states(log, self._tracker)
        track_resizing(log, self._tracker)
        self._unseen.notice(log, self._recorder)
        self._pass = Pass(model, request, self._recorder, self._tracker)
        try:
            with self._levels():
                self._pass.take(args, kwargs, self._on_output)
        except (Exception, SystemExit) as error:
            # Whatever the user's forward raises is an answer: it belongs in the report.
            raise_interruption(error)
            forget_frames(error)
            self.error = error
        finally:
            self._recorder.tracker.forget()
        if self._how.fake and self.error is None:
            self.error = self._recorder.needs_values  # the model caught it and went another way

    def _levels(self) -> AbstractContextManager[Any]:
        recorder, tracker = self._recorder, self._tracker
        if self._request.detail is Detail.CALLS:
            return watching_kernels(recorder.on_kernel_alone)
        on_op, on_kernel = recorder.on_op, recorder.on_kernel
        if self._request.detail is Detail.FLOW:
            return watching(on_op, recorder.on_kernel_of_no_operator, functions=self._how.functions)
        if self._request.detail is Detail.MEMORY:
            on_op, on_kernel = recorder.on_op_alone, recorder.on_kernel_alone
        return watching(on_op, partial(tracker.on_kernel, run=on_kernel), functions=self._how.functions)

    def _on_output(self, output: Any) -> None:
        self._returned = Describer().flatten(output)
        self._unseen.look_through_output(output)
        self._kv_cache = find_cache(output)
        self._recorder.tracker.leave(output)

    def outcome(self) -> _Outcome:
        run = Run(
            mode="fake" if self._how.fake else "real",
            train=self._request.train,
            inputs=self._given,
            outputs=self._returned,
            failure=None if self.error is None else self._recorder.failure(self.error),
        )
        recorder = self._recorder
        ended, detail = self.error is None, self._request.detail
        return _Outcome(
            recorder.calls(),
            recorder.ops(),
            run,
            error=self.error,
            lifetimes=self._tracker.lifetimes() if ended and detail.has_memory else None,
            dataflow=recorder.dataflow() if ended and detail.has_dataflow else None,
            trained=self._pass is None or self._pass.trained,
            kv_cache=self._kv_cache,
            optimizer_problems={} if self._pass is None else self._pass.optimizer_problems,
            guessed=self.guessed or self.checks.found,
            notes=self._find_traces(),
        )

    def _find_traces(self) -> tuple[Note, ...]:
        """What the run left behind, now that all is given back."""
        self._pass = None
        drop_tracebacks(self.error)  # our own frames were still at work when it was caught
        if self._how.in_copy:
            return ()
        unchecked = [_find_unchecked(self._recorder.unchecked)] if self._recorder.unchecked else ()
        return (*unchecked, *self._unseen.notes(), *note_moved(self.witness), *find_left_behind(self.mode))


def _find_unchecked(modules: Iterable[str]) -> Note:
    text = "torch refuses a loss that depends on the phase of eigenvectors, which shows in a real step only"
    return Note(code="unchecked-gradient", severity="warning", text=text, where=tuple(modules))


def _hide_logs(log: UndoLog) -> None:
    """torch logs a traceback for each kernel its fake tensors cannot run; we have a better use for it."""
    logger, here = logging.getLogger(FakeTensorMode.__module__), threading.get_ident()

    def is_of_others(record: logging.LogRecord) -> bool:
        return record.thread != here

    log.record(logger.removeFilter, is_of_others)
    logger.addFilter(is_of_others)


def _set_conditions(log: UndoLog, mode: FakeMode | None, *, gradients: bool) -> None:
    """The surroundings of a run: gradients where wanted, compiled parts run as written."""
    if "torch._dynamo" in sys.modules:  # else nothing is compiled, and loading it changes torch
        log.enter(torch.compiler.set_stance("force_eager"))
    # TorchScript would watch the first passes, and run others in another way from then on.
    log.enter(optimized_execution(False))
    torch.set_grad_enabled(gradients)
    if mode is not None:
        expose_known_values(log)
        mode.reads.notice(log)
        convert_by_replacing(log)
        log.enter(mode)


def _cast(native: nn.Module, inputs: Inputs, request: Request) -> DtypeCast:
    """Which tensors run in another type: what `model.to(dtype)` would cast, and the inputs."""
    if request.what_if.weights is None:
        return DtypeCast()
    given = (tensor for _, tensor in find_held_tensors(inputs.args, dict(inputs.kwargs)))
    return DtypeCast(find_dtype(request.what_if.weights), chain(native.parameters(), native.buffers(), given))


def _names_by_storage(model: nn.Module) -> dict[int | None, str]:
    names: dict[int | None, str] = {}
    for path, module in structure.walk(model):
        for key, tensor in chain(module._parameters.items(), module._buffers.items()):
            if tensor is not None and not is_lazy(tensor) and tensor.layout is torch.strided:
                names.setdefault(memory_of(tensor), join_path(path, key))
    names.pop(None, None)
    return names


def _valueless(native: nn.Module, request: Request) -> bool:
    if (request.what_if.batch_size, request.what_if.seq_len) != (None, None):
        return True  # resized inputs are made without values
    given = request.inputs if isinstance(request.inputs, Inputs) else Inputs()
    tensors = chain(native.parameters(), native.buffers(), tensors_in(given.args), tensors_in(given.kwargs))
    return any(tensor.is_meta or isinstance(tensor, FakeTensor) for tensor in tensors)


def _notes(native: nn.Module, outcome: _Outcome, request: Request) -> Iterator[Note]:
    failure = outcome.run.failure
    if failure is not None:
        where = failure.module or "(root)"
        yield Note(
            code="forward-failed",
            severity="error",
            text=f"{failure.error} in {where}: {_first_line(outcome.error)}",
            where=(failure.module,),
        )
    if is_refusal(outcome.error):
        yield Note(
            code="asked-of-cpu",
            text="the kernel of the CPU does not accept these element types; another device may accept them",
        )
    yield from outcome.notes
    yield from training_notes(
        request,
        trained=outcome.trained,
        problems=outcome.optimizer_problems.values(),
        in_training=getattr(native, "training", False),  # a frozen script has no mode
    )


def _first_line(error: BaseException | None) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__
