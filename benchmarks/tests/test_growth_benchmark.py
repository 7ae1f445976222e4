"""The benchmark of growth: its slopes and pictures, and that the work itself grows no faster than linear."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import growth as bench
import pytest
from growing import COMPARED, DRAWN, FLOW, JSON, LISTED, SUBJECTS

MODELS = ("differing", "ops", "branches", "skips", "ends")
FEW, MANY = 64, 192
FOLLOWED = (FLOW, DRAWN, "`mg.unique`", COMPARED, JSON, LISTED)


def a_line(power: float, what: str = "work") -> dict[str, Any]:
    points = [{"size": size, "seconds": size**power, "added_mib": 8.0} for size in (10, 20, 40, 80, 160)]
    return {"what": what, "points": points}


def results_of(*lines: dict[str, Any]) -> dict[str, Any]:
    section = {"name": "a b", "title": "A <b> & c", "unit": "layers", "story": "So many.", "lines": lines}
    return {"sections": [section]}


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0])
def test_the_exponent_is_the_power(power: float) -> None:
    assert bench.exponent(a_line(power)["points"], "seconds", 0.5) == pytest.approx(power)


def test_what_is_too_small_has_no_exponent() -> None:
    assert bench.exponent(a_line(1.0)["points"], "seconds", 1000.0) is None


def test_only_the_last_decade_counts() -> None:
    points = [{"size": 1, "seconds": 100.0}, *a_line(1.0)["points"]]
    assert bench.exponent(points, "seconds", 0.0) == pytest.approx(1.0)


def test_more_than_linear_stands_out() -> None:
    page = "\n".join(bench.growth_page(results_of(a_line(1.0, "`one`"), a_line(2.0, "`other`"))))
    assert "| `one` | 160.000 | 1.00 | 8 MiB | 0.00 |" in page
    assert "| `other` | 25600.000 | **2.00** | 8 MiB | 0.00 |" in page


def test_the_page_shows_the_pictures_there_are() -> None:
    results = results_of(a_line(1.0))
    page = "\n".join(bench.growth_page(results))
    assert [name for name in bench.growth_pictures(results) if f"(pictures/{name})" not in page] == []


def test_pictures_are_sound_and_the_same_each_time() -> None:
    results = results_of(a_line(1.0, "`a<b`"), a_line(0.0))
    (picture,) = bench.growth_pictures(results).values()
    assert [picture] == list(bench.growth_pictures(results).values())
    names = [each.text for each in ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")]
    assert {"A <b> & c", "a<b", "seconds", "MiB added"} <= set(names)


def test_a_picture_of_nothing_says_so() -> None:
    tiny = {"what": "tiny", "points": [{"size": 1, "seconds": 0.0, "added_mib": 0.0}]}
    (picture,) = bench.growth_pictures(results_of(tiny)).values()
    assert picture.count("nothing large enough to be seen") == 2


@pytest.mark.parametrize("name", [name for name in SUBJECTS if name not in MODELS])
def test_everything_that_is_measured_can_be_done(name: str, tmp_path: Path) -> None:
    for _, call in SUBJECTS[name].calls(SUBJECTS[name].quick[0], tmp_path):
        call()


@pytest.mark.slow
@pytest.mark.parametrize("name", [*MODELS, "tensors"])
def test_the_work_is_linear(name: str, tmp_path: Path) -> None:
    """Calls of functions, which are the same each time, and which seconds on a busy machine are not."""
    _, few, many = (work_of(name, size, tmp_path) for size in (2, FEW, MANY))  # the first one imports
    assert few.keys() == many.keys() != set()
    linear = MANY / FEW
    faster = {what: many[what] / few[what] for what in few if many[what] > 1.2 * linear * few[what]}
    assert {what: ratio for what, ratio in faster.items() if (name, what) not in bench.MORE_WORK} == {}


def work_of(name: str, size: int, folder: Path) -> dict[str, int]:
    """How many functions are called in what is done with a model of a size."""
    found = {}
    for what, call in SUBJECTS[name].calls(size, folder):
        if what in FOLLOWED:
            found[what] = functions_called(call)
        elif what == "`mg.inspect`":
            call()
    return found


def functions_called(call: Callable[[], Any]) -> int:
    count = 0

    def seen(_frame: Any, event: str, _arg: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        call()
    finally:
        sys.setprofile(before)
    return count
