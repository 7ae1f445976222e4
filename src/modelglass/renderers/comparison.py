"""Two models side by side, as text, Markdown and JSON."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from modelglass.renderers._escape import markdown, printable
from modelglass.renderers._markdown import head, line, note_items
from modelglass.renderers._terminal import (
    BOLD,
    DIM,
    RED,
    YELLOW,
    Paint,
    Style,
    Table,
    note_lines,
    painter,
    wrapped,
)
from modelglass.page.units import known, shape_text
from modelglass.report.codec import dumps

if TYPE_CHECKING:
    from modelglass.report.comparison import Compared, Comparison, Deviation, Pair, Standing, Term

_COLUMNS = ("a", "b", "difference", "in a", "in b", "times")
_NUMBERS = frozenset({"times", "parameters"})
_FLEXIBLE = {"a": 16, "b": 16, "difference": 20, "in a": 10, "in b": 10}
_ALL = ("a", "b", "tensors in a", "tensors in b", "by", "differs")
_ALL_FLEXIBLE = {"a": 16, "b": 16, "tensors in a": 10, "tensors in b": 10, "differs": 8}
_TERMS = ("from a to b", "parameters", "tensors")
_TERMS_FLEXIBLE = {"from a to b": 20, "tensors": 16}
_MOST = 4  # names of tensors that are told of a term
_EXPLAINED: tuple[tuple[Standing, str], ...] = (
    ("framework", "written in another way"),
    ("storage", "stored in another way"),
)
_NONE = "–"
_USUAL = ("weight", "bias", "running_", "scales")  # in the names of tensors that most layers have
_DIGITS = re.compile(r"(?<![^.\s])\d+(?![^.\s])")


class _Row(NamedTuple):
    """A difference, and how often it is met at places that differ only in the numbers of list members."""

    pair: Pair
    deviation: Deviation
    times: int


def render(comparison: Comparison, *, all: bool = False, width: int = 100, color: bool = False) -> str:
    """The verdict, the two models, and a table of what differs; with `all`, of everything side by side."""
    paint = painter(color)
    verdict = "\n".join(wrapped(printable(_verdict(comparison)), width))
    sections = [paint(verdict, BOLD if comparison.same else RED), _facts_text(comparison, width, paint)]
    rows = list(_rows(comparison))
    if rows:
        sections.append(_differences(rows, width, paint))
    first = _first(comparison)
    if first:
        sections.append("\n".join(wrapped(printable(first), width)))
    if all and comparison.pairs:
        sections.append(_everything(comparison, width, paint))
    if comparison.reconciliation:
        sections.append(_sum(comparison.reconciliation, width, paint))
    explained = [part for text in _explained(comparison) for part in wrapped(printable(text), width)]
    if explained:
        sections.append(paint("\n".join(explained), DIM))
    if comparison.notes:
        sections.append(note_lines(comparison.notes, width, paint))
    return "\n\n".join(sections) + "\n"


def render_markdown(comparison: Comparison, *, all: bool = False) -> str:
    """The same for a pull request."""
    lines = [f"### {markdown(_verdict(comparison))}", "", line(["", "a", "b"]), line(["---", "---", "---"])]
    lines += [line(map(markdown, row)) for row in _facts(comparison)]
    rows = list(_rows(comparison))
    if rows:
        lines += ["", *head(_COLUMNS, _COLUMNS, _NUMBERS)]
        lines += [line(map(markdown, _cells(row))) for row in rows]
    if _first(comparison):
        lines += ["", markdown(_first(comparison))]
    if all and comparison.pairs:
        lines += ["", *head(_ALL, _ALL, ())]
        lines += [line(map(markdown, _pair_cells(pair))) for pair in comparison.pairs]
    if comparison.reconciliation:
        lines += ["", *head(_TERMS, _TERMS, _NUMBERS)]
        lines += [line(map(markdown, row)) for row in _terms(comparison.reconciliation)]
    for text in _explained(comparison):
        lines += ["", markdown(text)]
    if comparison.notes:
        lines += ["", *note_items(comparison.notes)]
    return "\n".join(lines) + "\n"


def render_json(comparison: Comparison) -> str:
    """Every pair with all that differs, as JSON text that `mg.load` reads back equal."""
    return dumps(comparison)


def _verdict(comparison: Comparison) -> str:
    a, b = comparison.a, comparison.b
    lined = f"{a.matched:,} of {a.tensors:,} tensors of a line up with {b.matched:,} of {b.tensors:,} of b"
    if comparison.same:
        exact = "; their parameters reconcile exactly" if _adds_up(comparison) else ""
        return f"same: {lined}{exact}"
    count = sum(comparison.codes.values())
    places = len(comparison.differing) or count
    found = "1 difference" if count == 1 else f"{count:,} differences"
    where = "" if places == count else f" in {places:,} place{'s' if places > 1 else ''}"
    return f"different: {found}{where}; {lined}"


def _adds_up(comparison: Comparison) -> bool:
    return bool(comparison.reconciliation and comparison.reconciled)


def _facts(comparison: Comparison) -> Iterator[tuple[str, str, str]]:
    sides = comparison.a, comparison.b

    def row(name: str, *texts: str) -> tuple[str, str, str]:
        return name, texts[0], texts[1]

    yield row("model", *(f"{side.name} ({side.source})" for side in sides))
    yield row("tensors", *(f"{side.tensors:,}" for side in sides))
    yield row("parameters", *(known(side.params) for side in sides))
    if any(side.macs is not None for side in sides):
        yield row("MACs", *(_macs(side) for side in sides))


def _macs(side: Compared) -> str:
    if side.macs is None:
        return "did not run"
    return f"{side.macs:,}" if side.macs_complete else f"≥ {side.macs:,}"


def _facts_text(comparison: Comparison, width: int, paint: Paint) -> str:
    rows = [[printable(cell) for cell in row] for row in _facts(comparison)]
    table = Table(("", "a", "b"), ("", "a", "b"), rows, numbers=(), flexible={"a": 20, "b": 20})
    return table.text(width, [lambda column: DIM if not column else None] * len(rows), paint)


def _rows(comparison: Comparison) -> Iterator[_Row]:
    """What differs; what differs in the same way in each member of a list is told once."""
    first: dict[tuple[str, ...], tuple[Pair, Deviation]] = {}
    times: Counter[tuple[str, ...]] = Counter()
    for pair in comparison.pairs:
        for each in pair.deviations:
            if each.standing == "different":
                told = (pair.a, pair.b, each.tensor_a or each.tensor_b, each.a, each.b, each.text)
                key = (each.code, *map(_template, told))
                first.setdefault(key, (pair, each))
                times[key] += 1
    for key, (pair, deviation) in first.items():
        yield _Row(pair, deviation, times[key])


def _template(text: str | None) -> str:
    """A path without the numbers of list members."""
    return _NONE if text is None else _DIGITS.sub("*", text)


def _cells(row: _Row) -> list[str]:
    pair, each, times = row
    tensor = each.tensor_a or each.tensor_b
    name = "" if tensor is None or len(pair.tensors) < 2 else tensor.rpartition(".")[2]
    what = f"{each.code}: {each.text}" + (f" ({name})" if name and name not in each.text else "")
    places = [_place(pair.a, each.tensor_a), _place(pair.b, each.tensor_b)]
    if times > 1:  # the same in each member of a list
        places = [_template(place) for place in places]
    return [*places, what, each.a or _NONE, each.b or _NONE, f"{times:,}"]


def _place(path: str | None, tensor: str | None) -> str:
    """A module, or one of the parameters that it holds beside others, which is called by its own name."""
    name = "" if tensor is None else tensor.rpartition(".")[2]
    if path is None or not name or any(usual in name for usual in _USUAL):
        return _path(path)
    return tensor or ""


def _path(path: str | None) -> str:
    return _NONE if path is None else path or "(root)"


def _differences(rows: Sequence[_Row], width: int, paint: Paint) -> str:
    cells = [[printable(cell) for cell in _cells(row)] for row in rows]
    columns = _COLUMNS if any(row.times > 1 for row in rows) else _COLUMNS[:-1]
    shown = [row[: len(columns)] for row in cells]
    table = Table(columns, columns, shown, numbers=_NUMBERS, flexible=_FLEXIBLE)
    return table.text(width, [_style] * len(rows), paint)


def _style(column: str) -> str | None:
    return YELLOW if column == "difference" else None


def _first(comparison: Comparison) -> str:
    if comparison.first is None:
        return ""
    pair = comparison.pairs[comparison.first]
    code = next(each.code for each in pair.deviations if each.standing == "different")
    return f"first in the order of calls: {_path(pair.a)} ({code})"


def _everything(comparison: Comparison, width: int, paint: Paint) -> str:
    rows = [[printable(cell) for cell in _pair_cells(pair)] for pair in comparison.pairs]
    table = Table(_ALL, _ALL, rows, numbers=(), flexible=_ALL_FLEXIBLE)
    return table.text(width, [_pair_style(pair) for pair in comparison.pairs], paint)


def _pair_style(pair: Pair) -> Style:
    return lambda column: None if pair.same else YELLOW


def _pair_cells(pair: Pair) -> list[str]:
    places = [
        _NONE if path is None else f"{path or '(root)'} {type}".rstrip()
        for path, type in ((pair.a, pair.type_a), (pair.b, pair.type_b))
    ]
    shapes = [
        ", ".join(shape_text(shape) for shape in each) or _NONE
        for each in ([t.shape_a for t in pair.tensors], [t.shape_b for t in pair.tensors])
    ]
    codes = dict.fromkeys(each.code for each in pair.deviations if each.standing == "different")
    return [*places, *shapes, pair.matched or _NONE, ", ".join(codes) or _NONE]


def _sum(terms: Sequence[Term], width: int, paint: Paint) -> str:
    """How the parameters of one become as many as those of the other."""
    rows = [[printable(cell) for cell in row] for row in _terms(terms)]
    table = Table(_TERMS, _TERMS, rows, numbers=_NUMBERS, flexible=_TERMS_FLEXIBLE)
    return table.text(width, [_term_style(term) for term in terms], paint)


def _term_style(term: Term) -> Style:
    return lambda column: YELLOW if term.standing == "different" else None


def _terms(terms: Sequence[Term]) -> Iterator[tuple[str, str, str]]:
    for term in terms:
        if term.code == "total":
            yield term.text, f"{term.params:,}", ""
        else:
            names = _templates(term.tensors_b or term.tensors_a)
            yield f"{term.code}: {term.text}", f"{term.params:+,}", names


def _templates(names: Sequence[str]) -> str:
    """Names of tensors; those of the members of a list once."""
    alike: dict[str, list[str]] = {}
    for name in names:
        alike.setdefault(_template(name), []).append(name)
    told = [
        each[0] if len(each) == 1 else f"{template} ({len(each):,} times)" for template, each in alike.items()
    ]
    more = len(told) - _MOST
    return ", ".join([*told[:_MOST], *([f"{more:,} more"] if more > 0 else [])]) or _NONE


def _explained(comparison: Comparison) -> Iterator[str]:
    for standing, title in _EXPLAINED:
        counts: Counter[tuple[str, str]] = Counter()
        for pair in comparison.pairs:
            counts.update((each.code, each.text) for each in pair.deviations if each.standing == standing)
        if counts:
            told = "; ".join(
                f"{code}: {text}" + (f" ({times:,} times)" if times > 1 else "")
                for (code, text), times in counts.items()
            )
            yield f"{title}, not counted as different: {told}"
