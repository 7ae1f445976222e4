"""What every framework adapter is asked, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from modelglass.errors import UsageError
from modelglass.report import Model, Note, Run, RunMode, Shape

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Inputs:
    """What the model is called with: positional and keyword arguments.

    >>> Inputs(args=(1,), kwargs={"mask": None})
    Inputs(args=(1,), kwargs={'mask': None})
    """

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TensorSpec:
    """An input to be made: its full shape, and its element type where that is said.

    `name` is the keyword it is passed by, or None for a positional argument.
    """

    shape: Shape
    dtype: str | None = None
    name: str | None = None

    @classmethod
    def parse(cls, text: str) -> TensorSpec:
        """Read `[name=]2x16[:int64]`.

        >>> TensorSpec.parse("mask=2x16:bool")
        TensorSpec(shape=(2, 16), dtype='bool', name='mask')
        """
        name, equals, rest = text.rpartition("=")
        sizes, _, dtype = rest.partition(":")
        dims = [] if sizes == "scalar" else sizes.lower().replace("×", "x").split("x")
        named_well = name.isidentifier() if equals else True
        if not named_well or not all(dim.isdecimal() for dim in dims) or rest.endswith(":"):
            raise UsageError(
                f"{text!r} does not describe an input",
                hint="write 1x3x224x224, 2x16:int64 or mask=2x16:bool (scalar for no dimensions)",
            )
        return cls(tuple(map(int, dims)), dtype or None, name or None)

    @classmethod
    def parse_all(cls, texts: Iterable[str]) -> tuple[TensorSpec, ...]:
        """Read several, no two by the same keyword."""
        specs = tuple(map(cls.parse, texts))
        names = [spec.name for spec in specs if spec.name is not None]
        for name in names:
            if names.count(name) > 1:
                raise UsageError(f"the input {name!r} is given twice", hint="keep one of them")
        return specs


@dataclass(frozen=True)
class Request:
    """One inspection. `inputs` are native values, or specs from which the adapter makes them, or neither."""

    inputs: Inputs | tuple[TensorSpec, ...] | None = None
    mode: RunMode = "fake"
    train: bool = False
    device: str | None = None  # where inputs are made; None: where the model is
    progress: Progress | None = None
    # Kernels, by name, that nobody wants to know more about: they contract nothing.
    is_free: Callable[[str], bool] = field(default=lambda name: False)


@dataclass(frozen=True)
class Observation:
    """The facts an adapter found."""

    model: Model
    run: Run
    notes: tuple[Note, ...] = ()
