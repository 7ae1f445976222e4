"""What a model is called with: as given, by code that makes it, or as its own configuration says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from modelglass.api._found import NOT_FOUND, FoundInputs, described, find_inputs, trials_for
from modelglass.errors import InputsError, UsageError
from modelglass.options import Automatic, Progress, as_automatic

if TYPE_CHECKING:
    from modelglass.frameworks.shared.request import Inputs
    from modelglass.report import Note
    from modelglass.targets import OpenModel

# What fake tensors raise where only values could tell; inputs of another size have none.
NEEDS_VALUES = (
    "DataDependentOutputException",
    "DynamicOutputShapeException",
    "NeedsValuesError",
    "UnsupportedOperatorException",
)
REAL_NBYTES = 2 << 30  # of a model that may be built with its weights where values are looked at


@contextmanager
def make_inputs(
    opened: OpenModel, given: Any, notes: list[Note], run: str, progress: Progress
) -> Iterator[Any]:
    """The inputs of a model; what code imported to make them is forgotten afterwards.

    Where none are given, they are made from the model's configuration; automatic ones are found by trying
    where that says nothing.
    """
    from modelglass.frameworks import takes_text

    if isinstance(given, str) and takes_text(opened.native):
        yield given  # a prompt, whatever it looks like
    elif given is None:
        yield automatic_inputs(opened.native, opened.inputs, notes)
    elif (wanted := as_automatic(given)) is not None:
        with ExitStack() as stack:
            wanted = replace(wanted, given=_with_contents(opened.native, wanted.given, stack))
            yield _made_or_found(opened, wanted, notes, run, progress)
    elif is_described(given):
        with ExitStack() as stack:
            yield _with_contents(opened.native, given, stack)
    else:
        from modelglass.targets.code import result_of

        with result_of(given) as found:
            if found is None:
                raise InputsError(f"{given!r} returned None", hint="return a tensor, a tuple or a dict")
            yield found


def is_described(given: Any) -> bool:
    """Whether these are descriptions of inputs, as the command line has them."""
    from modelglass.frameworks.shared.specs import InputSpec

    return isinstance(given, tuple) and any(isinstance(each, InputSpec) for each in given)


def _with_contents(native: Any, given: tuple[Any, ...], stack: ExitStack) -> tuple[Any, ...]:
    """Described inputs, with what files and code hold."""
    from modelglass.api._given import resolved
    from modelglass.frameworks import adapter_for

    adapter = adapter_for(native) if given else None
    return given if adapter is None else resolved(given, native, adapter, stack)


def _made_or_found(
    opened: OpenModel, wanted: Automatic, notes: list[Note], run: str, progress: Progress
) -> Any:
    """What the user gave where that is enough, what the configuration says, or what trials find."""
    if wanted.given and _is_enough(opened.native, wanted.given):
        from modelglass.api._given import typed

        return typed(wanted.given, opened.native, notes)
    own = None if wanted.given else automatic_inputs(opened.native, opened.inputs, notes)
    if own is not None:
        return own
    try:
        found = _by_trying(opened, wanted, run, progress)
    except InputsError as cause:
        if wanted.needed:
            raise
        notes.append(_not_found_note(cause))
        return None
    if found is not None:
        notes.append(found.note)
        return found.inputs
    if wanted.needed:
        raise UsageError(
            "the inputs cannot be derived from the model's configuration",
            hint="give --inputs file.py::function or --input 1x3x224x224",
        )
    return None


def _by_trying(opened: OpenModel, wanted: Automatic, run: str, progress: Progress) -> FoundInputs | None:
    """None: inputs of such a model cannot be looked for."""
    if trials_for(opened.native) is None:
        return None
    progress("looking for inputs")
    weights = NEEDS_VALUES if opened.weightless and _may_have_weights(opened.native) else ()
    return find_inputs(
        opened.native, seconds=wanted.seconds, given=wanted.given, run=run, wanting_values=weights
    )


def _is_enough(native: Any, given: tuple[Any, ...]) -> bool:
    """Whether what the user gave is all that the model requires."""
    from modelglass.inputs import missing

    trials = trials_for(native)
    return trials is None or not missing(given, trials.known_of(native).parameters)


def _not_found_note(cause: InputsError) -> Note:
    from modelglass.report import Note

    return Note(code=NOT_FOUND, severity="warning", text=f"nothing was run: {cause.problem}; {cause.hint}")


def shown_inputs(opened: OpenModel, wanted: Automatic, run: str, progress: Progress) -> FoundInputs:
    """What a model is called with where nothing else is asked of it, written down."""
    trials = trials_for(opened.native)
    own = None if wanted.given else automatic_inputs(opened.native, opened.inputs)
    found = _by_trying(opened, wanted, run, progress) if own is None else None
    if own is not None and trials is not None:
        found = described(opened.native, own, trials)
    if found is None:
        raise UsageError("the inputs of this model cannot be found", hint="they are for torch and MLX only")
    return found


def automatic_inputs(native: Any, own: Any = None, notes: list[Note] | None = None) -> Inputs | None:
    """What a model can be called with: as came with it, as it shows itself, or as its configuration says.

    None: nothing says it. Optional inputs that are left out go to `notes`.
    """
    from modelglass import configs
    from modelglass.frameworks.shared.request import Inputs, parse_inputs
    from modelglass.report import Note

    found = configs.Example(own) if own is not None else configs.example(native, _output_shapes)
    if found.left_out and notes is not None:
        text = "the model also takes these inputs, which could not be made for it"
        notes.append(Note(code="inputs-left-out", text=text, where=found.left_out))
    given = parse_inputs(found.inputs, None, 1, None)
    return given if isinstance(given, Inputs) else None


def _output_shapes(native: Any, given: dict[str, Any]) -> list[tuple[str, tuple[int, ...]]] | None:
    """The shapes of a module's outputs, by name, without computing; None where it cannot be called so."""
    from modelglass import frameworks
    from modelglass.frameworks.shared.request import Detail, Inputs, Request

    request = Request(inputs=Inputs(kwargs=given), detail=Detail.MEMORY)
    run = frameworks.adapter("torch").observe(native, request).run
    if run.failure is not None:
        # Where values decide what runs, the inputs were good enough to come that far, and weights can be had.
        return [] if run.failure.error in NEEDS_VALUES and _may_have_weights(native) else None
    return [(value.name, value.shape) for value in run.outputs if value.shape is not None]


def _may_have_weights(native: Any) -> bool:
    """Whether a model is small enough to be built with its weights where values are looked at."""
    nbytes: int = sum(each.nbytes for each in native.parameters())
    return nbytes <= REAL_NBYTES
