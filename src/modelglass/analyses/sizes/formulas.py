"""How a size follows from other sizes: the simplest formula that gives every value that was seen.

Looked for are, in this order: a constant; one size times a number plus a number ("L", "4·L", "L/2+1"), its
square ("(H/16)²+1", "(L²+L)/2") or a rounded quotient ("⌈L/2⌉", "4·⌈H/4⌉"); a size times a formula of the
others ("B·L"); a product of two plus a number ("(H/16)·(W/16)+1"), of more plus a number; a formula of the
others plus a size ("L+L2"). In place of a size may stand a rounded quotient of it ("⌈H/4⌉·⌈W/4⌉"), and of a
formula that is known a rounded quotient again ("⌈H·W/2⌉"). Each is taken only with a point more than it has
free numbers, so that the last one is a check.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from math import isqrt, lcm
from typing import NamedTuple, TypeAlias

from modelglass.analyses.sizes.quotients import LARGEST_DIVISOR, Fit, Quotient, fits

LARGEST_OF_KNOWN = 64  # divisors of quotients of a formula, of which fewer values are seen
POINTS_OF_KNOWN = 6
CLOSING = {"⌈": "⌉", "⌊": "⌋"}


class Point(NamedTuple):
    """The sizes in one run, in the order of their names, and the value that went with them."""

    sizes: tuple[int, ...]
    value: Fraction


Points: TypeAlias = tuple[Point, ...]


class _Term(NamedTuple):
    """Factors, as text, times a number over a number."""

    factors: tuple[str, ...]
    times: int = 1
    below: int = 1

    @property
    def text(self) -> str:
        sign = "-" if self.times < 0 else ""
        numbers = () if abs(self.times) == 1 else (str(abs(self.times)),)
        return sign + "·".join((*numbers, *self.factors)) + (f"/{self.below}" if self.below > 1 else "")


class _Sum(NamedTuple):
    """Terms and a number, added up."""

    terms: tuple[_Term, ...] = ()
    constant: int = 0

    @property
    def text(self) -> str:
        parts = [term.text for term in self.terms]
        if self.constant or not parts:
            parts.append(str(self.constant))
        return parts[0] + "".join(part if part.startswith("-") else f"+{part}" for part in parts[1:])

    def times(self, name: str) -> _Sum:
        """The product with a size."""
        if len(self.terms) == 1 and not self.constant:
            term = self.terms[0]
            return _Sum((term._replace(factors=(name, *term.factors)),))
        if not self.terms:
            return _Sum((_Term((name,), self.constant),))
        return _Sum((_Term((name, f"({self.text})")),))


@dataclass
class Known:
    """What was found of other values in the same runs, which a value may be made of.

    `is_settled` says whether quotients of a size that fit are one and the same wherever the model may run.
    """

    is_settled: Callable[[int, Sequence[Fit]], bool] = lambda at, fits: True
    quotients: dict[int, dict[Quotient, None]] = field(default_factory=dict)  # by the size they are of
    values: dict[tuple[Fraction, ...], str] = field(default_factory=dict)  # of formulas, in the order of runs


def formula(names: Sequence[str], points: Sequence[Point], known: Known | None = None) -> str | None:
    """The value as a formula of the sizes; None when none was found. The first point is the usual run."""
    known = Known() if known is None else known
    ways: tuple[Callable[..., _Sum | None], ...] = (_rounded_quotient, _of_quotients, _match_known)
    found = _solve(names, points)
    found = found or next((made for way in ways if (made := way(names, points, known)) is not None), None)
    if found is not None and movers(points):
        known.values.setdefault(tuple(point.value for point in points), found.text)
    return None if found is None else found.text


def quotient_fits(points: Sequence[Point], at: int) -> tuple[Fit, ...]:
    """The rounded quotients that a value may be where one size alone changes; none where it is a line."""
    moved = movers(points)
    if at not in moved:
        return ()
    pairs = {(p.sizes[at], p.value) for p in (points if moved == [at] else _alone(points, at))}
    values = dict(sorted(pairs))
    return () if len(values) < len(pairs) or _through(values) is not None else _quotients(values)


def _is_factor(text: str) -> bool:
    """Whether a product can have the formula for a factor as it is."""
    return text.isalnum() or (text[0] in "⌈⌊" and text.index(CLOSING[text[0]]) == len(text) - 1)


def movers(points: Sequence[Point]) -> list[int]:
    """Which sizes move the value when they alone change."""
    usual = points[0].value
    return [at for at in range(len(points[0].sizes)) if any(p.value != usual for p in _alone(points, at))]


def _alone(points: Sequence[Point], at: int) -> list[Point]:
    """The points at which no size but one may differ from the first point's."""
    first = points[0].sizes
    return [p for p in points if p.sizes[:at] == first[:at] and p.sizes[at + 1 :] == first[at + 1 :]]


