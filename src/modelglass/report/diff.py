"""What changed from one model's values to another's, and what explains it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from modelglass.printing import Printed
from modelglass.report.comparison import Comparison
from modelglass.report.model import Json, Shape
from modelglass.report.report import Note

# "identical": every bit. "equivalent": the same values, written in another way. "derived": b follows from a
# by the operations that are named. "unrelated": nothing better than chance connects the values.
# "incomparable": values were not read, or not all of those that the answer depends on.
DiffVerdict: TypeAlias = Literal["identical", "equivalent", "derived", "unrelated", "incomparable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorDiff:
    """The values of one tensor of a beside their counterpart in b, exact to six digits.

    Figures are of all elements that are finite on both sides; None: they are not known, or not defined.
    `at` is where in `a` the largest difference is. `trouble` says why values could not be compared.
    """

    a: str | None  # names of tensors; None: the other has no counterpart
    b: str | None
    shape_a: Shape | None = None
    shape_b: Shape | None = None
    dtype_a: str = ""  # the element type, or how it is packed
    dtype_b: str = ""
    equal: bool | None = None  # every bit, in the same order and type; None: values were not compared
    same_values: bool | None = None  # also in another type or order
    changed: int | None = None  # elements
    relative_l2: float | None = None  # of the difference, to a
    cosine: float | None = None
    max_abs: float | None = None
    at: Shape | None = None
    snr_db: float | None = None  # of a to the difference; None: there is none
    nan_a: int | None = None
    nan_b: int | None = None
    inf_a: int | None = None
    inf_b: int | None = None
    trouble: str | None = None

    @property
    def name(self) -> str:
        """What it is called in b, or else in a."""
        return self.b or self.a or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One thing that was done to some tensors of a, which are named as b names them.

    `confidence` is 1 where every bit was checked. An `exact` operation lost nothing: it only writes the same
    values in another way.
    """

    kind: str
    tensors: tuple[str, ...]
    figures: Mapping[str, Json] = field(default_factory=dict)
    confidence: float = 1.0
    exact: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """How sure it is that the values of two models have a common origin, and which came first."""

    p_value: float
    log10_p: float
    direction: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFailure:
    """Values that should be there and could not be read."""

    text: str
    file: str
    tensor: str | None = None
    hint: str = ""
    limit: bool = False  # reading stopped at a limit


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffSide:
    """One of the two models."""

    name: str
    source: str
    tensors: int
    params: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff(Printed):
    """What became of the values of a in b.

    `operations` explain it, the most telling first. `relation` is None where it was not computed; a note says
    so. What `failures` name was not compared.
    """

    a: DiffSide
    b: DiffSide
    verdict: DiffVerdict
    operations: tuple[Operation, ...] = ()
    tensors: tuple[TensorDiff, ...] = ()
    relation: Relation | None = None
    ignored: tuple[str, ...] = ()  # names that were left out because a pattern said so
    failures: tuple[ReadFailure, ...] = ()
    notes: tuple[Note, ...] = ()
    structure: Comparison | None = None

    @property
    def same(self) -> bool:
        """Whether both hold the same values."""
        return self.verdict in ("identical", "equivalent")

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of operations, each once."""
        return tuple(dict.fromkeys(each.kind for each in self.operations))
