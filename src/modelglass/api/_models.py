"""A model that is open, with its inputs, ready to be observed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from modelglass.api._inputs import NEEDS_VALUES, REAL_NBYTES, is_described, make_inputs
from modelglass.errors import MissingPackageError, UnknownTargetError, UsageError
from modelglass.options import Automatic, as_automatic
from modelglass.targets import Runnable
from modelglass.targets.kind import report_nothing
from modelglass.user_code import FACTORIES, load_named, parse_code_name

if TYPE_CHECKING:
    from modelglass.frameworks.protocol import Adapter
    from modelglass.frameworks.shared.request import Request
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

    @contextmanager
    def training(self, run: RunOptions) -> Iterator[Any]:
        """The optimizer of a training step, as an adapter takes it: code that the user names is not called.

        A model that was built for the step is in training mode; a user's own keeps its mode.
        """
        optimizer = run.chosen_optimizer
        with ExitStack() as stack:
            if run.train and not self.is_user_object:
                stack.enter_context(self.adapter.training_mode(self.native))
            if isinstance(optimizer, str) and parse_code_name(optimizer):
                optimizer = stack.enter_context(load_named(optimizer))
            yield optimizer

    def observe(self, request: Request) -> Observation:
        """What a run shows; the model is built again where only one with weights can show it."""
        observation: Observation = self.adapter.observe(self.native, request)
        self.check(observation)
        return observation

    def check(self, found: Observation | Report) -> None:
        """Ask for a model with weights where a run without them ended because values decide what runs."""
        if self.weightless and _wants_values(found):
            raise _ValuesWantedError


# Types of what may not be the inputs themselves, but a description of them.
_MAY_BE_MADE = (str, Automatic, tuple, *FACTORIES)


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

    Where its run wants values, and the model is small, it is called again with a model that has
    them. Then the code that builds the model runs again as well. `own_inputs`: a configuration's model gets
    inputs that are made for it where none are given.
    """
    from modelglass import frameworks

    makes_own = own_inputs and target.has_own_inputs and run.input_shape is None
    notes: list[Note] = []
    while True:
        try:
            with ExitStack() as stack:
                if progress is not None:
                    progress("loading and building the model")
                opened = stack.enter_context(target.open(weightless=weightless))
                # Before anything looks for inputs in an object of any kind.
                adapter = frameworks.adapter_for(opened.native)
                if adapter is None or framework not in (None, adapter.FRAMEWORK):
                    raise _unsupported_error(opened.native, adapter, target, framework)
                notes = [*opened.notes, *notes]
                inputs = run.inputs
                if run.mode == "none" and (inputs is None or as_automatic(inputs)):
                    inputs = None
                elif makes_own if inputs is None else isinstance(inputs, _MAY_BE_MADE) and _are_made(inputs):
                    making = make_inputs(opened, inputs, notes, run.mode, progress or report_nothing)
                    inputs = stack.enter_context(making)
                if progress is not None:
                    progress("observing the model")
                return look(
                    BuiltModel(
                        native=opened.native,
                        inputs=inputs,
                        adapter=adapter,
                        notes=notes,
                        weightless=opened.weightless,
                        is_user_object=opened.is_user_object,
                    )
                )
        except _ValuesWantedError:
            del opened, inputs  # of the first model, before it is built again
            weightless, notes = False, [_weights_note()]


def _are_made(inputs: Any) -> bool:
    """Whether these are not yet the inputs themselves."""
    return not isinstance(inputs, tuple) or is_described(inputs)


def _weights_note() -> Note:
    from modelglass.report import Note

    text = "what runs depends on values, so the model was built with its weights"
    return Note(code="built-with-weights", text=text)


def _wants_values(found: Report | Observation) -> bool:
    failure = found.run.failure
    nbytes = sum(tensor.nbytes or 0 for tensor in found.model.tensors)
    return failure is not None and failure.error in NEEDS_VALUES and nbytes <= REAL_NBYTES


def adapter_of(native: Any) -> Adapter:
    """The adapter of the model's framework."""
    from modelglass import frameworks

    found = frameworks.adapter_for(native)
    if found is None:
        raise _unsupported_error(native, None)
    return found


def _unsupported_error(
    native: Any, adapter: Adapter | None, target: Runnable | None = None, framework: str | None = None
) -> UnknownTargetError | UsageError:
    """Why an object cannot be taken for a model, or not for one of the framework that was named."""
    if adapter is not None:
        return UsageError(
            f"this is a model of {adapter.FRAMEWORK}, not of {framework}",
            hint=f'leave the framework out, or give framework="{adapter.FRAMEWORK}"',
        )
    found = f"{type(native).__module__}.{type(native).__qualname__}"
    who = "this is" if target is None or target.kind == "live" else f"{target} returned"
    return UnknownTargetError(
        f"{who} a {found}, which is not a supported model type",
        hint="pass a torch.nn.Module, an mlx.nn.Module, a vllm.LLM, or a function that returns one",
    )


@contextmanager
def require_extra(package: str, wanted_by: str, *, extra: str) -> Iterator[None]:
    """A missing package is one sentence that says what to install."""
    try:
        yield
    except ModuleNotFoundError as cause:
        if (cause.name or "").partition(".")[0] != package:
            raise
        raise MissingPackageError(package, wanted_by=wanted_by, extra=extra) from cause
