"""Distinct modules and operators as text, Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from modelglass.renderers._escape import csv_cell, markdown, printable
from modelglass.renderers._json import pretty
from modelglass.renderers._markdown import head, line, note_items
from modelglass.renderers._terminal import BOLD, CYAN, DIM, Table, note_lines, painter, wrapped
from modelglass.page.units import shape_text, share, short, value_text
from modelglass.renderers.columns import known_columns
from modelglass.renderers.records import module_records, op_records, remarks, shown_path, tensors
from modelglass.report import Module, Report, Unique, UniqueModule, UniqueOp, Value

KINDS = ("modules", "ops")
UNIQUE_SORTS = ("count", "macs", "order")
UNIQUE_COLUMNS = ("id", "name", "count", "inputs", "outputs", "settings", "macs", "share", "where")
_NUMBERS = frozenset({"count", "macs", "share"})
_FLEXIBLE = {"name": 20, "inputs": 14, "outputs": 12, "settings": 16, "where": 10}
_STYLE = {"id": DIM, "name": CYAN, "settings": DIM, "where": DIM}
_HEADS = {"count": "×", "macs": "MACs", "share": "%", "where": "first in"}


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


def render(
    report: Report,
    unique: Unique,
    choice: UniqueChoice = EVERYTHING,
    *,
    columns: Sequence[str] | str | None = None,
    width: int = 100,
    color: bool = False,
) -> str:
    """The tables as text of at most `width` cells a line."""
    paint = painter(color)
    names = known_columns(columns or _default_columns(width), UNIQUE_COLUMNS)
    parts = []
    for section in _sections(report, unique, choice):
        texts = [[printable(_cell(section, row, name)) for name in names] for row in section.rows]
        heads = [_head(section, name) for name in names]
        table = Table(names, heads, texts, numbers=_NUMBERS, flexible=_FLEXIBLE)
        title = "\n".join(wrapped(printable(section.title), width))
        parts.append(f"{paint(title, BOLD)}\n\n{table.text(width, [_STYLE.get] * len(texts), paint)}")
    if report.notes:
        parts.append(note_lines(report.notes, width, paint))
    return "\n\n".join(parts) + "\n"


def render_markdown(
    report: Report,
    unique: Unique,
    choice: UniqueChoice = EVERYTHING,
    *,
    columns: Sequence[str] | str | None = None,
) -> str:
    """The tables for a pull request."""
    names = known_columns(columns or UNIQUE_COLUMNS, UNIQUE_COLUMNS)
    lines: list[str] = []
    for section in _sections(report, unique, choice):
        lines += [f"### {markdown(section.title)}", ""]
        lines += head(names, [_head(section, name) for name in names], _NUMBERS)
        lines += [line(markdown(_cell(section, row, name)) for name in names) for row in section.rows]
        lines.append("")
    lines += note_items(report.notes)
    return "\n".join(lines).rstrip("\n") + "\n"


def render_csv(report: Report, unique: Unique, choice: UniqueChoice = EVERYTHING) -> str:
    """One line each with exact figures: modules and operators under the same heads."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerow(
        ["kind", "id", "name", "count", "macs", "total_macs", "inputs", "outputs", "settings", "where"]
    )
    for section in _sections(report, unique, choice):
        for row in section.rows:
            figures = [row.count, row.macs, row.total_macs]
            values = [_exact(row.inputs), _exact(row.outputs), json.dumps(row.settings), "; ".join(row.where)]
            name, *texts = map(csv_cell, [row.name, *values])
            writer.writerow([section.kind.removesuffix("s"), row.id, name, *figures, *texts])
    return out.getvalue()


def render_json(report: Report, unique: Unique, choice: UniqueChoice = EVERYTHING) -> str:
    """The records that `unique_modules.json` and `pytorch_ops.json` have, in one document."""
    document: dict[str, Any] = {"model_class": report.model.name}
    if "modules" in choice.kinds:
        rows = choice.of(_module_rows(report, unique))
        chosen = {each.id: each for each in unique.modules}
        modules = [chosen[row.id] for row in rows]
        records = zip(modules, module_records(report, modules), strict=True)
        document |= {
            "total_modules": len(report.model.modules),
            "unique_modules": len(unique.modules),
            "modules": [
                {**record, "macs": each.macs, "total_macs": each.total_macs} for each, record in records
            ],
        }
    if "ops" in choice.kinds and report.run.mode != "none":
        document |= {
            "total_ops": unique.total_ops,
            "unique_ops": len(unique.ops),
            "counter_updates": len(unique.counters),
            "ops": op_records(report, unique, choice.of(unique.ops)),
        }
    document["notes"] = remarks(report)
    return pretty(document)


def _sections(report: Report, unique: Unique, choice: UniqueChoice) -> Iterator[Section]:
    ran = report.run.mode != "none"
    if "modules" in choice.kinds:
        rows = _module_rows(report, unique)
        number = f"{len(report.model.modules):,} modules, {len(unique.modules):,} distinct"
        how = "" if ran else "; without inputs nothing ran, and they are told apart by what they are"
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
    title += f"; tensors are {usual} unless said" if usual else ""
    title += f"; the first {len(shown):,}" if len(shown) < len(rows) else ""
    cost = report.cost
    macs, at_least = (None, False) if cost is None else (cost.macs, not cost.complete)
    return Section(kind, title, shown, usual, macs, at_least)


def _module_rows(report: Report, unique: Unique) -> list[Row]:
    by_path = {module.path: module for module in report.model.modules}
    return [_module_row(report, each, by_path[each.paths[0]]) for each in unique.modules]


def _module_row(report: Report, each: UniqueModule, module: Module) -> Row:
    call = report.model.calls[each.calls[0]] if each.calls else None
    return Row(
        id=each.id,
        name=module.type,
        count=len(each.paths) if report.run.mode == "none" else each.count,
        inputs=tensors(call.inputs) if call else (),
        outputs=tensors(call.outputs) if call else (),
        settings=module.config,
        macs=each.macs,
        total_macs=each.total_macs,
        where=[shown_path(path) for path in each.paths],
        ran=call is not None,
    )


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


# Columns that a line must be at least so wide for, to be worth showing.
_FROM_WIDTH = {"where": 130, "settings": 100, "outputs": 70, "share": 60}


def _default_columns(width: int) -> list[str]:
    return [name for name in UNIQUE_COLUMNS if width >= _FROM_WIDTH.get(name, 0)]


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
        return _known_as(row.name) if section.kind == "ops" else row.name
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


def _known_as(name: str) -> str:
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
