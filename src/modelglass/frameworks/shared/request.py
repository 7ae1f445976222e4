"""What every framework adapter is asked, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from operator import index
from typing import Any

from modelglass.errors import UsageError
from modelglass.frameworks.shared.specs import InputSpec, TensorSpec
from modelglass.options import Progress
from modelglass.report import Axes, RunMode, Shape, WhatIf
from modelglass.report.dtypes import full_dtype_name


@dataclass(frozen=True)
class Inputs:
    """What the model is called with: positional and keyword arguments.

    >>> Inputs(args=(1,), kwargs={"mask": None})
    Inputs(args=(1,), kwargs={'mask': None})
    """

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)


def parse_inputs(
    inputs: Any, input_shape: Sequence[Any] | None, batch_size: int, dtype: Any
) -> Inputs | tuple[InputSpec, ...] | None:
    """What the user gave in whatever form, as native inputs or as specs to make them from."""
    if inputs is not None and input_shape is not None:
        raise UsageError("inputs and input_shape cannot be combined", hint="give one of them")
    if input_shape is not None:
        name = None if dtype is None else full_dtype_name(str(dtype))
        return tuple(TensorSpec(shape, name) for shape in _shapes(input_shape, batch_size))
    if inputs is None or isinstance(inputs, Inputs):
        return inputs
    if type(inputs) is tuple and inputs and all(isinstance(i, InputSpec) for i in inputs):
        return inputs
    if isinstance(inputs, Mapping):
        return Inputs(kwargs=dict(inputs))
    if type(inputs) in (tuple, list):
        return Inputs(args=tuple(inputs))
    return Inputs(args=(inputs,))


def _shapes(input_shape: Sequence[Any], batch_size: int) -> Iterator[Shape]:
    """The full shape of each input."""
    try:
        several = len(input_shape) > 0 and isinstance(input_shape[0], (tuple, list))
        for shape in input_shape if several else [input_shape]:
            sizes = tuple(map(index, (batch_size, *shape)))
            if min(sizes) < 0:
                raise ValueError("a size is negative")
            yield sizes
    except (TypeError, ValueError) as cause:
        raise UsageError(
            f"input_shape={input_shape!r} with batch_size={batch_size!r} is not a shape: {cause}",
            hint="give whole numbers without the batch: input_shape=(3, 224, 224), batch_size=1",
        ) from cause


def is_shape(value: Any) -> bool:
    """Whether this is one shape or several, rather than the inputs themselves."""
    if not isinstance(value, (tuple, list)):
        return False
    return all(hasattr(item, "__index__") or isinstance(item, (tuple, list)) for item in value) and not any(
        hasattr(item, "shape") for item in value
    )


class Detail(Enum):
    """How much of a run is observed."""

    CALLS = "calls"  # no operators, at half the price
    MEMORY = "memory"  # calls, and what is alive
    FLOW = "flow"  # calls, operators and which tensors they read, without memory
    FULL = "full"

    @property
    def has_memory(self) -> bool:
        """Whether memory is followed."""
        return self in (Detail.MEMORY, Detail.FULL)

    @property
    def has_dataflow(self) -> bool:
        """Whether operators and the tensors between them are followed."""
        return self in (Detail.FLOW, Detail.FULL)


@dataclass(frozen=True)
class Request:
    """One inspection. `inputs` are native values, or specs from which the adapter makes them, or neither."""

    inputs: Inputs | tuple[InputSpec, ...] | None = None
    mode: RunMode = "fake"
    train: bool = False
    optimizer: Any = None  # a name or a function of the parameters; None: no optimizer steps
    other_optimizers: tuple[str, ...] = ()  # whose steps are also looked at, each for itself
    loss: Callable[[Any], Any] | None = None  # of the output; None: the model's own, or the sum of outputs
    calibrate: bool = False  # measure what kernels take for themselves
    what_if: WhatIf = field(default_factory=WhatIf)
    axes: Axes | None = None  # of the inputs, where they have batch and sequence; None: as shapes suggest
    device: str | None = None  # where inputs are made; None: where the model is
    progress: Progress | None = None
    detail: Detail = Detail.FULL
    # Kernels, by name, that nobody wants to know more about: they contract nothing.
    is_free: Callable[[str], bool] = field(default=lambda name: False)

    @property
    def runs(self) -> bool:
        return self.inputs is not None and self.mode != "none"
