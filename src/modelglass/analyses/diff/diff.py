"""What became of the values of one model in another."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

from modelglass.analyses.counts import count
from modelglass.analyses.diff import cast, merged, recipe
from modelglass.analyses.diff.change import load
from modelglass.analyses.diff.explained import Explained
from modelglass.analyses.diff.grouping import grouped
from modelglass.analyses.diff.joining import in_joined_order
from modelglass.analyses.diff.moved import find_moved
from modelglass.analyses.diff.pairing import Paired, pair_tensors
from modelglass.analyses.diff.related import ENOUGH
from modelglass.analyses.diff.sampled import Budget, explain_sampled
from modelglass.analyses.diff.stream import Advance, Sources, Streamed, part_of, stream
from modelglass.errors import LimitError
from modelglass.report import Diff, DiffSide, Note, ReadFailure, Values

if TYPE_CHECKING:
    from modelglass.report import Comparison, DiffVerdict, Model

_MADE_ANEW = frozenset({"reinitialised", "zeroed"})  # nothing of a is left
_PARENTAGE = "whether the two have a common origin was not tested beyond the values of counterparts"


class Compared(NamedTuple):
    """One of the two: its model, and where its values are; None: nobody has them."""

    model: Model
    values: Sources | None


def diff(
    comparison: Comparison,
    a: Compared,
    b: Compared,
    *,
    others: Sequence[tuple[Comparison, Compared]] = (),
    ignore: Sequence[str] = (),
    tolerance: float = 0.0,
    unsaved: Collection[str] = (),
    advance: Advance | None = None,
) -> Diff:
    """What changed from a to b, and what explains it.

    `others` are models that b may be merged of, each with its comparison with a.
    `ignore` are patterns of names. Tensors whose relative difference is within the `tolerance` count as the
    same. `unsaved` are buffers that a checkpoint does not have.
    """
    every = pair_tensors(comparison, a.model, b.model)
    pairs = [each for each in every if not _is_ignored(each, ignore) and not _is_aside(each, unsaved)]
    ignored = tuple(_name(each) for each in every if _is_ignored(each, ignore))
    values_known = a.values is not None and b.values is not None
    sources = a.values or {}, b.values or {}
    merging = [_by_counterpart(structure, a.model, other) for structure, other in others]
    found = stream(in_joined_order(pairs, *sources), *sources, advance=advance)
    explained = list(_explanations(found, merging, tolerance)) if values_known else list(_alone(pairs))
    verdict = _verdict(found, explained, tolerance)
    if verdict == "unrelated":
        explained = []
    return Diff(
        a=_side(a.model),
        b=_side(b.model),
        verdict=verdict,
        operations=grouped(explained),
        tensors=tuple(each.diff for each in found),
        ignored=ignored,
        failures=tuple(_failure(each) for each in found if each.failure is not None),
        notes=tuple(_notes(found, comparison, values_known)),
        structure=comparison,
    )


def _by_counterpart(structure: Comparison, a: Model, other: Compared) -> dict[str, Values]:
    """The values of another model by the names that a has for its tensors."""
    found = {}
    for pair in pair_tensors(structure, a, other.model):
        values = (other.values or {}).get(pair.b.name) if pair.b is not None else None
        if pair.a is not None and pair.b is not None and isinstance(values, Values):
            found[pair.a.name] = part_of(values, pair.b)
    return found


def _side(model: Model) -> DiffSide:
    return DiffSide(
        name=model.name, source=model.source, tensors=len(model.tensors), params=count(model).params
    )


def _name(pair: Paired) -> str:
    """What a pair is called: as in b, or else as in a."""
    piece = pair.b or pair.a
    return "" if piece is None else piece.name


def _is_ignored(pair: Paired, patterns: Sequence[str]) -> bool:
    names = [piece.name for piece in (pair.a, pair.b) if piece is not None]
    return any(fnmatchcase(name, pattern) for pattern in patterns for name in names)


def _is_aside(pair: Paired, unsaved: Collection[str]) -> bool:
    """Whether it is a buffer that only one has because checkpoints are written without it."""
    return (pair.a is None or pair.b is None) and _name(pair) in unsaved


def _is_same(each: Streamed, tolerance: float) -> bool:
    figures = each.figures
    if figures is None:
        return False
    if figures.nan_a != figures.nan_b or figures.inf_a != figures.inf_b:
        return False
    return bool(each.diff.same_values) or (tolerance > 0 and (figures.relative_l2 or 1.0) <= tolerance)


def _explanations(
    found: Sequence[Streamed], others: Sequence[Mapping[str, Values]], tolerance: float
) -> Iterator[tuple[str, Explained]]:
    """The operations on each tensor, by its name."""
    yield from _alone(each.paired for each in found)
    budget = Budget()
    changed = [place for place, each in enumerate(found) if _is_to_explain(each, tolerance)]
    moved = find_moved(found, changed)
    for place in changed:
        each = found[place]
        if each.reshaped is not None:
            yield each.diff.name, each.reshaped
        if place in moved:
            figures = {"holds": found[moved[place].source].diff.a}
            yield each.diff.name, Explained(moved[place].kind, figures)
            yield from ((each.diff.name, other) for other in _cast_alone(each))
        elif each.reshaped is None or (each.figures is not None and each.figures.changed):
            for explained in _of_values(each, others, budget):
                yield each.diff.name, explained


def _is_to_explain(each: Streamed, tolerance: float) -> bool:
    if each.a is None or each.b is None or each.figures is None or each.diff.equal:
        return False
    return not _is_same(each, tolerance) or bool(each.diff.same_values)


def _cast_alone(each: Streamed) -> Iterator[Explained]:
    if each.a is not None and each.b is not None and each.a.dtype != each.b.dtype:
        yield Explained("cast", {"from": each.a.dtype, "to": each.b.dtype})


def _of_values(each: Streamed, others: Sequence[Mapping[str, Values]], budget: Budget) -> list[Explained]:
    """What explains that the values of a pair are not the same."""
    assert each.a is not None
    assert each.b is not None
    change = load(each.a, each.b, *_packings(each.paired))
    if each.diff.same_values:
        types = {"from": change.dtype_a, "to": change.dtype_b}
        return [Explained("cast", types, exact=True)] if cast.is_cast(change) else []
    name = each.diff.a or ""
    arrays = [load(other[name], each.b).a for other in others if name in other]
    if arrays and len(arrays) == len(others):
        summed = merged.explain(change, arrays)
        if summed is not None:
            return [summed, *(_cast_alone(each))]
    if change.share == 1 or each.figures is None:
        return recipe.explain(change)
    return explain_sampled(each, change, budget)


def _packings(pair: Paired) -> tuple[str, str]:
    schemes = [
        piece.tensor.packing.scheme if piece is not None and piece.tensor.packing is not None else ""
        for piece in (pair.a, pair.b)
    ]
    return schemes[0], schemes[1]


def _alone(pairs: Iterable[Paired]) -> Iterator[tuple[str, Explained]]:
    for pair in pairs:
        if pair.b is None:
            yield _name(pair), Explained("missing", {})
        elif pair.a is None:
            yield _name(pair), Explained("added", {})


def _verdict(
    found: Sequence[Streamed], explained: Sequence[tuple[str, Explained]], tolerance: float
) -> DiffVerdict:
    compared = [each for each in found if each.figures is not None]
    if any(each.failure is not None for each in found) or not (compared or not found):
        return "incomparable"
    changes = [each for each in explained if not each[1].exact]
    if not changes and all(_is_same(each, tolerance) for each in compared):
        if len(compared) < len(found):
            return "incomparable"  # nothing is known of the others
        return "identical" if all(_is_identical(each) for each in found) else "equivalent"
    return "derived" if _are_related(compared, explained) else "unrelated"


def _is_identical(each: Streamed) -> bool:
    return bool(each.diff.equal) and each.diff.a == each.diff.b and each.diff.shape_a == each.diff.shape_b


def _are_related(compared: Sequence[Streamed], explained: Sequence[tuple[str, Explained]]) -> bool:
    """Whether some matrix of b tells of its counterpart; where no matrix could, any tensor."""
    changed = {name: set[str]() for name, _ in explained}
    for name, each in explained:
        changed[name].add(each.kind)
    telling = [each for each in compared if _tells(each)] or compared
    return any(each.diff.name not in changed or not changed[each.diff.name] & _MADE_ANEW for each in telling)


def _tells(each: Streamed) -> bool:
    """Whether its values could not be the same by chance or by design."""
    piece = each.paired.a
    if piece is None or each.a is None or piece.tensor.kind == "buffer" or "float" not in each.a.dtype:
        return False
    if len(piece.shape) < 2 or piece.numel < ENOUGH:
        return False
    return bool(each.a.read(0, ENOUGH).std() > 0)


def _failure(each: Streamed) -> ReadFailure:
    error = each.failure
    assert error is not None
    return ReadFailure(
        text=error.text,
        file=error.file,
        tensor=each.diff.name,
        hint=error.hint,
        limit=isinstance(error, LimitError),
    )


def _notes(found: Sequence[Streamed], comparison: Comparison, values_known: bool) -> Iterator[Note]:
    """What a reader must know of the figures."""
    if not values_known:
        same = "same structure" if comparison.same else "the structures differ"
        yield Note(code="values-not-compared", text=f"{same}; values not compared", severity="warning")
        return
    troubled = [each.diff.name for each in found if each.diff.trouble is not None]
    if troubled:
        text = "values of these tensors were not compared"
        yield Note(code="values-not-compared", text=text, severity="warning", where=tuple(troubled))
    yield Note(code="relation-not-computed", text=_PARENTAGE)
