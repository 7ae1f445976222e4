"""Inputs found by trying, for a model of which nothing says what it takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from modelglass.errors import InputsError, UsageError

if TYPE_CHECKING:
    from modelglass.frameworks.shared.request import Inputs
    from modelglass.inputs import Call, Found
    from modelglass.inputs.described import Node
    from modelglass.report import Note

SECONDS = 5.0
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

        return Note(code="inputs-found", text=self.text)


def can_be_found(native: Any) -> bool:
    """Whether inputs of such a model can be looked for."""
    from modelglass.frameworks import adapter_for

    adapter = adapter_for(native)
    return adapter is not None and adapter.FRAMEWORK == "torch" and hasattr(native, "forward")


def find_inputs(
    native: Any, *, seconds: float = SECONDS, run: str = "fake", wanting_values: tuple[str, ...] = ()
) -> FoundInputs:
    """Inputs that a torch module runs with, found by fake runs, within so many seconds.

    `wanting_values` are errors that a model with weights would not raise.
    """
    if not can_be_found(native):
        raise UsageError(
            "inputs are found by trying for modules of torch only", hint="give the inputs of this model"
        )
    from modelglass.frameworks.torch.inputs import trials
    from modelglass.inputs import Search, search_within

    trials.prepare()
    known = trials.known_of(native)

    def search(in_copy: bool) -> Search:
        if in_copy:
            trials.use_one_thread()
        return Search(known, lambda call: trials.try_inputs(native, call, in_copy=in_copy), seconds=seconds)

    found = search_within(seconds, search)
    floating = trials.float_name(native)
    call, trial = found.call, found.trial
    if call is None or trial is None or not (trial.ran or trial.error in wanting_values):
        raise _not_found(found, floating, seconds)
    numel = sum(prod(each.shape) for each in call.tensors().values())
    fake = run == "fake" and numel > _MOST_WITH_VALUES
    return FoundInputs(
        inputs=trials.inputs_of(native, call, fake=fake),
        text=_sentence(found, call, floating),
        options=tuple(_options(call, floating)),
        python=_python(call, floating),
    )


def _sentence(found: Found, call: Call, floating: str) -> str:
    letters = [letter for letter, _ in found.free]
    free = f"; {', '.join(letters)} {'is' if len(letters) == 1 else 'are'} free" if letters else ""
    return f"inputs found by trying: {_listed(call, floating)}{free}; {_trials(found.trials)}"


def _trials(number: int) -> str:
    return f"{number} trial{'' if number == 1 else 's'}"


def _listed(call: Call, floating: str) -> str:
    return ", ".join(_shown(call, floating)) or "none are needed"


def _shown(call: Call, floating: str) -> Iterator[str]:
    from modelglass.inputs import Plain
    from modelglass.inputs.described import path_text

    for path, each in call.tensors().items():
        yield f"{path_text(path)} {_size(each.shape)} {_dtype(each.dtype, floating)}"
    for name, node in call.arguments:
        if isinstance(node, Plain):
            yield f"{name} {node.value!r}"


def _size(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "scalar"


def _dtype(name: str, floating: str) -> str:
    return floating if name == "float" else name


def _options(call: Call, floating: str) -> Iterator[str]:
    from modelglass.inputs import Tensor

    for name, node in call.arguments:
        if isinstance(node, Tensor):
            dtype = _dtype(node.dtype, floating)
            yield f"--input {name}={_size(node.shape)}{'' if dtype == 'float32' else f':{dtype}'}"


def _python(call: Call, floating: str) -> str:
    given = ", ".join(
        f"{name!r}: {_code(node, floating)}" for name, node in call.arguments if name != call.spread
    )
    if call.spread is None:
        return f"inputs = {{{given}}}"
    return f"inputs = {_code(dict(call.arguments)[call.spread], floating)}"


def _code(node: Node, floating: str) -> str:
    """Python that makes an input."""
    from modelglass.inputs import Plain, Several, Tensor

    if isinstance(node, Tensor):
        return f"torch.zeros({node.shape}, dtype=torch.{_dtype(node.dtype, floating)})"
    if isinstance(node, Plain):
        return repr(node.value)
    if isinstance(node, Several):
        items = ", ".join(_code(each, floating) for each in node.items)
        return f"[{items}]" if node.is_list else f"({items},)"
    return "{" + ", ".join(f"{key!r}: {_code(each, floating)}" for key, each in node.items) + "}"


def _not_found(found: Found, floating: str, seconds: float) -> InputsError:
    """How far the search came, and what to begin with."""
    if found.call is None or found.trial is None:
        return InputsError(
            f"no inputs were found by trying: no trial came to its end within {seconds:g} seconds",
            hint="give --inputs file.py::function or --input 1x3x224x224",
        )
    shown = list(_shown(found.call, floating))
    more = f" and {len(shown) - _LONGEST} more" if len(shown) > _LONGEST else ""
    given = f"{', '.join(shown[:_LONGEST])}{more}"
    options = list(_options(found.call, floating))[:_LONGEST]
    start = " ".join(options) or "--inputs file.py::function"
    return InputsError(
        f"no inputs were found in {_trials(found.trials)}; the one that came farthest, with {given}, "
        f"ended in {found.trial}",
        hint=f"give the inputs, for example beginning with {start}",
    )
