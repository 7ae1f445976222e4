"""What `make zoo` does with its workers, its results and its failures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from zoo import page, pool, results

WORKER = """
import json, os, sys, time
for line in sys.stdin:
    name = line.strip()
    if name == "timm:ends":
        os._exit(1)
    if name == "timm:hangs":
        time.sleep(600)
    print(json.dumps({"name": name, "wrong": {}}), flush=True)
"""


def row(name: str, **wrong: str) -> dict[str, Any]:
    return {"name": name, "wrong": wrong, "params": 1}


@pytest.fixture
def looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    monkeypatch.setattr(pool, "WORKER", script)

    def look(*names: str) -> dict[str, Any]:
        found: list[dict[str, Any]] = []
        pool.looked_at_by_workers(names, found.append, jobs=2, limit=2)
        return {each["name"]: each["wrong"] for each in found}

    return look


def test_all_are_looked_at_whatever_becomes_of_one(looked_at: Any, capfd: pytest.CaptureFixture[str]) -> None:
    names = ["timm:a", "timm:ends", "timm:b", "timm:hangs", "timm:c", "timm:d"]
    assert looked_at(*names) == {
        **{f"timm:{name}": {} for name in "abcd"},
        "timm:ends": {"inspected": "the process ended"},
        "timm:hangs": {"inspected": "longer than 2 s"},
    }
    assert "failed a check" in capfd.readouterr().err


def test_a_run_goes_on_where_the_last_one_was(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    names = ["timm:a", "timm:b", "timm:c"]
    first = results.Results.of(path, names, fresh=False)
    first.keep(row("timm:a"))
    first.keep(row("timm:b", macs="1 and not 2"))
    with path.open("a") as file:
        file.write('{"name": "timm:c", "wro')  # ended in the middle of a line
    second = results.Results.of(path, names, fresh=False)
    assert [second.is_known(name, again=False) for name in names] == [True, True, False]
    assert [second.is_known(name, again=True) for name in names] == [True, False, False]


def test_what_was_found_after_an_unfinished_line_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    results.Results.of(path, [], fresh=False)
    with path.open("a") as file:
        file.write('{"name": "timm:c", "wro')
    again = results.Results.of(path, ["timm:a"], fresh=False)
    again.keep(row("timm:a"))
    assert results.Results.of(path, ["timm:a"], fresh=False).rows == {"timm:a": row("timm:a")}


def test_what_other_versions_gave_is_not_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text(json.dumps({"versions": {"torch": "1.0"}}) + "\n" + json.dumps(row("timm:a")) + "\n")
    assert results.Results.of(path, ["timm:a"], fresh=False).rows == {}


def test_a_check_that_was_not_reached_is_not_passed() -> None:
    rows = [
        row("timm:a"),
        row("timm:b", ran="raised"),
        row("timm:c", inspected="raised"),
        row("base:d", macs="1"),
    ]
    found = page.summary(rows)
    passed = {check: sum(by_kind.values()) for check, by_kind in found["passed"].items()}
    assert passed == {
        "inspected": 3,
        "ran": 2,
        "params": 3,
        "macs": 1,
        "coverage": 2,
        "sums": 3,
        "trace": 3,
        "config": 1,
    }
    assert found["all passed"] == {"timm": 1, "base": 0, "causal": 0}


def test_every_failure_is_on_the_page_and_an_unexplained_one_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        row("timm:a"),
        row("timm:b", macs="1 and not 2"),
        {"name": "base:c", "wrong": {}, "unbuilt": "No: x"},
    ]
    monkeypatch.setattr(page, "EXPLAINED", {})
    monkeypatch.setattr(page, "OUT", {"base:c": "Needs a package."})
    assert page.write_page(rows, tmp_path, partly=False) == 1
    text = (tmp_path / "zoo.md").read_text()
    assert "- `timm:b`: MACs as counted independently: 1 and not 2" in text
    assert "- `base:c`: Needs a package." in text
    assert "unexplained: timm:b" in capsys.readouterr().err
    monkeypatch.setattr(page, "EXPLAINED", {"timm:b": "Its dice are cast anew in every call."})
    assert page.write_page(rows, tmp_path, partly=False) == 0
    assert "Its dice are cast anew" in (tmp_path / "zoo.md").read_text()


def test_a_page_of_some_does_not_replace_that_of_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert page.write_page([row("timm:a")], tmp_path, partly=True) == 0
    assert list(tmp_path.iterdir()) == []
    assert "not written" in capsys.readouterr().err
