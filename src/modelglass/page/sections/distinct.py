"""Distinct modules and operators."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from modelglass.page import Block, Cell, Column, Heading, Table, Tone, parse_columns
from modelglass.page.units import range_text, shape_text, share, short, value_text
from modelglass.report import Module, Report, Unique, UniqueModule, UniqueOp, Value

KINDS = ("modules", "ops")
UNIQUE_SORTS = ("count", "macs", "order")
UNIQUE_COLUMNS = ("id", "name", "count", "inputs", "outputs", "settings", "macs", "share", "where")
ROOT = "(root)"
_NUMBERS = frozenset({"count", "macs", "share"})
_LEAST = {"name": 20, "inputs": 14, "outputs": 12, "settings": 16, "where": 10}
_TONES: dict[str, Tone] = {"id": "quiet", "name": "accent", "settings": "quiet", "where": "quiet"}
_HEADS = {"count": "×", "macs": "MACs", "share": "%", "where": "first in"}
# Cells of a line from which a column is worth showing.
_FROM_WIDTH = {"where": 130, "settings": 100, "outputs": 70, "share": 60}
UNIQUE_DATA_COLUMNS = (
    "kind",
    "id",
    "name",
    "count",
    "macs",
    "total_macs",
    "inputs",
    "outputs",
    "settings",
    "where",
)


@dataclass(frozen=True, slots=True)
class Row:
    """One distinct module or operator. `macs` is for one time, `total_macs` for all.

    `count` is how often it ran; where nothing did, in how many places it is.
    """

    id: str
    name: str
    count: int
    inputs: Sequence[Value]
    outputs: Sequence[Value]
    settings: Mapping[str, Any]
    macs: int | None
    total_macs: int | None
    where: Sequence[str]
    ran: bool = True


@dataclass(frozen=True, slots=True)
class Section:
    """The rows of a kind that are to be shown, under what is to be said of them."""

    kind: str
    title: str
    rows: Sequence[Row]
    usual_dtype: str | None  # of most tensors here; others are named where they occur
    macs: int | None
    at_least: bool  # something ran whose cost is unknown


@dataclass(frozen=True, slots=True)
class UniqueChoice:
    """What to show: which kinds, most often or most costly first, and how many of each."""

    kinds: Sequence[str] = KINDS
    sort: str = "count"
    top: int | None = None

    def of(self, each: Sequence[Any]) -> list[Any]:
        """The chosen ones; those of unknown cost come last, equals in their own order."""
        ranks: dict[str, Callable[[Any], Any]] = {
            "order": lambda item: 0,
            "count": lambda item: -item.count,
            "macs": lambda item: (item.total_macs is None, -(item.total_macs or 0)),
        }
        return sorted(each, key=ranks[self.sort])[: self.top]


EVERYTHING = UniqueChoice()


def blocks(
    report: Report, unique: Unique, choice: UniqueChoice, columns: Sequence[str] | str | None
) -> Iterator[Block]:
    """A table of each kind, under what is said of it."""
    names = parse_columns(columns or UNIQUE_COLUMNS, UNIQUE_COLUMNS)
    for section in _sections(report, unique, choice):
        shown = [
            Column(
                name,
                _head(section, name),
                number=name in _NUMBERS,
                least=_LEAST.get(name),
                from_width=_FROM_WIDTH.get(name, 0) if columns is None else 0,
                tone=_TONES.get(name),
            )
            for name in names
        ]
        yield Heading(section.title)
        yield Table(shown, [[_cell(section, row, name) for name in names] for row in section.rows])


def data(report: Report, unique: Unique, choice: UniqueChoice, columns: Sequence[str] | str | None) -> Table:
    """Modules and operators under the same heads, with exact figures."""
    names = parse_columns(columns or UNIQUE_DATA_COLUMNS, UNIQUE_DATA_COLUMNS)
    places = [UNIQUE_DATA_COLUMNS.index(name) for name in names]
    rows: list[list[Cell | str]] = []
    for section in _sections(report, unique, choice):
        kind = section.kind.removesuffix("s")
        for row in section.rows:
            figures = [Cell(f"{each}", each) for each in (row.count, row.macs, row.total_macs)]
            values = [_exact(row.inputs), _exact(row.outputs), json.dumps(row.settings, ensure_ascii=False)]
            cells: list[Cell | str] = [kind, row.id, row.name, *figures, *values, "; ".join(row.where)]
            rows.append([cells[place] for place in places])
    return Table([Column(name, name) for name in names], rows)


def _sections(report: Report, unique: Unique, choice: UniqueChoice) -> Iterator[Section]:
    ran = report.run.mode != "none"
    if "modules" in choice.kinds:
        rows = module_rows(report, unique)
        number = f"{len(report.model.modules):,} modules, {len(unique.modules):,} distinct"
        how = "" if ran else "; without inputs nothing ran, and they are grouped by type and settings"
        yield _section("modules", f"{report.model.name}: {number}{how}", rows, choice, report)
    if "ops" in choice.kinds and ran:
        rows = [_op_row(report, each) for each in unique.ops]
        title = f"{unique.total_ops:,} operators executed, {len(unique.ops):,} distinct"
        if unique.counters:
            title += f" ({len(unique.counters):,} updates of counters left out)"
        yield _section("ops", title, rows, choice, report)


def _section(kind: str, title: str, rows: Sequence[Row], choice: UniqueChoice, report: Report) -> Section:
    values = [value for row in rows for value in (*row.inputs, *row.outputs)]
    dtypes = Counter(value.dtype for value in values if value.dtype is not None)
    usual = dtypes.most_common(1)[0][0] if dtypes else None
    shown = choice.of(rows)
    title += f"; tensors are {usual} unless noted" if usual else ""
    title += f"; the first {len(shown):,}" if len(shown) < len(rows) else ""
    cost = report.cost
    macs, at_least = (None, False) if cost is None else (cost.macs, not cost.complete)
    return Section(kind, title, shown, usual, macs, at_least)


def module_rows(report: Report, unique: Unique) -> list[Row]:
    by_path = {module.path: module for module in report.model.modules}
    return [
        _module_row(report, each, [by_path[path] for path in each.paths if path in by_path])
        for each in unique.modules
    ]


def _module_row(report: Report, each: UniqueModule, modules: Sequence[Module]) -> Row:
    call = report.model.calls[each.calls[0]] if each.calls else None
    return Row(
        id=each.id,
        name=modules[0].type,
        count=len(each.paths) if report.run.mode == "none" else each.count,
        inputs=tensors(call.inputs) if call else (),
        outputs=tensors(call.outputs) if call else (),
        settings=_ranges([module.config for module in modules]),
        macs=each.macs,
        total_macs=each.total_macs,
        where=[shown_path(path) for path in each.paths],
        ran=call is not None,
    )


def _ranges(configs: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The settings of modules that are alike: where a rate, their number or name differs, its range."""
    first = configs[0]
    if all(config == first for config in configs):
        return first
    several = {key: [config[key] for config in configs] for key in first}
    differing = {key for key, values in several.items() if any(value != first[key] for value in values)}
    return {key: range_text(several[key], _compact) if key in differing else first[key] for key in first}


