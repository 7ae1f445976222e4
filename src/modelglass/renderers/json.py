"""The report for machines: versioned JSON whose schema is published in docs/."""

from __future__ import annotations

from modelglass.report import Report
from modelglass.report.codec import dumps


def render(report: Report, *, indent: int | None = 2) -> str:
    """The report as JSON text that `mg.load` reads back equal."""
    return dumps(report, indent=indent)
