"""Pages of results show what was measured, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pages
import pytest
import side_by_side
from growth import EXPLAINED, more_than_linear
from readme_table import readme_table
from sections import SCRIPTS, SECTIONS
from zoo.page import page as zoo_page

ROOT = Path(__file__).parents[2]
Results = Mapping[str, Any]


@pytest.fixture(scope="module")
def results() -> Results:
    return pages.read(ROOT / pages.RESULTS)


@pytest.fixture(scope="module")
def zoo() -> Results:
    return pages.read(ROOT / pages.ZOO)


def written(path: Path | str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def test_pages_are_what_their_results_give(results: Results, zoo: Results) -> None:
    made = pages.made(results, zoo, written("README.md"))
    assert [str(path) for path, text in made.items() if written(path) != text] == []


def test_the_page_of_the_zoo_is_what_its_results_give(zoo: Results) -> None:
    assert written("docs/zoo.md") == zoo_page(zoo)


def test_the_results_are_whole_and_of_full_size(results: Results) -> None:
    assert results["quick"] is False
    assert [name for name in SECTIONS if "failed" in results.get(name, {"failed": "not there"})] == []


def test_the_readme_has_the_table() -> None:
    assert "| **modelglass** |" in written("README.md").partition(pages.BEGIN)[2].partition(pages.END)[0]


def test_the_results_bear_the_promises_out(results: Results) -> None:
    """A new run that shows otherwise has to change the README."""
    assert {row["verdict"] for row in results["accuracy"]["answers"]["modelglass"]} == {"right"}
    assert [row for row in results["traces"]["answers"]["modelglass"] if row["changed"]] == []


def test_what_grows_faster_than_its_subject_is_explained(results: Results) -> None:
    sections = results["growth"]["sections"]
    faster = {(section["name"], what) for section in sections for what in more_than_linear(section)}
    assert faster - EXPLAINED.keys() == set()


def test_the_machine_had_hardly_anything_else_to_do(results: Results) -> None:
    shares = results["other_work"]
    assert shares.keys() == {*SECTIONS, *SCRIPTS}
    busy = {name: share for name, share in shares.items() if share is None or share > pages.MUCH_OTHER_WORK}
    assert busy == {}


def some_results(**sections: Any) -> dict[str, Any]:
    machine = {"processor": "a", "cores": 2, "memory_gib": 24, "system": "Linux", "python": "3.11"}
    return {"machine": machine, "versions": {"torch": "2"}, "quick": True, "one_run": True, **sections}


def test_a_benchmark_that_failed_is_shown_as_such() -> None:
    page = pages.page(some_results(growth={"failed": "MemoryError: too much"}))
    assert "## Growth\n\nCould not be measured: MemoryError: too much" in page
    assert "A quick run" in page


def test_a_readme_without_a_place_for_the_table_stays_as_it_is() -> None:
    assert pages.with_table("# Readme\n", some_results(), {}) == "# Readme\n"


def test_the_table_replaces_the_one_before() -> None:
    readme = f"before\n{pages.BEGIN}old\n{pages.END}after\n"
    once = pages.with_table(readme, some_results(), {})
    assert "old" not in once
    assert pages.with_table(once, some_results(), {}) == once
    assert once.startswith("before\n")
    assert once.endswith("after\n")


def test_a_tool_that_crashes_has_no_time_and_no_right_count() -> None:
    tools = {
        "bare forward": {"seconds": 1.0, "added_mib": 0.0},
        "modelglass": {"seconds": 1.5, "added_mib": 8.0, "macs": 1000},
        "fvcore": {"failed": "crashes: RuntimeError: no"},
        "torchinfo": {"seconds": 2.0, "added_mib": 8.0, "macs": 1020},
    }
    speed = {"models": {"GPT-2 of someone": {"macs": 1000, "tools": tools}}}
    rows = {
        line.split("|")[1].strip(): line
        for line in readme_table(some_results(speed=speed), {})
        if "|" in line
    }
    assert rows["**modelglass**"] == "| **modelglass** | – | – | 1 of 1 | – | 1.5 x | – |"
    assert rows["fvcore"] == "| fvcore | – | – | 0 of 1 | – | crashes | – |"
    assert rows["torchinfo"] == "| torchinfo | – | – | 0 of 1 | – | 2.0 x | – |"


def test_what_the_machine_did_besides_is_said() -> None:
    quiet = pages.page(some_results(other_work={"speed": 0.004, "growth": 0.012, "files": None}))
    assert "- Other work on the machine: at most 1.2% of the processors' time (in *growth*)" in quiet
    assert "much other work" not in quiet
    busy = pages.page(some_results(other_work={"speed": 0.004, "growth": 0.31}))
    assert "**The machine had much other work while it measured growth:" in busy
    assert "Other work" not in pages.page(some_results(other_work={"speed": None}))


@pytest.mark.parametrize(
    ("spent", "own", "share"),
    [((100, 130), (5, 25), 0.5), ((100, 120), (5, 26), 0.0), ((None, 3), (0, 0), None)],
)
def test_others_have_what_is_not_ones_own(
    spent: tuple[float | None, float],
    own: tuple[float, float],
    share: float | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of two processors in ten seconds: what all spent, less what this process and its own did."""
    for name, values in {"_spent_seconds": spent, "_own_seconds": own}.items():
        monkeypatch.setattr(side_by_side, name, iter(values).__next__)
    monkeypatch.setattr(side_by_side.time, "monotonic", iter((0.0, 10.0)).__next__)
    monkeypatch.setattr(side_by_side.os, "cpu_count", lambda: 2)
    assert side_by_side.Meanwhile().share() == share


def test_a_process_that_was_started_and_has_ended_is_ones_own() -> None:
    before = side_by_side._own_seconds()
    spin = "import time\nwhile time.process_time() < 0.2: pass"
    subprocess.run([sys.executable, "-c", spin], check=True)
    assert side_by_side._own_seconds() - before > 0.1  # the system counts in hundredths
