"""A model that is open, with its inputs, ready to be observed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from modelglass.api._inputs import NEEDS_VALUES, REAL_NBYTES, make_inputs
from modelglass.errors import MissingPackageError, UnknownTargetError, UsageError
from modelglass.targets import Runnable
from modelglass.targets.kind import report_nothing
from modelglass.user_code import load_named

if TYPE_CHECKING:
    from modelglass.frameworks.protocol import Adapter
    from modelglass.frameworks.request import Request
    from modelglass.options import Progress, RunOptions
    from modelglass.report import Note, Observation, Report

Answer = TypeVar("Answer")


@dataclass(frozen=True, kw_only=True)
class BuiltModel:
    """A model of a framework, its inputs, and notes on how it was built."""

    native: Any
    inputs: Any
    adapter: Adapter
    notes: list[Note] = field(default_factory=list)
    weightless: bool = False
    is_user_object: bool = False  # the user chose its mode

    def mode_for(self, train: bool) -> AbstractContextManager[None]:
        """Training mode for a training step of a model that was built for it; a user's own keeps its mode."""
        if not train or self.is_user_object:
            return nullcontext()
        mode: AbstractContextManager[None] = self.adapter.training_mode(self.native)
        return mode

    def observe(self, request: Request) -> Observation:
        """What a run shows; the model is built again where only one with weights can show it."""
        observation: Observation = self.adapter.observe(self.native, request)
        self.check(observation)
        return observation

    def check(self, found: Observation | Report) -> None:
        """Ask for a model with weights where a run without them ended because values decide what runs."""
        if self.weightless and _wants_values(found):
            raise _ValuesWantedError


class _ValuesWantedError(Exception):
    """A run ended because the model has no values."""


def with_model(
    target: Runnable,
    run: RunOptions,
    look: Callable[[BuiltModel], Answer],
    *,
    weightless: bool = True,
    own_inputs: bool = True,
    framework: str | None = None,
    progress: Progress | None = None,
) -> Answer:
    """What a function finds out about a model that is built for it, without weights where that can be.

    Where its run wants values, and to have them is no great effort, it is called again with a model that has
    them. Then the code that builds the model runs again as well. `own_inputs`: a configuration's model gets
    inputs that are made for it where none are given.
    """
    from modelglass.report import Note

    def with_built(weightless: bool, *notes: Note) -> Answer:
        with _built(target, run, weightless, own_inputs, progress) as built:
            _check_framework(framework, built.adapter)
            built.notes.extend(notes)
            return look(built)

    try:
        return with_built(weightless)
    except _ValuesWantedError:
        pass  # what it holds of the first model is let go of here
    text = "what runs depends on values, so the model was built with its weights"
    return with_built(False, Note(code="built-with-weights", text=text))


def _wants_values(found: Report | Observation) -> bool:
    failure = found.run.failure
    nbytes = sum(tensor.nbytes or 0 for tensor in found.model.tensors)
    return failure is not None and failure.error in NEEDS_VALUES and nbytes <= REAL_NBYTES


@contextmanager
def _built(
    target: Runnable, run: RunOptions, weightless: bool, own_inputs: bool, progress: Progress | None
) -> Iterator[BuiltModel]:
    tell = progress or report_nothing
    with ExitStack() as stack:
        tell("loading and building the model")
        opened = stack.enter_context(target.open(weightless=weightless))
        adapter = adapter_of(
            opened.native, target
        )  # before anything looks for inputs in what may be anything
        notes = list(opened.notes)
        wanted = own_inputs and target.has_own_inputs and run.mode != "none" and run.input_shape is None
        inputs = stack.enter_context(make_inputs(opened, run.inputs, notes, make_own=wanted))
        tell("observing the model")
        yield BuiltModel(
            native=opened.native,
            inputs=inputs,
            adapter=adapter,
            notes=notes,
            weightless=opened.weightless,
            is_user_object=opened.is_user_object,
        )


def adapter_of(native: Any, target: Any = None) -> Adapter:
    """The adapter of the model's framework."""
    from modelglass import frameworks

    framework = frameworks.framework_of(native)
    adapter = None if framework is None else frameworks.adapter(framework)
    if adapter is None or not adapter.accepts(native):
        found = f"{type(native).__module__}.{type(native).__qualname__}"
        is_result = isinstance(target, Runnable) and target.kind != "live"
        who = f"{target} returned" if is_result else "this is"
        raise UnknownTargetError(
            f"{who} a {found}, which is not a supported model type",
            hint="pass a torch.nn.Module, an mlx.nn.Module, a vllm.LLM, or a function that returns one",
        )
    return adapter


def _check_framework(framework: str | None, adapter: Adapter) -> None:
    found = adapter.FRAMEWORK
    if framework not in (None, found):
        raise UsageError(
            f"this is a model of {found}, not of {framework}",
            hint=f'leave the framework out, or say framework="{found}"',
        )


@contextmanager
def loaded_optimizer(given: Any) -> Iterator[Any]:
    """The optimizer as an adapter takes it: code that the user names is loaded, not called."""
    if isinstance(given, str) and ":" in given:
        with load_named(given) as factory:
            yield factory
    else:
        yield given


@contextmanager
def require_extra(package: str, wanted_by: str, *, extra: str) -> Iterator[None]:
    """A missing package is one sentence that says what to install."""
    try:
        yield
    except ModuleNotFoundError as cause:
        if (cause.name or "").partition(".")[0] != package:
            raise
        raise MissingPackageError(package, wanted_by=wanted_by, extra=extra) from cause
