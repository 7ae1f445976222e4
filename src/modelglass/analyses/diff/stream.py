"""One pass over the values of all pairs, by several threads, with bounded memory.

Most tensors of two related models are equal, or not at all: the bytes are compared first, and numbers are
computed only where a difference was met, then from the tensor's beginning on. A thread holds a chunk of each
side at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from modelglass.analyses.diff.figures import Figures, measure
from modelglass.analyses.diff.numbers import as_floats, is_known
from modelglass.analyses.diff.pairing import Paired, Piece
from modelglass.analyses.diff.resized import fitted
from modelglass.analyses.diff.turned import axes_between, turned
from modelglass.analyses.stats.engine import processors
from modelglass.errors import FileError
from modelglass.report import TensorDiff, Values
from modelglass.report.dtypes import nbytes_of

if TYPE_CHECKING:
    from modelglass.analyses.diff.explained import Explained
    from modelglass.analyses.diff.numbers import Array
    from modelglass.report import Shape, Stored

Advance = Callable[[int, int], None]  # bytes done, bytes in all
Sources = Mapping[str, "Values | str"]
Each = Callable[..., Iterator[Any]]  # `map`, by one thread or by several
_Strange = tuple[int, int] | None  # how many are NaN, and infinite; None: the bytes are not the same

CHUNK = 1 << 20  # bytes of one side that are compared at once
STEP = 1 << 18  # elements whose numbers are compared at once
SPAN, SPAN_NBYTES = 1 << 22, 1 << 24  # elements, or bytes, that a thread compares in one go
WORTH_THREADS = 1 << 21  # elements below which threads only wait for each other

_ABSENT = "not offered by the framework"
_OTHER_SHAPE = "the shapes have nothing in common"
_UNKNOWN = "packed in a way whose numbers are not computed here"


@dataclass(frozen=True, slots=True, kw_only=True)
class Streamed:
    """What one pass showed of a pair. `a` and `b` are its values where they can be compared one by one.

    `failure` is what ended the pass early.
    """

    paired: Paired
    diff: TensorDiff
    figures: Figures | None = None
    a: Values | None = None
    b: Values | None = None
    failure: FileError | None = None
    reshaped: Explained | None = None  # what made the shapes differ; the figures are of what both have


def stream(
    pairs: Sequence[Paired], a: Sources, b: Sources, *, advance: Advance | None = None
) -> list[Streamed]:
    """Each pair with the figures of all its elements, in the order given."""
    ready = [_prepared(each, a, b) for each in pairs]
    total, done = sum(map(_nbytes, ready)), 0
    found = []
    with ThreadPoolExecutor(processors(), thread_name_prefix="modelglass") as pool:
        for each in ready:
            found.append(_compared(each, pool))
            done += _nbytes(each)
            if advance is not None:
                advance(done, total)
    return found


def _nbytes(each: Streamed) -> int:
    return sum(nbytes_of(side.dtype, side.numel) or 0 for side in (each.a, each.b) if side is not None)


def _prepared(paired: Paired, a: Sources, b: Sources) -> Streamed:
    """A pair with its values, or with the reason why they cannot be compared."""
    known = _described(paired)
    if paired.a is None or paired.b is None:
        return Streamed(paired=paired, diff=known)
    one, other = a.get(paired.a.name, _ABSENT), b.get(paired.b.name, _ABSENT)
    trouble = paired.trouble or _reason("a", one) or _reason("b", other)
    if trouble is None and isinstance(one, Values) and isinstance(other, Values):
        one, other = part_of(one, paired.a), part_of(other, paired.b)
        reshaped = None
        if paired.turned and (axes := axes_between(one.shape, other.shape)) is not None:
            one = turned(one, axes)
        elif not _alike(one.shape, other.shape) and not _are_words(paired, one, other):
            one, other, reshaped = fitted(one, other)
        if not _are_words(paired, one, other) or (one.dtype, one.shape) == (other.dtype, other.shape):
            return Streamed(paired=paired, diff=known, a=one, b=other, reshaped=reshaped)
        trouble = _UNKNOWN
    return Streamed(paired=paired, diff=replace(known, trouble=trouble))


def _reason(side: str, source: Values | str) -> str | None:
    if isinstance(source, str):
        return f"{side} is {source}"
    return None if is_known(source.dtype) else f"{side} is of type {source.dtype}"


def part_of(values: Values, piece: Piece) -> Values:
    """The values of a piece of a tensor."""
    if piece.start == 0 and piece.numel >= values.numel:
        return values
    read, start = values.read, piece.start
    return replace(
        values,
        shape=piece.shape,
        read=lambda low, high: read(start + low, start + high),
        stored=None,
    )


def _are_words(paired: Paired, one: Values, other: Values) -> bool:
    """Whether a side offers stored words, and not the numbers that they stand for."""
    sides = ((paired.a, one), (paired.b, other))
    return any(
        piece is not None and (values.described == "stored" or values.numel != piece.numel)
        for piece, values in sides
    )


def _described(paired: Paired) -> TensorDiff:
    a, b = paired.a, paired.b
    return TensorDiff(
        a=None if a is None else a.name,
        b=None if b is None else b.name,
        shape_a=None if a is None else a.shape,
        shape_b=None if b is None else b.shape,
        dtype_a="" if a is None else a.kept_as,
        dtype_b="" if b is None else b.kept_as,
    )


def _compared(each: Streamed, pool: ThreadPoolExecutor) -> Streamed:
    a, b = each.a, each.b
    if a is None or b is None:
        return each
    if not _alike(a.shape, b.shape):
        return replace(each, diff=replace(each.diff, equal=False, trouble=_OTHER_SHAPE), a=None, b=None)
    spans: Each = pool.map if a.numel >= WORTH_THREADS else map
    try:
        with a.holding(), b.holding():
            return _with_figures(each, a, b, spans)
    except FileError as error:
        return replace(each, diff=replace(each.diff, trouble=error.text), a=None, b=None, failure=error)


def _alike(one: Shape, other: Shape) -> bool:
    """Whether elements in row-major order are each other's counterparts."""
    return squeezed(one) == squeezed(other)


