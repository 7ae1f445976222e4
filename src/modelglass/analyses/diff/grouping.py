"""Operations on single tensors as those on a model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING

from modelglass.report import Operation

if TYPE_CHECKING:
    from modelglass.analyses.diff.explained import Explained
    from modelglass.report.model import Json

# Kinds in the order in which a recipe names them.
KINDS = (
    *(
        "merged",
        "low-rank",
        "fine-tuned",
        "quantized",
        "cast",
        "extended",
        "truncated",
        "exchanged",
        "repeated",
    ),
    *("permuted", "transposed", "scaled", "offset", "sparse", "pruned", "reinitialised", "zeroed", "nan"),
    *("missing", "added"),
)


def grouped(found: Iterable[tuple[str, Explained]]) -> tuple[Operation, ...]:
    """One operation for each kind, with the tensors that it was done to."""
    by_kind: dict[str, dict[str, Explained]] = defaultdict(dict)
    for name, explained in found:
        by_kind[explained.kind][name] = explained
    return tuple(_operation(kind, by_kind[kind]) for kind in KINDS if kind in by_kind)


def _operation(kind: str, tensors: Mapping[str, Explained]) -> Operation:
    figures = {name: each.figures for name, each in tensors.items()}
    keys = list(dict.fromkeys(key for each in figures.values() for key in each))
    common: dict[str, Json] = {}
    differ = False
    for key in keys:
        values = [each.get(key) for each in figures.values()]
        common[key], alike = _in_common(values)
        differ = differ or not alike
    if differ:
        common["by_tensor"] = {name: dict(each) for name, each in figures.items()}
    return Operation(
        kind=kind,
        tensors=tuple(tensors),
        figures=common,
        confidence=min(each.confidence for each in tensors.values()),
        exact=all(each.exact for each in tensors.values()),
    )


def _in_common(values: Sequence[Json]) -> tuple[Json, bool]:
    """The value of all, or the middle one of numbers; and whether it is that of all."""
    if all(value == values[0] for value in values):
        return values[0], True
    numbers = [value for value in values if isinstance(value, (int, float)) and not isinstance(value, bool)]
    if numbers and all(isinstance(value, int) for value in numbers):
        return sorted(numbers)[len(numbers) // 2], False
    return (median(numbers) if numbers else None), False
