"""The model, its inputs and its optimizer, by the code that makes them where that is what was given."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any

from modelglass import targets
from modelglass.api.building import AUTOMATIC, automatic_inputs, build, is_built
from modelglass.errors import InputsError, MissingPackageError, UnknownTargetError, UsageError

if TYPE_CHECKING:
    from modelglass.frameworks.request import Progress
    from modelglass.report import Note, WhatIf


def silently(text: str) -> None:
    """Nobody wants to hear of progress."""


@contextmanager
def made(
    target: Any,
    inputs: Any,
    progress: Progress | None,
    builder: Any = None,
    model_key: str | None = None,
    *,
    notes: list[Note] | None = None,
    automatic: bool = True,
    weightless: bool = True,
) -> Iterator[tuple[Any, Any]]:
    """The model and its inputs, by the code or the configuration that makes them where that was given.

    `automatic`: inputs that nobody gave are made for a configuration. What is odd about a model that was
    built from one goes to `notes`.
    """
    tell = progress or silently
    with ExitStack() as stack:
        native, given = target, inputs
        own, makes_inputs = None, isinstance(inputs, str) and inputs == AUTOMATIC
        if is_built(target, builder=builder, runs=True):
            tell("building the model")
            found = stack.enter_context(
                build(target, builder=builder, model_key=model_key, weightless=weightless, notes=notes)
            )
            native, own = found.native, found.inputs
            makes_inputs = makes_inputs or (inputs is None and automatic)
        elif builder is not None or model_key is not None:
            raise UsageError(
                "a builder and a model key are for configurations, and this is none",
                hint="leave them out, or pass a configuration",
            )
        elif isinstance(target, (str, os.PathLike)) or targets.is_maker(target):
            tell("loading and building the model")
            native = _maker_result(target if targets.is_maker(target) else os.fspath(target), stack)
        if makes_inputs:
            tell("making inputs")
            given = _automatic(native, own, notes, asked=inputs is not None)
        elif isinstance(inputs, str) or targets.is_maker(inputs):
            tell("making the inputs")
            given = _maker_result(inputs, stack)
            if given is None:
                raise InputsError(f"{inputs!r} gave None", hint="return a tensor, a tuple or a dict")
        tell("observing the model")
        yield native, given


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
    return stack.enter_context(targets.calling(maker)) if isinstance(maker, str) else targets.called(maker)


def adapter_of(native: Any, target: Any) -> ModuleType:
    from modelglass import frameworks

    framework = frameworks.framework_of(native)
    adapter = None if framework is None else frameworks.adapter(framework)
    if adapter is None or not adapter.accepts(native):
        found = f"{type(native).__module__}.{type(native).__qualname__}"
        asked = f"{target!r} gave" if isinstance(target, str) else "this is"
        raise UnknownTargetError(
            f"{asked} a {found}, which is no model modelglass knows",
            hint="pass a torch.nn.Module, or a function that returns one",
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
