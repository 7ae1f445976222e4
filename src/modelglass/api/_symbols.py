"""Which sizes can change: the model is run again with others."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from modelglass.errors import UsageError
from modelglass.report import Note, Report
from modelglass.targets.kind import report_nothing

if TYPE_CHECKING:
    from modelglass.frameworks.protocol import Adapter
    from modelglass.frameworks.shared.request import Request
    from modelglass.report import Observation
    from modelglass.symbols import Sizes, TrialRun


def with_symbols(report: Report, adapter: Adapter, native: Any, request: Request) -> Report:
    """The report with the sizes that can change, and the shapes that follow them."""
    from modelglass.symbols import find_symbols

    if report.engine is not None and report.dataflow is None:
        raise UsageError(
            "data and sizes cannot be followed inside an engine",
            hint="pass its configuration, which transformers builds",
        )
    if report.dataflow is None:
        return report  # it says itself that nothing ran to its end
    if report.run.mode != "fake":
        text = "which sizes can change is found with fake runs, and this model ran for real"
        return replace(report, notes=(*report.notes, Note(code="no-symbols", text=text)))
    tell = request.progress or report_nothing
    quiet = replace(request, progress=None)
    runs = 0

    def vary(sizes: Sizes) -> TrialRun | None:
        nonlocal runs
        runs += 1
        tell(f"trying other sizes, run {runs}")
        again: Observation = adapter.run_resized(native, quiet, sizes)
        if again.run.failure is not None or again.dataflow is None:
            return None
        return again.model, again.run, again.dataflow

    symbols, notes = find_symbols((report.model, report.run, report.dataflow), vary)
    return replace(report, symbols=symbols, notes=(*report.notes, *notes))
