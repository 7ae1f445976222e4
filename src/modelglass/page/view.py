"""A report as columns of plain values, for scripts that sort, search and draw it.

Nothing here is a new figure: each stands in the report. Texts that repeat are numbered, and figures that
hardly change are differences, so that many rows take little room.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from modelglass.page import text_of
from modelglass.page.sections.distinct import known_as
from modelglass.page.sections.layer_cells import Cells, Row, rows_of
from modelglass.page.units import shape_text
from modelglass.report import FINDINGS
from modelglass.report.memory import CATEGORIES
from modelglass.report.stats import described_shape

if TYPE_CHECKING:
    from modelglass.report import Flow, Memory, Module, Report

_TEXTS = ("type", "input", "output", "tensors", "dtype", "config")  # of a module
_FIGURES = ("params", "trainable", "buffers", "nbytes", "macs", "saved_nbytes", "calls")
_STATS = ("count", "zeros", "nan", "inf", "mean", "std", "min", "max", "l2", "rms")


def view(report: Report, flows: Sequence[Flow] = ()) -> dict[str, Any]:
    """Everything that a page draws beside its texts; what the report does not have is absent."""
    parts = {
        "modules": _modules(report),
        "flows": [_flow(each) for each in flows],
        "memory": None if report.memory is None else _memory(report.memory),
        "weights": None if report.stats is None else _weights(report),
    }
    return {name: part for name, part in parts.items() if part}


def _modules(report: Report) -> dict[str, Any]:
    """A row for each module, and the rows of the table in which equal blocks are one."""
    modules = _in_order(report)
    places = {module.path: place for place, module in enumerate(modules)}
    cells = Cells(report)
    rows = [Row((module,), module.name, ()) for module in modules]
    texts = {name: numbered(text_of(cells.cell(row, name)) for row in rows) for name in _TEXTS}
    texts["operators"] = numbered(_operators(report, modules))
    folded = rows_of(report)
    records: dict[str, dict[str, Any]] = {layer["path"]: dict(layer) for layer in report.layers}
    figures = {name: [records[module.path][name] for module in modules] for name in _FIGURES}
    return {
        "name": [module.name for module in modules],
        "parent": differences(_parents(modules, places)),
        "texts": {name: column for name, column in texts.items() if len(column["words"]) > 1},
        "figures": {name: column for name, column in figures.items() if any(column)},
        "atLeast": _incomplete(report, modules),
        "folded": None if len(folded) == len(modules) else [_folded(row, places) for row in folded],
        "failed": None if report.run.failure is None else report.run.failure.module,
    }


def _in_order(report: Report) -> Sequence[Module]:
    """The modules, each right before those it contains."""
    return [row.module for row in rows_of(report, fold=False) if row.alias_of is None]


def _operators(report: Report, modules: Sequence[Module]) -> Iterator[str]:
    """What ran in each module itself, in forward."""
    ran: dict[str, Counter[str]] = defaultdict(Counter)
    for op in report.model.ops:
        if op.phase == "forward":
            ran[op.module][known_as(op.name)] += 1
    for module in modules:
        found = ran[module.path]
        yield ", ".join(f"{name} ×{times:,}" if times > 1 else name for name, times in found.items())


def _parents(modules: Sequence[Module], places: Mapping[str, int]) -> Iterator[int]:
    """The place of the module that contains each; the root has none."""
    holders = {child: module.path for module in modules for child in module.children}
    for module in modules:
        yield places[holders[module.path]] if module.path in holders else -1


def _folded(row: Row, places: Mapping[str, int]) -> list[Any]:
    """Its name, its depth, and the places of the modules it stands for; an alias stands for none."""
    if row.alias_of is not None:
        return [f"{row.name} = {row.alias_of or '(root)'}", row.depth, [places[row.module.path]], True]
    return [row.name, row.depth, differences(places[member.path] for member in row.members)]


def _incomplete(report: Report, modules: Sequence[Module]) -> list[int]:
    """The modules in which something ran whose cost is not known."""
    if report.cost is None:
        return []
    by_module = report.cost.by_module
    return [
        place
        for place, module in enumerate(modules)
        if module.path in by_module and not by_module[module.path].complete
    ]


def _memory(memory: Memory) -> dict[str, Any]:
    moments = memory.timeline
    held = {
        category: differences(moment.held[index] for moment in moments)
        for index, category in enumerate(CATEGORIES)
        if any(moment.held[index] for moment in moments)
    }
    texts = {
        name: numbered(getattr(moment, name) for moment in moments) for name in ("op", "module", "phase")
    }
    return {"held": held, **texts, "at": memory.at}


def _weights(report: Report) -> dict[str, Any]:
    """A row for each tensor with values, and what was found in it."""
    found = _findings(report)
    stats = report.stats or {}
    shown = [(tensor, stats[tensor.name]) for tensor in report.model.tensors if stats.get(tensor.name)]
    figures = {name: [getattr(each, name) for _, each in shown] for name in _STATS}
    histograms = [each.histogram if each is not None else None for _, each in shown]
    return {
        "name": [tensor.name for tensor, _ in shown],
        "dtype": numbered(tensor.dtype for tensor, _ in shown),
        "shape": numbered(shape_text(described_shape(tensor, each)) for tensor, each in shown),
        "figures": figures,
        "findings": numbered(", ".join(found.get(tensor.name, ())) for tensor, _ in shown),
        "bins": [None if each is None else [each.low, each.high, *each.counts] for each in histograms],
    }


def _findings(report: Report) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = {}
    for note in report.notes:
        for name in note.where if note.code in FINDINGS else ():
            found.setdefault(name, []).append(note.code)
    return found


def _flow(flow: Flow) -> dict[str, Any]:
    """What is known of each node, beside what is drawn."""
    from modelglass.page.flow_words import details

    nodes = {
        node.id: {
            "path": node.path,
            "paths": list(node.paths),
            "kind": node.kind,
            "about": list(details(node)),
        }
        for node in flow.nodes
    }
    edges = [[edge.source, edge.target] for edge in flow.edges]
    return {"depth": flow.depth, "nodes": nodes, "edges": edges}


def numbered(texts: Iterable[str]) -> dict[str, Any]:
    """The texts, each once, and which of them stands in each row."""
    numbers: dict[str, int] = {}
    rows = [numbers.setdefault(text, len(numbers)) for text in texts]
    return {"words": list(numbers), "rows": rows}


def differences(numbers: Iterable[int]) -> list[int]:
    """Each number as its difference to the one before it."""
    found, before = [], 0
    for number in numbers:
        found.append(number - before)
        before = number
    return found
