"""A report as one page for browsers, with everything that can be worked out from it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modelglass.api._flow import flow
from modelglass.gc_pause import paused_gc
from modelglass.renderers._escape import unspoken
from modelglass.targets.paths import is_saved

if TYPE_CHECKING:
    from modelglass.report import Flow, Report, Scan, Unique

_DEEPEST = 6  # levels of a flow that a page can open
_MOST_NODES = 400  # of one drawing


@paused_gc()
def page(report: Report, scan: Scan | None = None, **layers: Any) -> str:
    """The whole report in one file of HTML; `layers` are options of the layers' table."""
    from modelglass.analyses.equal_blocks import with_blocks
    from modelglass.page import pages
    from modelglass.page.view import view
    from modelglass.renderers.flow import svg
    from modelglass.renderers.pages import html
    from modelglass.report.codec import dumps

    document = dumps(report, indent=None)
    report = with_blocks(report)
    flows = _flows(report)
    found = pages.whole(report, flows[0] if flows else None, _distinct(report), scan, **layers)
    drawn = view(report, flows)
    for each, drawing in zip(drawn.get("flows", ()), map(svg.drawing, flows), strict=True):
        each["svg"] = drawing
    return unspoken(html.render(found, document, drawn))


def scan_of(report: Report, target: Any, **options: Any) -> Scan | None:
    """What loading the files of a checkpoint would do; None for what is not read from files."""
    from modelglass.api._inspect import scan

    if report.checkpoint is None or not isinstance(target, (str, os.PathLike)) or not os.path.exists(target):
        return None
    return None if is_saved(Path(target)) else scan(target, **options)


def _flows(report: Report) -> list[Flow]:
    """The flow as deep as is readable, then each depth that is another drawing."""
    if report.dataflow is None or report.run.failure is not None:
        return []
    found = [flow(report)]
    for depth in range(1, _DEEPEST + 1):
        deeper = flow(report, depth=depth)
        if len(deeper.nodes) > _MOST_NODES or (depth > 1 and deeper.nodes == found[-1].nodes):
            break
        found.append(deeper)
    return found


def _distinct(report: Report) -> Unique | None:
    """The distinct modules and operators, where modules have types."""
    from modelglass.analyses.unique import unique

    return unique(report.model) if any(module.type for module in report.model.modules) else None