def _op_row(report: Report, each: UniqueOp) -> Row:
    op = report.model.ops[each.ops[0]]
    places = dict.fromkeys(shown_path(report.model.ops[index].module) for index in each.ops)
    return Row(
        id=each.id,
        name=op.name,
        count=each.count,
        inputs=tensors(op.inputs),
        outputs=tensors(op.outputs),
        settings=op.attributes,
        macs=each.macs,
        total_macs=each.total_macs,
        where=list(places),
    )


def _head(section: Section, column: str) -> str:
    if column == "name":
        return "module" if section.kind == "modules" else "operator"
    if column == "settings" and section.kind == "ops":
        return "attributes"
    return _HEADS.get(column, column)


def _cell(section: Section, row: Row, column: str) -> str:
    if column == "id":
        return row.id
    if column == "name":
        return known_as(row.name) if section.kind == "ops" else row.name
    if column == "count":
        return f"{row.count:,}" if row.count else "–"
    if column in ("inputs", "outputs"):
        values: Sequence[Value] = getattr(row, column)
        return ", ".join(_typed(value, section.usual_dtype) for value in values) or "–"
    if column == "settings":
        return " ".join(f"{key}={_compact(item)}" for key, item in row.settings.items() if item is not None)
    if column == "macs":
        return "?" if row.ran and row.macs is None else short(row.macs) if row.macs else "–"
    if column == "share":
        if row.ran and row.macs is None:
            return "?"
        part = share(row.total_macs or 0, section.macs or 0)
        return f"≤ {part}" if section.at_least and row.total_macs else part
    more = len(row.where) - 1
    return f"{row.where[0]} +{more}" if more else row.where[0]


_ALIASES = {"torch.nn.functional.": "F.", "torch.Tensor.": "Tensor.", "torch.ops.": ""}


def known_as(name: str) -> str:
    """An operator as people write it after the usual imports."""
    for prefix, alias in _ALIASES.items():
        if name.startswith(prefix):
            return alias + name.removeprefix(prefix)
    return name


def _typed(value: Value, usual: str | None) -> str:
    shape = value_text(value)
    return shape if value.dtype in (None, usual) else f"{shape}:{value.dtype}"


def _compact(item: Any) -> str:
    return item if isinstance(item, str) else json.dumps(item, separators=(",", ":"))


def _exact(values: Sequence[Value]) -> str:
    return "; ".join(f"{value.name} {shape_text(value.shape)} {value.dtype}".strip() for value in values)


def shown_path(path: str) -> str:
    """The path as documents write it; the root has a name there."""
    return path or ROOT


def tensors(values: Sequence[Value]) -> list[Value]:
    """The tensors among the values."""
    return [value for value in values if value.dtype is not None]
