"""What a reader must know about the figures: where they have holes and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from modelglass.report import Note

if TYPE_CHECKING:
    from modelglass.report import Cost, Counts, Lifetimes, Memory


def figure_notes(counts: Counts, cost: Cost | None) -> Iterator[Note]:
    """A note for every figure that is not the whole truth."""
    yield from count_notes(counts)
    if cost is None:
        return
    if cost.unknown_ops:
        yield Note(code="unknown-ops", severity="warning", text=_unknown(cost.unknown_ops))
    if cost.other_ops:
        yield Note(
            code="other-arithmetic",
            text=f"not counted as multiply-accumulates: {_list_ops(cost.other_ops)}",
        )


def _unknown(ops: Mapping[str, int]) -> str:
    """Why operators have no cost: nobody wrote a formula, or its sizes are not known."""
    from modelglass.analyses.cost.formulas import (
        has_formula,  # a file has no operators, and is listed without
    )

    sizeless = {name: times for name, times in ops.items() if has_formula(name.replace("::", "."))}
    strange = {name: times for name, times in ops.items() if name not in sizeless}
    reasons = []
    if strange:
        reasons.append(f"no formula for {_list_ops(strange)} (mg.register_formula adds one)")
    if sizeless:
        reasons.append(f"sizes that decide the cost of {_list_ops(sizeless)} are not known")
    return f"{'; '.join(reasons)}; totals are lower bounds"


def memory_notes(lifetimes: Lifetimes) -> Iterator[Note]:
    """A note on kernels whose scratch was asked for and could not be measured."""
    if lifetimes.other_gradients:
        yield Note(
            code="gradient-differs",
            severity="warning",
            text="torch computes these kernels or their gradients in another way when they are not observed; "
            "the peak is an estimate",
            where=lifetimes.other_gradients,
        )
    if lifetimes.missing:
        yield Note(
            code="scratch-unknown",
            severity="warning",
            text="what these kernels take for themselves could not be measured, and is not included",
            where=tuple(lifetimes.missing),
            details=tuple(lifetimes.missing.values()),
        )


def change_notes(memory: Memory | None) -> Iterator[Note]:
    """A note for each change by arithmetic that changes nothing."""
    for each in () if memory is None else memory.coverage:
        if not each.has_effect:
            what = "other types of weights change" if each.change == "weights" else "more devices change"
            yield Note(
                code="what-if-without-effect",
                severity="warning",
                text=f"{what} nothing here: this model has no weights that it applies to",
            )


def count_notes(counts: Counts) -> Iterator[Note]:
    """A note for every count that is not the whole truth."""
    if counts.uninitialised:
        yield Note(
            code="uninitialised",
            text="lazy parameters have no size before their first input; they are not in the totals",
            where=counts.uninitialised,
        )
    if counts.unsized:
        yield Note(
            code="unknown-size",
            severity="warning",
            text="tensors of an element type whose size is not known; byte totals are lower bounds",
            where=counts.unsized,
        )
    if counts.active_params is None:
        yield Note(
            code="active-unknown",
            text="this model routes tokens to experts; to how many is not recorded",
        )


def _list_ops(ops: Mapping[str, int]) -> str:
    return ", ".join(f"{name} ×{times}" if times > 1 else name for name, times in ops.items())
