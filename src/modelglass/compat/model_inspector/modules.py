"""Every module: where it hangs, its type, its parameters, what it returned."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from modelglass.compat.model_inspector._lines import heading
from modelglass.page.units import value_text
from modelglass.renderers._escape import printable
from modelglass.renderers._terminal import Table, painter
from modelglass.report.layers import calls_by_module

if TYPE_CHECKING:
    from modelglass.compat.model_inspector.inspection import Inspection
    from modelglass.compat.model_inspector.words import Words
    from modelglass.report import Call

_COLUMNS = ("path", "type", "own", "total", "output")
_NUMBERS = ("own", "total")
_FLEXIBLE = {"path": 24, "type": 12, "output": 14}
SHOWN_OUTPUTS = 3


def sections(inspection: Inspection, say: Words, width: int) -> Iterator[str]:
    """A table of all modules, also those without parameters."""
    report = inspection.described
    counts = report.counts
    if counts is None:
        return
    calls = calls_by_module(report)
    ran = report.run.mode != "none"
    types = any(module.type for module in report.model.modules)
    shown = [name for name in _COLUMNS if (ran or name != "output") and (types or name != "type")]
    table = []
    for module in report.model.modules:
        held = counts.by_module[module.path]
        cells = {
            "path": printable(module.path or "(root)"),
            "type": printable(module.type),
            "own": f"{held.own.params:,}",
            "total": f"{held.total.params:,}",
            "output": printable(_output(calls[module.path], say)) if ran else "",
        }
        table.append([cells[name] for name in shown])
    keys = {"path": "path", "type": "module-type", "own": "own", "total": "with-children", "output": "output"}
    heads = [say(keys[name]) for name in shown]
    made = Table(shown, heads, table, numbers=_NUMBERS, flexible=_FLEXIBLE)
    yield heading(f"{say('modules')} ({len(table):,})")
    yield made.text(max(width, made.width()), [lambda name: None] * len(table), painter(False))


def _output(calls: list[Call], say: Words) -> str:
    if not calls:
        return say("not-called")
    shapes = [value_text(value) for value in calls[0].outputs[:SHOWN_OUTPUTS]]
    more = len(calls[0].outputs) - SHOWN_OUTPUTS
    return ", ".join(shapes + ([f"… {more}"] if more > 0 else [])) or "–"
