"""The model, its inputs and its optimizer, by the code that makes them where that is what was given."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from modelglass import targets
from modelglass.api.building import AUTOMATIC, REAL_NBYTES, UNFAKEABLE, automatic_inputs, build, is_built
from modelglass.errors import InputsError, MissingPackageError, UnknownTargetError, UsageError

if TYPE_CHECKING:
    from modelglass.frameworks.request import Observation, Progress, Request
    from modelglass.report import Note, Report, WhatIf

Found = TypeVar("Found")


def silently(text: str) -> None:
    """Nobody wants to hear of progress."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What a model and its inputs are made from.

    `automatic`: inputs that nobody gave are made for a configuration. `is_config`: the target is one, or a
    checkpoint for the builder, whatever its file is called. `trust`: whatever a configuration names may run.
    """

    target: Any
    inputs: Any = None
    builder: Any = None
    model_key: str | None = None
    trust: bool = False
    automatic: bool = True
    is_config: bool = False
    progress: Progress | None = None

    @property
    def builds(self) -> bool:
        """Whether a model has to be built, which may be done without weights."""
        return self.is_config or is_built(self.target, builder=self.builder, runs=True)


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A model that was made, its inputs, and what is odd about how it was built."""

    native: Any
    inputs: Any
    adapter: ModuleType
    notes: list[Note] = field(default_factory=list)
    weightless: bool = False
    is_ours: bool = False  # made here, so that nobody has chosen its mode

    def mode_for(self, train: bool) -> AbstractContextManager[None]:
        """Training mode for a training step of a model that was made for it; a user's own keeps its mode."""
        if not train or not self.is_ours:
            return nullcontext()
        found: AbstractContextManager[None] = self.adapter.in_training(self.native)
        return found

    def observe(self, request: Request) -> Observation:
        """What a run shows; the model is made anew where only one with weights can show it."""
        observation: Observation = self.adapter.observe(self.native, request)
        self.check(observation)
        return observation

    def check(self, found: Observation | Report) -> None:
        """Ask for a model with weights where a run without them ended because values decide what runs."""
        if self.weightless and _wants_values(found):
            raise _ValuesWantedError


class _ValuesWantedError(Exception):
    """A run ended because the model has no values."""


def with_model(recipe: Recipe, look: Callable[[Subject], Found], *, weightless: bool = True) -> Found:
    """What a function finds out about a model that is made for it, without weights where that can be.

    Where its run wants values, and to have them is no great effort, it is called again with a model that has
    them. Then what makes the model runs again, too.
    """
    from modelglass.report import Note

    try:
        with made(recipe, weightless=weightless) as subject:
            return look(subject)
    except _ValuesWantedError:
        pass  # what it holds of the first model is let go of here
    with made(recipe, weightless=False) as subject:
        text = "what runs depends on values, so the model was built with its weights"
        subject.notes.append(Note(code="built-with-weights", text=text))
        return look(subject)


def _wants_values(found: Report | Observation) -> bool:
    failure = found.run.failure
    nbytes = sum(tensor.nbytes or 0 for tensor in found.model.tensors)
    return failure is not None and failure.error in UNFAKEABLE and nbytes <= REAL_NBYTES


@contextmanager
def made(recipe: Recipe, *, weightless: bool = True) -> Iterator[Subject]:
    """The model and its inputs, by the code or the configuration that makes them where that was given."""
    from modelglass.frameworks import takes_text

    target, inputs = recipe.target, recipe.inputs
    tell = recipe.progress or silently
    notes: list[Note] = []
    with ExitStack() as stack:
        native, given, own, builds = target, inputs, None, recipe.builds
        if builds:
            tell("building the model")
            options = {"builder": recipe.builder, "model_key": recipe.model_key, "trust": recipe.trust}
            found = stack.enter_context(build(target, weightless=weightless, notes=notes, **options))
            native, own = found.native, found.inputs
        else:
            check_no_config(recipe.builder, recipe.model_key)
            if isinstance(target, (str, os.PathLike)) or targets.is_maker(target):
                tell("loading and building the model")
                native = _maker_result(target if targets.is_maker(target) else os.fspath(target), stack)
        adapter = adapter_of(native, target)  # before anything looks for inputs in what may be anything
        if isinstance(inputs, str) and takes_text(native):
            pass  # a prompt, whatever it looks like
        elif _are_automatic(inputs) or (builds and inputs is None and recipe.automatic):
            tell("making inputs")
            given = _automatic(native, own, notes, asked=inputs is not None)
        elif isinstance(inputs, str) or targets.is_maker(inputs):
            tell("making the inputs")
            given = _maker_result(inputs, stack)
            if given is None:
                raise InputsError(f"{inputs!r} gave None", hint="return a tensor, a tuple or a dict")
        tell("observing the model")
        has_none = builds and weightless
        yield Subject(
            native=native,
            inputs=given,
            adapter=adapter,
            notes=notes,
            weightless=has_none,
            is_ours=native is not target,
        )


def check_no_config(builder: Any, model_key: str | None) -> None:
    """That nothing is said about a configuration where there is none."""
    if builder is not None or model_key is not None:
        raise UsageError(
            "a builder and a model key are for configurations, and this is none",
            hint="leave them out, or pass a configuration",
        )


def _are_automatic(inputs: Any) -> bool:
    return isinstance(inputs, str) and inputs == AUTOMATIC


def _automatic(native: Any, own: Any, notes: list[Note] | None, *, asked: bool) -> Any:
    given = automatic_inputs(native, own, notes)
    if given is None and asked:
        raise UsageError(
            "nothing tells what this model is called with, and a run needs inputs",
            hint="give --inputs file.py::function or --input 1x3x224x224",
        )
    return given


def _maker_result(maker: Any, stack: ExitStack) -> Any:
    """What a function returns, given or named; what a named one imported is forgotten with the stack."""
    from modelglass.configs.guarding import lifted

    with lifted():  # the user named it, whatever a configuration may do
        return (
            stack.enter_context(targets.calling(maker)) if isinstance(maker, str) else targets.called(maker)
        )


def adapter_of(native: Any, target: Any) -> ModuleType:
    from modelglass import frameworks

    framework = frameworks.framework_of(native)
    adapter = None if framework is None else frameworks.adapter(framework)
    if adapter is None or not adapter.accepts(native):
        found = f"{type(native).__module__}.{type(native).__qualname__}"
        asked = f"{target!r} gave" if isinstance(target, str) else "this is"
        raise UnknownTargetError(
            f"{asked} a {found}, which is no model modelglass knows",
            hint="pass a torch.nn.Module, an mlx.nn.Module, a vllm.LLM, or a function that returns one",
        )
    return adapter


@contextmanager
def chosen_optimizer(given: Any) -> Iterator[Any]:
    """The optimizer as an adapter takes it: code that the user names is loaded, not called."""
    if isinstance(given, str) and ":" in given:
        with targets.naming(given) as factory:
            yield factory
    else:
        yield given


@contextmanager
def needing(package: str, wanted_by: str, *, extra: str) -> Iterator[None]:
    """A missing package is one sentence that says what to install."""
    try:
        yield
    except ModuleNotFoundError as cause:
        if (cause.name or "").partition(".")[0] != package:
            raise
        raise MissingPackageError(package, wanted_by=wanted_by, extra=extra) from cause


def change_of(what_if: Any) -> WhatIf:
    from modelglass.report import WhatIf

    if what_if is not None and not isinstance(what_if, WhatIf):
        raise UsageError(f"what_if={what_if!r} is no change", hint="write mg.WhatIf(batch_size=8)")
    return what_if or WhatIf()
