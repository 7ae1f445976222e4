"""Two models side by side: which parts are each other's counterparts, and where they differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from modelglass.printing import Printed
from modelglass.report.model import Shape
from modelglass.report.report import Note

# What a deviation means. "framework": the two frameworks, or libraries, write the same thing in two ways.
# "storage": the same numbers are kept in another precision or packed. "different": the models differ.
Standing: TypeAlias = Literal["framework", "storage", "different"]

# How two parts found each other: by name, by their place in a list, by the shapes of their tensors (names
# differ), by being the likeliest left over, or by tensors of one that are joined or stacked in the other.
Matched: TypeAlias = Literal["name", "order", "shape", "likeness", "joined", "stacked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deviation:
    """One thing that is not the same in both. `code` is stable; `text` is for people.

    `a` and `b` are what each has, in a few characters, where that can be said.
    """

    code: str
    standing: Standing
    text: str
    a: str = ""
    b: str = ""
    tensor_a: str | None = None
    tensor_b: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorPair:
    """Tensors that hold the same weights: one on each side, or several that are joined or stacked in one.

    Shapes are logical: those of packed weights are what they stand for.
    """

    a: tuple[str, ...]
    b: tuple[str, ...]
    shape_a: Shape | None
    shape_b: Shape | None
    dtype_a: str
    dtype_b: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A part of one model and its counterpart in the other; None: it has no counterpart there."""

    a: str | None  # paths of modules
    b: str | None
    type_a: str = ""
    type_b: str = ""
    matched: Matched | None = None
    tensors: tuple[TensorPair, ...] = ()
    deviations: tuple[Deviation, ...] = ()

    @property
    def same(self) -> bool:
        """Whether nothing differs but what frameworks and storage explain."""
        return not any(each.standing == "different" for each in self.deviations)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedModel:
    """One of the two models. `matched` of its tensors have a counterpart or need none."""

    name: str
    source: str
    tensors: int
    matched: int
    params: int | None = None  # weights, each memory once, packed ones as many as they stand for
    macs: int | None = None  # of the forward pass; None: it did not run
    macs_complete: bool = True  # False: it takes more, for which there is no formula


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterTerm:
    """One term of the sum that leads from the parameters of one model to those of the other.

    The first and the last, of code "total", are the two numbers themselves; the others say what comes to the
    first one, or goes, and why. `code` is stable. `tensors_a` and `tensors_b` are those that it is about.
    """

    code: str
    text: str
    params: int
    standing: Standing = "framework"
    tensors_a: tuple[str, ...] = ()
    tensors_b: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(Printed):
    """Two models, part by part, in the order of the first one.

    `first` is the index of the pair that differs first in the order in which modules were called; None: they
    do not differ, or did not both run. `reconciliation` leads from the parameters of one to those of the
    other; it is empty where one number is not known, and where there is nothing to explain.
    """

    a: ComparedModel
    b: ComparedModel
    pairs: tuple[Pair, ...]
    first: int | None = None
    notes: tuple[Note, ...] = ()
    reconciliation: tuple[ParameterTerm, ...] = ()

    def __post_init__(self) -> None:
        if self.first is not None and not 0 <= self.first < len(self.pairs):
            raise ValueError(f"there is no pair {self.first}")
        *terms, total = [term.params for term in self.reconciliation] or [0]
        if sum(terms) != total:
            raise ValueError(f"{terms} do not add up to {total}")

    @property
    def same(self) -> bool:
        """Whether the one is a port of the other as far as structure, shapes and settings tell."""
        return all(pair.same for pair in self.pairs) and not any(
            term.code == "unexplained" for term in self.reconciliation
        )

    @property
    def reconciled(self) -> bool | None:
        """Whether frameworks and storage explain all of what one has more parameters than the other."""
        if not self.reconciliation:
            return None if None in (self.a.params, self.b.params) else self.a.params == self.b.params
        return not any(term.standing == "different" for term in self.reconciliation)

    @property
    def differing(self) -> tuple[Pair, ...]:
        """The pairs that differ."""
        return tuple(pair for pair in self.pairs if not pair.same)

    @property
    def codes(self) -> Mapping[str, int]:
        """How many differences there are by code, without those that frameworks and storage explain."""
        deviations = [each for pair in self.pairs for each in pair.deviations]
        found = Counter(each.code for each in deviations if each.standing == "different")
        return found + Counter(term.code for term in self.reconciliation if term.code == "unexplained")
