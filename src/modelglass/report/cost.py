"""What a run costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleCost:
    """Multiply-accumulates of a module's own operators, and with everything it called.

    None: the run ended before the module was called.
    """

    own_macs: int | None
    total_macs: int | None
    complete: bool  # False: an operator without a formula ran here or below, or the run ended here


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Multiply-accumulates of contractions; a floating-point operation is half of one."""

    macs: int
    forward_macs: int
    backward_macs: int
    recompute_macs: int
    effective_macs: int | None  # without those that pruning masks make useless; None: nothing is pruned
    coverage: float | None  # None: the run ended before the model did
    unknown_ops: Mapping[str, int]  # operator -> executions without a formula
    other_ops: Mapping[str, int]  # arithmetic the convention does not count as contraction
    by_module: Mapping[str, ModuleCost]
    stopped: bool = False  # an error ended the run, so that every total is of what ran until then

    def __post_init__(self) -> None:
        if self.macs != self.forward_macs + self.backward_macs + self.recompute_macs:
            raise ValueError("the phases do not add up to the total")
        if self.coverage is not None and not 0 <= self.coverage <= 1:
            raise ValueError(f"not a share: {self.coverage}")

    @property
    def flops(self) -> int:
        return 2 * self.macs

    @property
    def complete(self) -> bool:
        return not self.unknown_ops and not self.stopped
