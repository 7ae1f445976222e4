"""How a size follows from other sizes: the simplest formula that gives every value that was seen.

Looked for are, in this order: a constant; one size times a number plus a number ("L", "4·L", "L/2+1"), its
square ("(H/16)²+1") or a rounded quotient ("⌈L/2⌉"); a size times a formula of the others ("B·L"); a product
of two plus a number ("(H/16)·(W/16)+1"); a formula of the others plus a size ("L+L2"). Each is taken only
with a point more than it has free numbers, so that the last one is a check.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from itertools import combinations
from math import isqrt, lcm, prod
from typing import NamedTuple, TypeAlias

LARGEST_DIVISOR = 64  # of quotients that are rounded


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


def formula(names: Sequence[str], points: Sequence[Point]) -> str | None:
    """The value as a formula of the sizes; None when none was found. The first point is the usual run."""
    found = _solved(names, points)
    return None if found is None else found.text


def product(points: Points, known: Mapping[Points, str]) -> str | None:
    """The value as a product of sizes whose formulas are known, plus 0 or 1; None when it is none.

    Rounded sizes multiply to what no formula of the inputs' sizes alone would tell: "⌈H/4⌉·⌈W/4⌉+1".
    """
    sizes = [point.sizes for point in points]
    alike = [(text, seen) for seen, text in known.items() if [point.sizes for point in seen] == sizes]
    for count in (2, 3):
        for chosen in combinations(alike, count):
            values = [
                prod(point.value for point in at) for at in zip(*(seen for _, seen in chosen), strict=True)
            ]
            rests = {point.value - value for point, value in zip(points, values, strict=True)}
            if rests <= {Fraction(0)} or rests == {Fraction(1)}:
                text = "·".join(text if _is_factor(text) else f"({text})" for text, _ in chosen)
                return f"{text}+1" if rests == {Fraction(1)} else text
    return None


def _is_factor(text: str) -> bool:
    """Whether a product can have the formula for a factor as it is."""
    return text.isalnum() or text[0] in "⌈⌊"


def movers(points: Sequence[Point]) -> list[int]:
    """Which sizes move the value when they alone change."""
    usual = points[0].value
    return [at for at in range(len(points[0].sizes)) if any(p.value != usual for p in _alone(points, at))]


def _alone(points: Sequence[Point], at: int) -> list[Point]:
    """The points at which no size but one may differ from the first point's."""
    first = points[0].sizes
    return [p for p in points if p.sizes[:at] == first[:at] and p.sizes[at + 1 :] == first[at + 1 :]]


def _solved(names: Sequence[str], points: Sequence[Point]) -> _Sum | None:
    moved = movers(points)
    if not moved:
        constant = all(point.value == points[0].value for point in points)
        whole = constant and points[0].value.denominator == 1
        return _Sum(constant=int(points[0].value)) if whole else None
    if len(moved) == 1:
        return _of_one(names[moved[0]], {(p.sizes[moved[0]], p.value) for p in points})
    ways: tuple[Callable[..., _Sum | None], ...] = (_with_factor, _of_two, _with_term)
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
    return _rounded(name, values)


def _through(values: dict[int, Fraction]) -> tuple[Fraction, Fraction] | None:
    """The slope and offset of the line through all points, if there is one."""
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


def _rounded(name: str, values: dict[int, Fraction]) -> _Sum | None:
    """ "⌈L/2⌉", "⌊(L-3)/2⌋": the one with the smallest divisor, and the shift next to none."""
    for below in range(2, LARGEST_DIVISOR + 1):
        least = max(int(value) * below - size for size, value in values.items())
        most = min(int(value) * below + below - 1 - size for size, value in values.items())
        if least > most or any(value.denominator > 1 for value in values.values()):
            continue
        if least <= below - 1 <= most and not least <= 0 <= most:
            return _Sum((_Term((f"⌈{name}/{below}⌉",)),))
        shift = min(max(0, least), most)
        inner = name if shift == 0 else f"({name}{shift:+})"
        return _Sum((_Term((f"⌊{inner}/{below}⌋",)),))
    return None


def _with_factor(names: Sequence[str], points: Sequence[Point], moved: Sequence[int]) -> _Sum | None:
    """A size times a formula of the others."""
    for at in moved:
        first, size = points[0].value, points[0].sizes[at]
        if size and all(point.value * size == first * point.sizes[at] for point in _alone(points, at)):
            rest = _solved(names, [Point(p.sizes, p.value / p.sizes[at]) for p in points])
            if rest is not None:
                return rest.times(names[at])
    return None


def _with_term(names: Sequence[str], points: Sequence[Point], moved: Sequence[int]) -> _Sum | None:
    """A formula of the others plus a multiple of a size."""
    lines = {at: _through({p.sizes[at]: p.value for p in _alone(points, at)}) for at in moved}
    for at, line in sorted(lines.items(), key=lambda item: 0 if item[1] is None else item[1][0].denominator):
        if line is None:
            continue
        rest = _solved(names, [Point(p.sizes, p.value - line[0] * p.sizes[at]) for p in points])
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
    texts = tuple(factor.text if factor.text.isalnum() else f"({factor.text})" for factor in factors)
    return _Sum((_Term(texts, left.numerator, left.denominator),), int(rest))
