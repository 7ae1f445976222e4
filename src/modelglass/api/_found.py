"""Inputs found by trying, for a model of which nothing says what it takes."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from modelglass.errors import InputsError, UsageError
from modelglass.options import SEARCH_SECONDS

if TYPE_CHECKING:
    from modelglass.frameworks.protocol import Trials
    from modelglass.frameworks.shared.request import Inputs
    from modelglass.frameworks.shared.specs import InputSpec
    from modelglass.inputs import Call, Found
    from modelglass.report import Note

OF_INPUTS = FOUND, NOT_FOUND = "inputs-found", "inputs-not-found"  # codes of notes
_MOST_WITH_VALUES = 1 << 22  # elements; larger inputs have none in a fake run
_LONGEST = 12  # inputs that are listed in a message


@dataclass(frozen=True)
class FoundInputs:
    """Inputs that run: `inputs` to call the model with, and how to write them down."""

    inputs: Inputs
    text: str
    options: tuple[str, ...]  # of the command line; none for what is inside of a structure
    python: str

    def __str__(self) -> str:
        return self.text

    @property
    def note(self) -> Note:
        from modelglass.report import Note

        return Note(code=FOUND, text=self.text)


def trials_for(native: Any) -> Trials | None:
    """How inputs of such a model are tried; None where they cannot be looked for."""
    from modelglass.frameworks import adapter_for

    adapter = adapter_for(native)
    return None if adapter is None else adapter.trials(native)


def find_inputs(
    native: Any,
    *,
    seconds: float = SEARCH_SECONDS,
    given: tuple[InputSpec, ...] = (),
    run: str = "fake",
    wanting_values: tuple[str, ...] = (),
) -> FoundInputs:
    """Inputs that a model runs with, found by fake runs, within so many seconds.

    `given` are descriptions of inputs that are fixed. `wanting_values` are errors that a model with weights
    would not raise.
    """
    from modelglass.inputs import Search, fixed_by, search_within, with_values

    trials = trials_for(native)
    if trials is None:
        raise UsageError(
            "inputs are found by trying for modules of torch and MLX only",
            hint="give the inputs of this model",
        )
    trials.prepare()
    known = trials.known_of(native)
    fixed = fixed_by(given, known.parameters)

    def search(in_copy: bool) -> Search:
        if in_copy:
            trials.prepare_copy(native)
        return Search(
            known, lambda call: trials.try_inputs(native, call, in_copy=in_copy), seconds=seconds, fixed=fixed
        )

    found = search_within(seconds, search, can_copy=trials.can_be_copied())
    floating = trials.float_name(native)
    call, trial = found.call, found.trial
    if call is None or trial is None or not (trial.ran or trial.error in wanting_values):
        raise _not_found(found, floating, seconds)
    numel = sum(prod(each.shape) for each in call.tensors().values())
    exact = with_values(call, given, known.parameters)
    inputs = trials.inputs_of(native, exact, fake=run == "fake" and numel > _MOST_WITH_VALUES)
    return written(call, inputs, _sentence(found, call, floating), floating, trials)


def described(native: Any, inputs: Inputs, trials: Trials) -> FoundInputs:
    """Inputs that a model's own configuration says."""
    from modelglass.inputs import call_of

    call = call_of(inputs.args, inputs.kwargs, trials.known_of(native).parameters)
    floating = trials.float_name(native)
    text = f"inputs by the model's own configuration: {_listed(call, floating)}"
    return written(call, inputs, text, floating, trials)


def written(call: Call, inputs: Inputs, text: str, floating: str, trials: Trials) -> FoundInputs:
    from modelglass.inputs.written import options, python

    return FoundInputs(
        inputs=inputs,
        text=text,
        options=tuple(options(call, floating)),
        python=python(call, floating, trials.ARRAYS),
    )


def _sentence(found: Found, call: Call, floating: str) -> str:
    letters = [letter for letter, _ in found.free]
    free = f"; {', '.join(letters)} {'is' if len(letters) == 1 else 'are'} free" if letters else ""
    return f"inputs found by trying: {_listed(call, floating)}{free}; {_trials(found)}"


def _trials(found: Found) -> str:
    once = f", as forward {found.effect}" if found.effect else ""
    return f"{found.trials} trial{'' if found.trials == 1 else 's'}{once}"


def _listed(call: Call, floating: str) -> str:
    from modelglass.inputs.written import listed

    return ", ".join(listed(call, floating)) or "none are needed"


def _not_found(found: Found, floating: str, seconds: float) -> InputsError:
    """How far the search came, and what to begin with."""
    from modelglass.inputs.written import listed, options

    if found.call is None or found.trial is None:
        return InputsError(
            f"no inputs were found by trying: no trial came to its end within {seconds:g} seconds",
            hint="give --inputs file.py::function or --input 1x3x224x224",
        )
    shown = list(listed(found.call, floating))
    more = f" and {len(shown) - _LONGEST} more" if len(shown) > _LONGEST else ""
    given = f"{', '.join(shown[:_LONGEST])}{more}"
    start = " ".join(list(options(found.call, floating))[:_LONGEST]) or "--inputs file.py::function"
    return InputsError(
        f"no inputs were found in {_trials(found)}; the one that came farthest, with {given}, "
        f"ended in {found.trial}",
        hint=f"give the inputs, for example beginning with {start}",
    )
