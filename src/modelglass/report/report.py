"""What the analyses found, and the one document that carries it all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from modelglass.printing import Printed

if TYPE_CHECKING:  # what not every report has is loaded by those that do
    from modelglass.report.blocks import EqualBlocks
    from modelglass.report.checkpoint import Checkpoint
    from modelglass.report.cost import Cost
    from modelglass.report.dataflow import Dataflow, Symbols
    from modelglass.report.engine import Engine
    from modelglass.report.execution import Failure, Value
    from modelglass.report.layers import Layer
    from modelglass.report.memory import Memory
    from modelglass.report.model import Model, Tensor
    from modelglass.report.stats import TensorStats

RunMode: TypeAlias = Literal["fake", "real", "none"]
Severity: TypeAlias = Literal["info", "warning", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What is unknown or odd. `code` is stable; `text` is for people.

    `where` names modules or tensors, and `details` says of each what is particular to it, if anything.
    """

    code: str
    text: str
    severity: Severity = "info"
    where: tuple[str, ...] = ()
    details: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.details and len(self.details) != len(self.where):
            raise ValueError("each detail belongs to one place")

    @property
    def places(self) -> tuple[tuple[str, str], ...]:
        """Where, each with its detail."""
        return tuple(zip(self.where, self.details or ("",) * len(self.where), strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Elements and bytes of a set of tensors, each memory counted once."""

    params: int = 0
    trainable: int | None = 0  # None: unknown for some tensor
    buffers: int = 0
    nbytes: int = 0
    logical_params: int = 0

    @property
    def frozen(self) -> int | None:
        return None if self.trainable is None else self.params - self.trainable


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleCounts:
    """`own`: what the module itself holds and is first to hold. `total`: with everything below it."""

    own: Tally
    total: Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts(Tally):
    """The whole model's tally, which is the sum of every module's `own`, and how it is made up."""

    param_nbytes: int
    buffer_nbytes: int
    params_by_dtype: Mapping[str, int]
    active_params: int | None  # used for one token; None: it routes to an unknown number of experts
    tied: Mapping[str, str]  # a name that only repeats another -> that first name
    uninitialised: tuple[str, ...]
    unsized: tuple[str, ...]  # of an element type whose size is not known: missing in every `nbytes`
    by_module: Mapping[str, ModuleCounts]
    # Of all weights, with scales and the like of packed ones. None: nothing is packed.
    bits_per_weight: float | None = None
    shards: int | None = None  # bytes are of one of so many shards; None: of the whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """How the model was observed."""

    mode: RunMode
    train: bool = False
    inputs: tuple[Value, ...] = ()
    outputs: tuple[Value, ...] = ()
    failure: Failure | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Report(Printed):
    """Everything known about one model, in one piece of plain data."""

    model: Model
    run: Run = field(default_factory=lambda: Run(mode="none"))
    counts: Counts | None = None
    blocks: tuple[EqualBlocks, ...] | None = None  # None: nobody looked which blocks are equal
    cost: Cost | None = None
    memory: Memory | None = None  # None: nothing ran to its end
    dataflow: Dataflow | None = None  # None: nothing ran to its end
    symbols: Symbols | None = None  # None: nobody asked which sizes can change
    # By tensor name, None for a tensor without values to read. As a whole None when nobody asked.
    stats: Mapping[str, TensorStats | None] | None = None
    notes: tuple[Note, ...] = ()
    checkpoint: Checkpoint | None = None  # None: not read from a file
    engine: Engine | None = None  # None: nothing serves the model

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        """The tensors that hold parameters, tied ones once."""
        tied = self.counts.tied if self.counts else {}
        return tuple(t for t in self.model.tensors if t.kind != "buffer" and t.name not in tied)

    @property
    def layers(self) -> list[Layer]:
        """The modules as plain records, equal ones one by one: `pandas.DataFrame(report.layers)`."""
        from modelglass.report.layers import layers

        return layers(self)

    def __repr__(self) -> str:
        params = "" if self.counts is None else f", {self.counts.params:,} parameters"
        macs = "" if self.cost is None or self.run.mode == "none" else f", {self.cost.macs:,} MACs"
        return f"<Report of {self.model.name} ({self.model.source}){params}{macs}>"
