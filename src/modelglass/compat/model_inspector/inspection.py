"""What is known of a model that a configuration, a checkpoint or both describe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from modelglass.report.flow import Flow
    from modelglass.report.matching import Matching
    from modelglass.report.memory import LiveTensor
    from modelglass.report.model import Json
    from modelglass.report.report import Report


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeCount:
    """The parameters that modules of one type themselves hold, each memory once.

    `permille` is their share of all parameters: those of all rows are 1,000 together.
    """

    type: str | None  # None: nothing tells
    params: int
    permille: int
    modules: int  # that hold them
    guessed: bool = False  # by the names and shapes of their tensors


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What a training step holds, in bytes: what stays from step to step, and what the batch adds.

    `activations` are what is saved for the backward pass when the forward pass ends, inputs not included.
    The peak is another figure: not all of this is held at once, and some things besides.
    """

    batch_size: int | None  # None: that of the inputs as given
    parameters: int
    buffers: int
    gradients: int
    optimizer_state: int
    inputs: tuple[tuple[str, int], ...]  # by name
    shared: int  # what inputs have in common, which is counted once
    activations: int | None  # None: autograd did not tell
    peak_nbytes: int
    later_peak_nbytes: int | None  # of every step after the first; None: there is no optimizer
    optimizer: str | None

    @property
    def complete(self) -> bool:
        """Whether the sums have all their parts."""
        return self.activations is not None

    @property
    def model_nbytes(self) -> int:
        """What training keeps of the model: parameters, gradients and the optimizer's state."""
        return self.parameters + self.gradients + self.optimizer_state

    @property
    def batch_nbytes(self) -> int:
        """What a batch adds."""
        return sum(nbytes for _, nbytes in self.inputs) - self.shared + (self.activations or 0)

    @property
    def nbytes(self) -> int:
        """The model, its buffers and the batch."""
        return self.model_nbytes + self.buffers + self.batch_nbytes

    @property
    def needed_nbytes(self) -> int:
        """The most that any step holds at once."""
        return max(self.peak_nbytes, self.later_peak_nbytes or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFigures:
    """The values of all parameters in a few figures; `nan` and `inf` also of buffers, by tensor."""

    count: int
    zeros: int
    low: float | None  # None: no value is finite
    high: float | None
    largest: float | None  # in absolute value
    largest_in: str | None  # the name of the tensor
    nan: Mapping[str, int]
    inf: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlikeTensors:
    """Tensors of one size, kind, shape and type that are held at the peak, by the first of them."""

    first: LiveTensor
    count: int

    @property
    def nbytes(self) -> int:
        """Of all of them."""
        return self.count * self.first.nbytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """Everything that one look at a model found.

    `report` is of the model itself, built by code and called with the inputs as given; None: there is no
    code. `trained` is of a training step. `unknown` has why a part is missing, by the part's name.
    """

    name: str | None  # of the model's class; None: nothing tells
    report: Report | None = None
    checkpoint: Report | None = None
    config: Mapping[str, Json] = field(default_factory=dict)
    normalisation: Mapping[str, Json] = field(default_factory=dict)
    by_type: tuple[TypeCount, ...] = ()
    nbytes_by_dtype: Mapping[str, int] = field(default_factory=dict)
    weights: WeightFigures | None = None  # of the checkpoint; None: they were not read
    matching: Matching | None = None
    flow: Flow | None = None
    trained: Report | None = None
    estimate: Estimate | None = None
    largest: tuple[AlikeTensors, ...] = ()  # at the peak of that step
    mixed: Estimate | None = None  # the same step with operators that compute in `mixed_dtype`
    mixed_dtype: str | None = None
    batch_problem: str | None = None  # why the batch is that of the inputs and not another
    unknown: Mapping[str, str] = field(default_factory=dict)
    failures: tuple[str, ...] = ()  # what went wrong, each with what to do next

    @property
    def described(self) -> Report:
        """The report that says what the model is: that of the code, else that of the file."""
        found = self.report or self.checkpoint
        if found is None:
            raise ValueError("nothing was inspected")
        return found
