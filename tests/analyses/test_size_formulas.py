"""Sizes as formulas of other sizes."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest

from modelglass.analyses.sizes.formulas import Point, formula, movers


def points(usual: tuple[int, ...], value: Callable[..., int]) -> list[Point]:
    """What runs show: each size changed alone, all of them at once, pairs of them."""
    count = len(usual)
    changes = [(0,) * count]
    changes += [
        tuple(by if index == at else 0 for index in range(count)) for at in range(count) for by in (1, 2)
    ]
    changes += [tuple(1 + (at + turn) % 2 for at in range(count)) for turn in (0, 1)] if count > 1 else []
    changes += [(0,) * at + (1, 1) + (0,) * (count - at - 2) for at in range(count - 1)] if count > 2 else []
    runs = [tuple(size * (1 + by) for size, by in zip(usual, change, strict=True)) for change in changes]
    return [Point(sizes, Fraction(value(*sizes))) for sizes in runs]


FORMULAS: dict[str, tuple[str, tuple[int, ...], Callable[..., int]]] = {
    "7": ("L", (16,), lambda n: 7),
    "L": ("L", (16,), lambda n: n),
    "4·L": ("L", (16,), lambda n: 4 * n),
    "L/2": ("L", (16,), lambda n: n // 2),
    "3·L/2": ("L", (16,), lambda n: 3 * n // 2),
    "L+1": ("L", (16,), lambda n: n + 1),
    "2·L-1": ("L", (16,), lambda n: 2 * n - 1),
    "L/320-1": ("L", (16000,), lambda n: (n - 80) // 320),
    "-L+99": ("L", (16,), lambda n: 99 - n),
    "L²": ("L", (16,), lambda n: n * n),
    "(H/16)²+1": ("H", (32,), lambda h: (h // 16) ** 2 + 1),
    "⌈L/2⌉": ("L", (5,), lambda n: -(-n // 2)),
    "⌊L/2⌋": ("L", (5,), lambda n: n // 2),
    "⌊(L-3)/4⌋": ("L", (17,), lambda n: (n - 3) // 4),
    "B·L": ("B L", (2, 16), lambda b, n: b * n),
    "4·B·L": ("B L", (2, 16), lambda b, n: 4 * b * n),
    "B·L/2": ("B L", (2, 16), lambda b, n: b * n // 2),
    "B·(L+1)": ("B L", (2, 16), lambda b, n: b * n + b),
    "(B+1)·(L-1)": ("B L", (2, 16), lambda b, n: (b + 1) * (n - 1)),
    "3·(B+1)·(L-1)+5": ("B L", (2, 16), lambda b, n: 3 * (b + 1) * (n - 1) + 5),
    "H·(W-1)+2": ("H W", (8, 4), lambda h, w: h * (w - 1) + 2),
    "(H/16)·(W/16)+1": ("H W", (32, 64), lambda h, w: (h // 16) * (w // 16) + 1),
    "(H/8-1)·(W/8-1)": ("H W", (32, 64), lambda h, w: (h // 8 - 1) * (w // 8 - 1)),
    "L+L2": ("L L2", (5, 7), lambda one, two: one + two),
    "L+4·L2+3": ("L L2", (5, 7), lambda one, two: one + 4 * two + 3),
    "B·H·W": ("B H W", (2, 8, 4), lambda b, h, w: b * h * w),
    "B·((H/16)·(W/16)+1)": ("B H W", (2, 32, 64), lambda b, h, w: b * ((h // 16) * (w // 16) + 1)),
    "L+(H/16)·(W/16)+1": ("L H W", (7, 32, 64), lambda n, h, w: n + (h // 16) * (w // 16) + 1),
}


@pytest.mark.parametrize("text", FORMULAS)
def test_formulas_are_found(text: str) -> None:
    names, usual, value = FORMULAS[text]
    assert formula(names.split(), points(usual, value)) == text


NONE: dict[str, tuple[tuple[int, ...], Callable[..., int]]] = {
    "a power": ((5,), lambda n: 2**n),
    "the larger one": ((5, 7), lambda one, two: max(one, two)),
    "the larger of three": ((2, 32, 64), lambda b, h, w: b * max(h, w)),
    "only both at once": ((5, 7), lambda one, two: 1 + (one > 5 and two > 7)),
}


@pytest.mark.parametrize("case", NONE)
def test_what_follows_no_simple_formula_has_none(case: str) -> None:
    usual, value = NONE[case]
    assert formula(["B", "L", "L2"][: len(usual)], points(usual, value)) is None


def test_two_points_prove_no_line_and_one_joint_run_no_product() -> None:
    assert formula(["L"], points((16,), lambda n: n)[:2]) is None
    pair = points((5, 7), lambda one, two: (one + 1) * (two + 1))
    assert formula(["L", "L2"], pair) == "(L+1)·(L2+1)"
    assert formula(["L", "L2"], pair[:-1]) is None


def test_sizes_that_move_a_value_are_named() -> None:
    assert movers(points((2, 8, 4), lambda b, h, w: b + w)) == [0, 2]
