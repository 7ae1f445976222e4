"""What a model is made of when repetitions are taken together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class UniqueModule:
    """Modules that are alike and were called alike.

    `paths` are all their places in the tree, `calls` their executions by index in `Model.calls`: none when
    they were never called. `macs` is what one call cost with everything it called in turn.
    """

    id: str
    paths: tuple[str, ...]
    calls: tuple[int, ...] = ()
    macs: int | None = None  # None: not called, not priced, or an operator without a formula ran

    def __post_init__(self) -> None:
        if not self.paths:
            raise ValueError("a module that is nowhere")

    @property
    def count(self) -> int:
        """How often one of them was called."""
        return len(self.calls)

    @property
    def total_macs(self) -> int | None:
        return None if self.macs is None else self.macs * self.count


@dataclass(frozen=True, slots=True, kw_only=True)
class UniqueOp:
    """Operator executions that are alike: by index in `Model.ops`, and the unique module each belongs to."""

    id: str
    ops: tuple[int, ...]
    modules: tuple[str, ...]
    macs: int | None = None  # of one execution

    def __post_init__(self) -> None:
        if not self.ops or len(self.ops) != len(self.modules):
            raise ValueError("each execution belongs to one module")

    @property
    def count(self) -> int:
        """How often it ran."""
        return len(self.ops)

    @property
    def total_macs(self) -> int | None:
        return None if self.macs is None else self.macs * self.count


@dataclass(frozen=True, slots=True, kw_only=True)
class Unique:
    """The distinct modules in the tree's order, the distinct operators in order of execution.

    `counters` are operators, by index, that only advance a counter the model keeps, as a batch norm does for
    the batches it has seen in training: they belong to no computation and are none of `ops`.
    """

    modules: tuple[UniqueModule, ...] = ()
    ops: tuple[UniqueOp, ...] = ()
    counters: tuple[int, ...] = ()

    @property
    def total_ops(self) -> int:
        """Executions of all operators."""
        return sum(op.count for op in self.ops)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproducers:
    """Files that run one operator each, and why some distinct operators, by id, have none."""

    files: tuple[str, ...]
    missing: Mapping[str, str]
