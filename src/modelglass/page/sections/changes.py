"""What changed between the values of two models: the recipe first, then the tensors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from modelglass.page import Block, Cell, Column, Heading, Items, Notes, RowTone, Table, Text
from modelglass.page.units import known, shape_text

if TYPE_CHECKING:
    from modelglass.report import Diff, DiffSide, Operation, TensorDiff

_SIDES = (Column("", "", tone="quiet"), Column("a", "a", least=20), Column("b", "b", least=20))
_RECIPE = (
    Column("operation", "operation"),
    Column("tensors", "tensors", number=True),
    Column("which", "which", least=20),
    Column("figures", "figures", least=20, cut="wrapped"),
    Column("sure", "sure", number=True),
)
_TENSORS = (
    Column("a", "a", least=16, cut="middle"),
    Column("b", "b", least=16, cut="middle"),
    Column("type_a", "type in a", from_width=110),
    Column("type_b", "type in b", from_width=110),
    Column("equal", "equal"),
    Column("changed", "changed", number=True),
    Column("relative_l2", "relative", number=True),
    Column("cosine", "cosine", number=True),
    Column("max_abs", "largest", number=True),
    Column("at", "at", from_width=100),
    Column("snr_db", "SNR dB", number=True),
    Column("nan_a", "NaN a", number=True, from_width=140),
    Column("nan_b", "NaN b", number=True, from_width=140),
    Column("inf_a", "inf a", number=True, from_width=140),
    Column("inf_b", "inf b", number=True, from_width=140),
)
_VERDICTS = {
    "identical": "identical: every bit of b is that of a",
    "equivalent": "equivalent: b has the values of a, written in another way",
    "derived": "derived: b follows from a",
    "unrelated": "unrelated: nothing better than chance connects the values of b with those of a",
    "incomparable": "incomparable: the values of a and b were not all compared",
}
_NONE = "–"
_MOST_SHOWN, _MOST_NAMES = 12, 3  # rows of a terminal, and names of tensors in one
_NUMBER = re.compile(r"(?<![^.\s])\d+(?![^.\s])")


def blocks(diff: Diff, *, all: bool) -> Iterator[Block]:
    """The verdict and the recipe, then what changed most; with `all`, every tensor."""
    yield Heading(_verdict(diff), tone="strong" if diff.same else "alarm")
    yield Table(_SIDES, list(_facts(diff)), whole=True)
    if diff.operations:
        yield Table(_RECIPE, [_operation(each) for each in diff.operations], whole=True)
    shown = tensors(diff, all=all, most=None if all else _MOST_SHOWN)
    if shown.rows:
        yield shown
    if diff.failures:
        yield Heading("could not be read", tone="alarm")
        yield Items([(each.tensor or each.file, f"{each.file}: {each.text}") for each in diff.failures])
    yield Text([_counted(diff)], tone="quiet")
    if diff.notes:
        yield Notes(diff.notes)


def tensors(diff: Diff, *, all: bool, most: int | None = None) -> Table:
    """The tensors that changed, the most first; with `all`, every tensor in the model's order."""
    rows = list(diff.tensors) if all else sorted(filter(_changed, diff.tensors), key=_by_drift)
    tones: list[RowTone] = ["warning" if _changed(each) else None for each in rows[:most]]
    more = f"{most:,} of {len(rows):,} tensors that changed" if most is not None and len(rows) > most else ""
    return Table(_TENSORS, [_cells(each) for each in rows[:most]], tones=tones if all else (), more=more)


def _changed(each: TensorDiff) -> bool:
    return not each.equal


def _by_drift(each: TensorDiff) -> float:
    return -(each.relative_l2 if each.relative_l2 is not None else float("inf"))


def _verdict(diff: Diff) -> str:
    text = _VERDICTS[diff.verdict]
    if diff.verdict == "derived" and diff.operations:
        return f"{text}: {', '.join(_briefly(each) for each in diff.operations)}"
    return text


def _briefly(operation: Operation) -> str:
    """An operation with its most telling figure and the number of tensors."""
    figures = operation.figures
    telling = {
        "cast": f"to {figures.get('to')}",
        "low-rank": f"of rank {figures.get('rank')}",
        "scaled": f"by {_figure(figures.get('factor'))}",
        "offset": f"by {_figure(figures.get('offset'))}",
        "sparse": f"in {_figure(figures.get('elements'))} elements",
        "pruned": f"of {_figure(figures.get('elements'))} elements",
        "quantized": f"to {figures.get('format')}",
    }.get(operation.kind)
    number = len(operation.tensors)
    which = f"{number:,} tensors" if number > 1 else operation.tensors[0]
    return f"{operation.kind} {telling} ({which})" if telling else f"{operation.kind} ({which})"


def _facts(diff: Diff) -> Iterator[tuple[str, str, str]]:
    sides = diff.a, diff.b

    def row(name: str, texts: Sequence[str]) -> tuple[str, str, str]:
        return name, texts[0], texts[1]

    yield row("model", [f"{side.name} ({side.source})" for side in sides])
    yield row("tensors", [f"{side.tensors:,}" for side in sides])
    yield row("parameters", [_params(side) for side in sides])


def _params(side: DiffSide) -> str:
    return known(side.params)


def _operation(operation: Operation) -> list[Cell | str]:
    return [
        operation.kind,
        Cell(f"{len(operation.tensors):,}", len(operation.tensors)),
        _names(operation.tensors),
        _figures(operation.figures),
        Cell(f"{100 * operation.confidence:.0f} %", operation.confidence),
    ]


def _names(names: Sequence[str]) -> str:
    """Names of tensors; those of the members of a list once."""
    alike = list(dict.fromkeys(_NUMBER.sub("*", name) for name in names))
    told = [names[0]] if len(names) == 1 else alike
    more = len(told) - _MOST_NAMES
    return ", ".join([*told[:_MOST_NAMES], *([f"{more:,} more"] if more > 0 else [])])


def _figures(figures: Mapping[str, Any]) -> str:
    told = {name: value for name, value in figures.items() if isinstance(value, (int, float, str))}
    return ", ".join(f"{name.replace('_', ' ')} {_figure(value)}" for name, value in told.items()) or _NONE


def _figure(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def _cells(each: TensorDiff) -> list[Cell | str]:
    equal = "not read" if each.equal is None else "yes" if each.equal else "no"
    names: list[Cell | str] = [Cell(name or _NONE, name) for name in (each.a, each.b)]
    figures = [each.relative_l2, each.cosine, each.max_abs]
    strange = [each.nan_a, each.nan_b, each.inf_a, each.inf_b]
    return [
        *names,
        each.dtype_a or _NONE,
        each.dtype_b or _NONE,
        Cell(equal, each.equal),
        _number(each.changed),
        *(_number(figure, ".6g") for figure in figures),
        _NONE if each.at is None else shape_text(each.at).replace("x", ","),
        _number(each.snr_db, ".1f"),
        *map(_number, strange),
    ]


def _number(value: float | None, format: str = ",") -> Cell:
    return Cell(_NONE if value is None else f"{value:{format}}", value)


def _counted(diff: Diff) -> str:
    equal = sum(bool(each.equal) for each in diff.tensors)
    compared = sum(each.equal is not None for each in diff.tensors)
    told = f"{equal:,} of {len(diff.tensors):,} tensors are equal to the bit; {compared:,} were compared"
    return f"{told}; {len(diff.ignored):,} were ignored" if diff.ignored else told
