"""What every framework adapter is asked, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

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


@dataclass(frozen=True)
class Request:
    """One inspection. `inputs` are native values, or specs from which the adapter makes them, or neither."""

    inputs: Inputs | tuple[TensorSpec, ...] | None = None
    mode: RunMode = "fake"
    train: bool = False
    device: str | None = None  # where inputs are made; None: where the model is
    progress: Progress | None = None


@dataclass(frozen=True)
class Observation:
    """The facts an adapter found."""

    model: Model
    run: Run
    notes: tuple[Note, ...] = ()