def _solve(names: Sequence[str], points: Sequence[Point]) -> _Sum | None:
    moved = movers(points)
    if not moved:
        constant = all(point.value == points[0].value for point in points)
        whole = constant and points[0].value.denominator == 1
        return _Sum(constant=int(points[0].value)) if whole else None
    if len(moved) == 1:
        return _of_one(names[moved[0]], {(p.sizes[moved[0]], p.value) for p in points})
    ways: tuple[Callable[..., _Sum | None], ...] = (_with_factor, _of_two, _with_rest, _with_term)
    return next((found for way in ways if (found := way(names, points, moved)) is not None), None)


def _of_one(name: str, seen: set[tuple[int, Fraction]]) -> _Sum | None:
    """A formula of one size, of which at least three values are known."""
    values = dict(seen)
    if len(values) < 3 or len(values) < len(seen):
        return None
    for power in (1, 2):
        found = _through({size**power: value for size, value in values.items()})
        if found is not None:
            return _linear(name, *found) if power == 1 else _square(name, *found)
    return _quadratic(name, values)


def _through(values: Mapping[int, Fraction]) -> tuple[Fraction, Fraction] | None:
    """The slope and offset of the line through all points, if there is one."""
    if len(values) < 2:
        return None
    (x, y), (x2, y2) = list(values.items())[:2]
    slope = Fraction(y2 - y, x2 - x)
    offset = y - slope * x
    return (slope, offset) if all(slope * x + offset == y for x, y in values.items()) else None


def _linear(name: str, slope: Fraction, offset: Fraction) -> _Sum:
    """A line: "L", "4·L-1", "L/2+1", "(L+1)/2"."""
    if offset.denominator == 1:
        return _Sum((_Term((name,), slope.numerator, slope.denominator),), int(offset))
    below = lcm(slope.denominator, offset.denominator)
    return _Sum((_Term((f"({_linear(name, slope * below, offset * below).text})",), 1, below),))


def _square(name: str, slope: Fraction, offset: Fraction) -> _Sum | None:
    """A square and a number: "L²", "(H/16)²+1", "3·L²/2"."""
    if offset.denominator > 1:
        return None
    root = isqrt(slope.denominator)
    if root**2 == slope.denominator and root > 1:
        return _Sum((_Term((f"({name}/{root})²",), slope.numerator),), int(offset))
    return _linear(f"{name}²", slope, offset)


def _quadratic(name: str, values: Mapping[int, Fraction]) -> _Sum | None:
    """A square, a multiple and a number: "L²+L", "(L²+L)/2"."""
    if len(values) < 5:
        return None
    (x, y), *others = values.items()
    through = _through({size: (value - y) / (size - x) for size, value in others})
    if through is None:
        return None
    square = through[0]
    slope = through[1] - square * x
    offset = y - square * x**2 - slope * x
    below = lcm(square.denominator, slope.denominator, offset.denominator)
    terms = ((f"{name}²", square * below), (name, slope * below))
    found = _Sum(tuple(_Term((text,), int(times)) for text, times in terms if times), int(offset * below))
    return found if below == 1 else _Sum((_Term((f"({found.text})",), 1, below),))


def _quotients(values: Mapping[int, Fraction], largest: int = LARGEST_DIVISOR) -> tuple[Fit, ...]:
    if len(values) < 3 or any(value.denominator > 1 for value in values.values()):
        return ()
    return fits({size: int(value) for size, value in values.items()}, largest)


def _rounded_quotient(names: Sequence[str], points: Sequence[Point], known: Known) -> _Sum | None:
    """The rounded quotient of one size with the smallest divisor: "⌈L/2⌉", "⌊(L-3)/2⌋", "4·⌈H/4⌉"."""
    moved = movers(points)
    found = quotient_fits(points, moved[0]) if len(moved) == 1 else ()
    if not found or not known.is_settled(moved[0], found):
        return None
    known.quotients.setdefault(moved[0], {})[found[0].quotient] = None
    return _quotient(names[moved[0]], found[0])


def _quotient(name: str, fit: Fit) -> _Sum:
    text, added = fit.quotient.text(name)
    return _Sum((_Term((text,), fit.times),), fit.times * added + fit.plus)


def _of_quotients(names: Sequence[str], points: Sequence[Point], known: Known) -> _Sum | None:
    """A formula with rounded quotients in place of sizes, those that are known before others."""
    moved = movers(points)
    if len(moved) < 2:
        return None
    for chosen in product(*(_stand_ins(points, at, known) for at in moved)):
        stands = dict(zip(moved, chosen, strict=True))
        put = [
            Point(tuple(_put(stands.get(at), size) for at, size in enumerate(point.sizes)), point.value)
            for point in points
        ]
        texts = {at: quotient.text(names[at])[0] for at, quotient in stands.items() if quotient is not None}
        found = _solve([texts.get(at, name) for at, name in enumerate(names)], put)
        if found is not None:
            return found
    return None


def _put(quotient: Quotient | None, size: int) -> int:
    return size if quotient is None else quotient.bare.value(size)


