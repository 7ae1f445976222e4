"""What modelglass asks of a framework: each has these functions in its `session` module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from modelglass.frameworks.shared.request import Inputs, Request
    from modelglass.inputs import Call, Model, Trial
    from modelglass.report import Lifetimes, Observation, Op
    from modelglass.report.values import Values

# From the memory of few and of fewer equal blocks, that of all: (short, long, path, few, count).
Extrapolate: TypeAlias = Callable[..., Any]


class Trials(Protocol):
    """Trials of inputs, where nothing says what a model takes."""

    ARRAYS: str  # the name of the module whose functions make arrays

    def prepare(self) -> None:
        """Load what runs need, before there are copies of the process."""

    def can_be_copied(self) -> bool:
        """Whether a copy of the process can run trials."""

    def prepare_copy(self, native: Any) -> None:
        """In a copy of the process, before the first trial."""

    def known_of(self, native: Any) -> Model:
        """What a model shows of its inputs without a run."""

    def try_inputs(self, native: Any, call: Call, *, in_copy: bool = False) -> Trial:
        """One run with a guess; what it raises is its result. A copy of the process needs no tidying."""

    def inputs_of(self, native: Any, call: Call, *, fake: bool) -> Inputs:
        """Inputs as described; fake ones take no memory where that can be."""

    def float_name(self, native: Any) -> str:
        """The element type of floating inputs."""


class Adapter(Protocol):
    """The functions of a framework's adapter. `native` is always an object of that framework.

    Nothing of the user's is changed when a function returns or raises.
    """

    FRAMEWORK: str

    def accepts(self, native: object) -> bool:
        """Whether this is a model, or something that runs as one."""

    def observe(self, native: Any, request: Request) -> Observation:
        """Read the structure, and run the model once where the request wants a run."""

    def trials(self, native: Any) -> Trials | None:
        """How inputs are tried; None where they cannot be looked for."""

    def array(self, native: Any, words: Any, shape: tuple[int, ...], dtype: str) -> Any:
        """What a file holds, as an input; `words` are an array of numpy with the bytes of the elements."""

    def picture(self, native: Any, pixels: Any) -> Any:
        """A picture as an input: numpy's numbers from 0 to 1, one picture, its channels, rows, columns."""

    def run_shortened(self, native: Any, request: Request, place: Extrapolate) -> Lifetimes | None:
        """What `observe` would find of memory, from runs with few of the equal blocks; None: not possible."""

    def run_resized(self, native: Any, request: Request, sizes: Mapping[tuple[int, int], int]) -> Observation:
        """What a fake forward pass shows with other sizes of the inputs, by input and dimension."""

    def sizes(self, native: Any, request: Request) -> tuple[int | None, int | None]:
        """The batch size and the sequence length of the inputs; None for what they do not show."""

    def values(self, native: Any) -> Mapping[str, Values | str]:
        """How to read the values of each tensor by name, or why that cannot be."""

    def non_persistent_names(self, native: Any) -> frozenset[str]:
        """The names of tensors that a checkpoint of the model does not have, by design."""

    def training_mode(self, native: Any) -> AbstractContextManager[None]:
        """The model in training mode inside; afterwards each module is in the mode it was in."""

    def reproducer(self, op: Op, *, file: str, details: str = "") -> str:
        """The source of a file that runs one operator alone."""

    def seeded(self) -> AbstractContextManager[None]:
        """The same random numbers each time inside; afterwards their states are as before."""

    def untouched_process(self) -> AbstractContextManager[None]:
        """The framework's own settings and random states are the same afterwards."""


if TYPE_CHECKING:  # each adapter is checked against the protocol
    from modelglass.frameworks.mlx import session as _mlx
    from modelglass.frameworks.torch import session as _torch
    from modelglass.frameworks.vllm import session as _vllm

    _ADAPTERS: tuple[Adapter, ...] = (_torch, _mlx, _vllm)