def squeezed(shape: Shape) -> Shape:
    """The shape without axes of one element."""
    return tuple(size for size in shape if size != 1)


def _with_figures(each: Streamed, a: Values, b: Values, spans: Each) -> Streamed:
    words = _are_words(each.paired, a, b)
    if each.reshaped is not None:
        figures = _all_measured(a, b, False, spans)
        diff = replace(_filled(each.diff, figures, False, a.shape), same_values=False)
        return replace(each, diff=diff, figures=figures)
    same_form = a.dtype == b.dtype and each.diff.dtype_a == each.diff.dtype_b
    unchanged = _while_equal(a, b, words, spans) if same_form else None
    if unchanged is not None:
        return replace(each, diff=_filled(each.diff, unchanged, True, a.shape), figures=unchanged)
    if words:
        return replace(each, diff=replace(each.diff, equal=False, trouble=_UNKNOWN), a=None, b=None)
    figures = _all_measured(a, b, same_form, spans)
    return replace(each, diff=_filled(each.diff, figures, False, a.shape), figures=figures)


def _all_measured(a: Values, b: Values, same_form: bool, spans: Each) -> Figures:
    figures = Figures()
    for piece in spans(partial(_measured, a, b, same_form), _starts(a.numel)):
        figures.merge(piece)
    return figures


def _starts(numel: int) -> range:
    return range(0, numel, SPAN)


def _measured(a: Values, b: Values, same_form: bool, start: int) -> Figures:
    """The figures of one span."""
    figures = Figures()
    stop = min(start + SPAN, a.numel)
    for low in range(start, stop, STEP):
        high = min(low + STEP, stop)
        one, other = a.read(low, high), b.read(low, high)
        marks = one != other if same_form and one.dtype == other.dtype and one.dtype.kind != "f" else None
        figures.merge(measure(as_floats(one, a.dtype), as_floats(other, b.dtype), marks))
    return figures


