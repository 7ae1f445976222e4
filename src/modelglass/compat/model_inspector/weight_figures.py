"""The values of all weights in a few figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modelglass.compat.model_inspector.inspection import WeightFigures

if TYPE_CHECKING:
    from modelglass.report import Report


def weight_figures(report: Report) -> WeightFigures | None:
    """The figures of parameters; NaN and infinities also of buffers. None if no values were read."""
    if report.stats is None:
        return None
    everything = {name: each for name, each in report.stats.items() if each is not None}
    known = {each.name: everything[each.name] for each in report.parameters if each.name in everything}
    sizes = {name: each.absmax for name, each in known.items() if each.absmax is not None}
    far = max(sizes, key=sizes.__getitem__, default=None)
    return WeightFigures(
        count=sum(each.count for each in known.values()),
        zeros=sum(each.zeros for each in known.values()),
        low=min((each.min for each in known.values() if each.min is not None), default=None),
        high=max((each.max for each in known.values() if each.max is not None), default=None),
        largest=None if far is None else sizes[far],
        largest_in=far,
        nan={name: each.nan for name, each in everything.items() if each.nan},
        inf={name: each.inf for name, each in everything.items() if each.inf},
    )
