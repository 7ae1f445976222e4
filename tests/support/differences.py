"""What a comparison found, in a form that tests can write down."""

from __future__ import annotations

from modelglass.report import Comparison


def found(comparison: Comparison) -> list[tuple[str | None, str | None, str]]:
    """Where they differ, and how."""
    return [
        (pair.a, pair.b, each.code)
        for pair in comparison.pairs
        for each in pair.deviations
        if each.standing == "different"
    ]
