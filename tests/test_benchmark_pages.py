"""Pages of results show what was measured, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pages
import pytest
from readme_table import readme_table
from zoo.page import page as zoo_page

ROOT = Path(__file__).parents[1]
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
    assert [name for name in pages.SECTIONS if "failed" in results.get(name, {"failed": "not there"})] == []


def test_the_readme_has_the_table() -> None:
    assert "| **modelglass** |" in written("README.md").partition(pages.BEGIN)[2].partition(pages.END)[0]


def test_the_results_bear_the_promises_out(results: Results) -> None:
    """A new run that shows otherwise has to change the README."""
    assert {row["verdict"] for row in results["accuracy"]["answers"]["modelglass"]} == {"right"}
    assert [row for row in results["traces"]["answers"]["modelglass"] if row["changed"]] == []


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
