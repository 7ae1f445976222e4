"""Two models side by side, and what differs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from modelglass.page import DATA_ONLY, Block, Cell, Column, Heading, RowTone, Table, Text, ending
from modelglass.page.units import known, shape_text

if TYPE_CHECKING:
    from modelglass.report.comparison import (
        ComparedModel,
        Comparison,
        Deviation,
        Pair,
        ParameterTerm,
        Standing,
    )

_SIDES = (Column("", "", tone="quiet"), Column("a", "a", least=20), Column("b", "b", least=20))
_DIFFERENCES = (
    Column("a", "a", least=16),
    Column("b", "b", least=16),
    Column("difference", "difference", least=20, tone="warning"),
    Column("in a", "in a", least=10),
    Column("in b", "in b", least=10),
    Column("times", "times", number=True),
)
_PAIRS = (
    Column("a", "a", least=16),
    Column("b", "b", least=16),
    Column("tensors in a", "tensors in a", least=10),
    Column("tensors in b", "tensors in b", least=10),
    Column("by", "by"),
    Column("differs", "differs", least=8),
)
_TERMS = (
    Column("from a to b", "from a to b", least=20),
    Column("parameters", "parameters", number=True),
    Column("tensors", "tensors", least=16),
)
_MOST = 4  # names of tensors that are shown of a term
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


def blocks(comparison: Comparison, *, all: bool) -> Iterator[Block]:
    """The verdict, the two models, and what differs; with `all`, everything side by side."""
    yield Heading(_verdict(comparison), tone="strong" if comparison.same else "alarm")
    yield Table(_SIDES, list(_facts(comparison)), whole=True)
    found = differences(comparison)
    if found.rows:
        yield found
    if comparison.first is not None:
        yield Text([_first(comparison, comparison.first)])
    if all and comparison.pairs:
        yield side_by_side(comparison)
    if comparison.reconciliation:
        yield _sum(comparison.reconciliation)
    yield from ending(_explain(comparison), comparison.notes)


def differences(comparison: Comparison) -> Table:
    """What differs, once where it is the same in each member of a list."""
    rows = list(_rows(comparison))
    repeated = any(row.times > 1 for row in rows)
    *columns, times = _DIFFERENCES
    columns.append(times if repeated else times._replace(from_width=DATA_ONLY))
    return Table(columns, [_cells(row) for row in rows])


def side_by_side(comparison: Comparison) -> Table:
    """Every part of one model with its counterpart in the other."""
    tones: list[RowTone] = [None if pair.same else "warning" for pair in comparison.pairs]
    return Table(_PAIRS, [_pair_cells(pair) for pair in comparison.pairs], tones=tones)


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


def _macs(side: ComparedModel) -> str:
    if side.macs is None:
        return "did not run"
    return f"{side.macs:,}" if side.macs_complete else f"≥ {side.macs:,}"


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


def _cells(row: _Row) -> list[Cell | str]:
    pair, each, times = row
    tensor = each.tensor_a or each.tensor_b
    name = "" if tensor is None or len(pair.tensors) < 2 else tensor.rpartition(".")[2]
    what = f"{each.code}: {each.text}" + (f" ({name})" if name and name not in each.text else "")
    places = [_place(pair.a, each.tensor_a), _place(pair.b, each.tensor_b)]
    if times > 1:  # the same in each member of a list
        places = [_template(place) for place in places]
    values = [value or Cell(_NONE, None) for value in (each.a, each.b)]
    return [*places, what, *values, Cell(f"{times:,}", times)]


def _place(path: str | None, tensor: str | None) -> str:
    """A module, or one of the parameters that it holds beside others, which is called by its own name."""
    name = "" if tensor is None else tensor.rpartition(".")[2]
    if path is None or not name or any(usual in name for usual in _USUAL):
        return _path(path)
    return tensor or ""


def _path(path: str | None) -> str:
    return _NONE if path is None else path or "(root)"


def _first(comparison: Comparison, place: int) -> str:
    pair = comparison.pairs[place]
    code = next(each.code for each in pair.deviations if each.standing == "different")
    return f"first in the order of calls: {_path(pair.a)} ({code})"


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


def _sum(terms: Sequence[ParameterTerm]) -> Table:
    """How the parameters of one become as many as those of the other."""
    tones: list[RowTone] = ["warning" if term.standing == "different" else None for term in terms]
    return Table(_TERMS, list(_terms(terms)), tones=tones, whole=True)


def _terms(terms: Sequence[ParameterTerm]) -> Iterator[tuple[str, Cell, str]]:
    for term in terms:
        if term.code == "total":
            yield term.text, Cell(f"{term.params:,}", term.params), ""
        else:
            names = _templates(term.tensors_b or term.tensors_a)
            yield f"{term.code}: {term.text}", Cell(f"{term.params:+,}", term.params), names


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


def _explain(comparison: Comparison) -> Iterator[str]:
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