def _while_equal(a: Values, b: Values, words: bool, spans: Each) -> Figures | None:
    """The figures of two tensors whose bytes are all the same; None: they are not."""
    one, other = a.stored, b.stored
    if one is not None and other is not None:
        if (one.form, one.nbytes) != (other.form, other.nbytes):
            return None
        dtype = a.dtype if a.described == "values" and not words else ""
        found = spans(partial(_equal_bytes, one, other, dtype), range(0, one.nbytes, SPAN_NBYTES))
    else:
        found = spans(partial(_equal_elements, a, b), _starts(a.numel))
    figures = Figures(numel=a.numel)
    for strange in found:
        if strange is None:
            return None
        figures.nan_a, figures.inf_a = figures.nan_a + strange[0], figures.inf_a + strange[1]
    figures.nan_b, figures.inf_b = figures.nan_a, figures.inf_a
    return figures


def _equal_bytes(one: Stored, other: Stored, dtype: str, start: int) -> _Strange:
    """How much in a span is NaN or infinite; None: the bytes are not the same."""
    stop = min(start + SPAN_NBYTES, one.nbytes)
    nan = inf = 0
    for low in range(start, stop, CHUNK):
        high = min(low + CHUNK, stop)
        raw = one.read(low, high)
        if raw != other.read(low, high):
            return None
        strange = _count_strange(np.frombuffer(raw, np.uint8), dtype)
        nan, inf = nan + strange[0], inf + strange[1]
    return nan, inf


def _equal_elements(a: Values, b: Values, start: int) -> _Strange:
    """The same for elements that do not follow each other in a file."""
    stop = min(start + SPAN, a.numel)
    nan = inf = 0
    for low in range(start, stop, STEP):
        high = min(low + STEP, stop)
        raw = np.ascontiguousarray(a.read(low, high)).view(np.uint8)
        if not np.array_equal(raw, np.ascontiguousarray(b.read(low, high)).view(np.uint8)):
            return None
        strange = _count_strange(raw, a.dtype)
        nan, inf = nan + strange[0], inf + strange[1]
    return nan, inf


_EXPONENTS: Mapping[str, tuple[Any, int]] = {
    "bfloat16": (np.uint16, 0x7F80),
    "float16": (np.uint16, 0x7C00),
    "float32": (np.uint32, 0x7F800000),
}


def _count_strange(raw: Array, dtype: str) -> tuple[int, int]:
    """How many elements are NaN, and how many infinite."""
    if not _may_be_strange(raw, dtype):
        return 0, 0
    numbers = as_floats(raw, dtype)
    return int(np.count_nonzero(np.isnan(numbers))), int(np.count_nonzero(np.isinf(numbers)))


def _may_be_strange(raw: Array, dtype: str) -> bool:
    if dtype not in _EXPONENTS:
        return "float" in dtype
    word, exponent = _EXPONENTS[dtype]
    words = raw.view(word)
    return bool(words.size) and int(np.bitwise_and(words, word(exponent)).max()) == exponent


def _filled(known: TensorDiff, figures: Figures, equal: bool, shape: Shape) -> TensorDiff:
    at = figures.at
    return replace(
        known,
        equal=equal,
        same_values=equal or figures.changed == 0,
        changed=figures.changed,
        relative_l2=figures.relative_l2,
        cosine=1.0 if equal else figures.cosine,
        max_abs=figures.max_abs,
        at=None if at is None else tuple(int(place) for place in np.unravel_index(at, shape)),
        snr_db=figures.snr_db,
        nan_a=figures.nan_a,
        nan_b=figures.nan_b,
        inf_a=figures.inf_a,
        inf_b=figures.inf_b,
    )