def _stand_ins(points: Sequence[Point], at: int, known: Known) -> list[Quotient | None]:
    """What may stand for a size in a formula: the size itself where the value is a line of it alone."""
    alone = {point.sizes[at]: point.value for point in _alone(points, at)}
    if _through(alone) is not None:
        return [None]
    own = _quotients(alone)
    settled = [own[0].quotient] if own and known.is_settled(at, own) else []
    fitting: list[Quotient | None] = []
    for quotient in dict.fromkeys((*known.quotients.get(at, ()), *settled)):
        seen = {(quotient.bare.value(size), value) for size, value in alone.items()}
        values = dict(seen)
        if len(values) == len(seen) and _through(values) is not None:
            fitting.append(quotient)
    return fitting


def _match_known(names: Sequence[str], points: Sequence[Point], known: Known) -> _Sum | None:
    """A rounded quotient of a formula that is known: "⌈H·W/2⌉"."""
    for seen, text in known.values.items():
        pairs = {(int(size), point.value) for size, point in zip(seen, points, strict=True)}
        values = dict(sorted(pairs))
        if len(values) < len(pairs) or len(values) < POINTS_OF_KNOWN:
            continue
        for fit in _quotients(values, LARGEST_OF_KNOWN)[:1]:
            if fit.least == fit.most:
                plain = _is_factor(text) or not set(text) & set("+-/")
                return _quotient(text if plain else f"({text})", fit)
    return None


def _with_factor(names: Sequence[str], points: Sequence[Point], moved: Sequence[int]) -> _Sum | None:
    """A size times a formula of the others."""
    for at in moved:
        first, size = points[0].value, points[0].sizes[at]
        if size and all(point.value * size == first * point.sizes[at] for point in _alone(points, at)):
            rest = _solve(names, [Point(p.sizes, p.value / p.sizes[at]) for p in points])
            if rest is not None:
                return rest.times(names[at])
    return None


def _with_rest(names: Sequence[str], points: Sequence[Point], moved: Sequence[int]) -> _Sum | None:
    """A product of three sizes or more plus a number, which is the value where any of them is 0."""
    lines = [_through({p.sizes[at]: p.value for p in _alone(points, at)}) for at in moved]
    rests = {None if line is None else line[1] for line in lines}
    rest = rests.pop()
    if len(moved) < 3 or rests or not rest or rest.denominator > 1:
        return None
    found = _with_factor(names, [Point(p.sizes, p.value - rest) for p in points], moved)
    return None if found is None else _Sum(found.terms, found.constant + int(rest))


def _with_term(names: Sequence[str], points: Sequence[Point], moved: Sequence[int]) -> _Sum | None:
    """A formula of the others plus a multiple of a size."""
    lines = {at: _through({p.sizes[at]: p.value for p in _alone(points, at)}) for at in moved}
    for at, line in sorted(lines.items(), key=lambda item: 0 if item[1] is None else item[1][0].denominator):
        if line is None:
            continue
        rest = _solve(names, [Point(p.sizes, p.value - line[0] * p.sizes[at]) for p in points])
        if rest is not None:
            own = _linear(names[at], line[0], Fraction(0)).terms
            first = not rest.terms or at < moved[-1]
            return _Sum((*own, *rest.terms) if first else (*rest.terms, *own), rest.constant)
    return None


def _of_two(names: Sequence[str], points: Sequence[Point], moved: Sequence[int]) -> _Sum | None:
    """A product of two sizes, each with a number added, plus a number: (x + p)·(y + q)·k + r."""
    if len(moved) != 2:
        return None
    one, two = moved
    lines = [_through({p.sizes[at]: p.value for p in _alone(points, at)}) for at in moved]
    together = [
        p for p in points if p.sizes[one] != points[0].sizes[one] and p.sizes[two] != points[0].sizes[two]
    ]
    if lines[0] is None or lines[1] is None or len(together) < 2:
        return None
    x, y, value = points[0].sizes[one], points[0].sizes[two], points[0].value
    (slope_x, _), (slope_y, _) = lines[0], lines[1]
    sizes, there = together[0].sizes, together[0].value
    dx, dy = sizes[one] - x, sizes[two] - y
    times = (there - value - slope_x * dx - slope_y * dy) / (dx * dy)
    if times == 0:
        return None  # a sum
    p, q = slope_y / times - x, slope_x / times - y
    rest = value - times * (x + p) * (y + q)
    if rest.denominator > 1 or any(
        times * (each.sizes[one] + p) * (each.sizes[two] + q) + rest != each.value for each in points
    ):
        return None
    return _product((names[one], p), (names[two], q), times, rest)


def _product(one: tuple[str, Fraction], two: tuple[str, Fraction], times: Fraction, rest: Fraction) -> _Sum:
    """The product as text, a square below the line shared by both factors: "(H/16)·(W/16)+1"."""
    root = isqrt(times.denominator)
    shared = Fraction(1, root) if root**2 == times.denominator else Fraction(1)
    left = times / shared**2
    factors = (_linear(name, shared, added * shared) for name, added in (one, two))
    texts = tuple(factor.text if _is_factor(factor.text) else f"({factor.text})" for factor in factors)
    return _Sum((_Term(texts, left.numerator, left.denominator),), int(rest))
