"""What `make zoo` does with its workers, its results and its failures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from zoo import explained, judging, page, pool, repairs, results

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
    assert list(results.Results.of(path, ["timm:a"], fresh=False).rows) == ["timm:a"]


def test_what_other_code_or_another_configuration_gave_is_looked_for_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, names = tmp_path / "results.jsonl", ["timm:a", "base:bert", "base:t5"]
    first = results.Results.of(path, names, fresh=False)
    for name in names:
        first.keep(row(name, **({"macs": "1 and not 2"} if name == "base:t5" else {})))
    assert [first.is_known(name, again=False) for name in names] == [True, True, True]
    monkeypatch.setitem(results.REPAIRS, "bert", {"num_hidden_layers": 2})
    assert [first.is_known(name, again=False) for name in names] == [True, False, True]
    monkeypatch.setattr(results, "_shared_code", lambda unconfigured: "another")
    assert [first.is_known(name, again=False) for name in names] == [False, False, False]
    assert [first.is_known(name, again=True) for name in names] == [True, True, False]


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
    assert found["all passed"] == {"timm": 1, "base": 0, "causal": 0, "other": 0}


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What people know, instead of what they do."""
    tables: dict[str, Any] = {"EXPLAINED": {}, "AS_BUILT": {}, "OUT": {}}
    for name, table in tables.items():
        monkeypatch.setattr(repairs if name == "OUT" else explained, name, table)
    return tables


def test_every_failure_is_on_the_page_and_an_unexplained_one_is_an_error(
    known: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [row("timm:a"), row("timm:b", macs="1 and not 2"), {"name": "base:c", "wrong": {}, "unbuilt": "x"}]
    known["OUT"]["base:c"] = "needs a package"
    assert page.write_page(rows, tmp_path, partly=False) == 1
    text = (tmp_path / "zoo.md").read_text()
    assert "- `timm:b`: MACs as counted independently: 1 and not 2" in text
    assert "- `base:c`: needs a package" in text
    assert "unexplained: timm:b" in capsys.readouterr().err
    known["EXPLAINED"]["timm:b", "macs"] = "Its dice are cast anew in every call."
    assert page.write_page(rows, tmp_path, partly=False) == 0
    assert "Its dice are cast anew" in (tmp_path / "zoo.md").read_text()
    assert page.page(json.loads((tmp_path / "zoo.json").read_text())) == (tmp_path / "zoo.md").read_text()


def test_what_is_explained_of_one_check_explains_no_other(known: dict[str, Any]) -> None:
    known["EXPLAINED"]["timm:a", "macs"] = "Its dice are cast anew in every call."
    assert list(judging.unexplained([row("timm:a", macs="1", params="2")])) == ["timm:a: params"]


def test_an_explanation_that_nothing_needs_is_an_error(known: dict[str, Any]) -> None:
    known["EXPLAINED"]["timm:a", "macs"] = known["AS_BUILT"]["timm:b"] = known["OUT"]["base:c"] = "So it was."
    found = list(judging.unexplained([row("timm:a"), row("timm:b"), row("base:c")]))
    assert found == [
        f"{name}: explained, and needs no explanation" for name in ("base:c", "timm:a", "timm:b")
    ]


def test_another_count_than_written_out_needs_a_reason(known: dict[str, Any]) -> None:
    other = {**row("timm:a", macs="3 and not 2"), "macs": 3, "truth": 2, "as_built": 3}
    assert judging.judged([other])[0]["wrong"] == {"macs": "3 and not 2"}
    known["AS_BUILT"]["timm:a"] = "written out, it leaves a product out"
    assert judging.judged([other])[0]["wrong"] == {}
    assert judging.judged([{**other, "as_built": 4}])[0]["wrong"] == {"macs": "3 and not 2"}


def test_an_operator_that_nobody_has_judged_fails_the_check() -> None:
    found = judging.judged([{**row("timm:a"), "free": ["aten.relu", "aten.addbmm"]}])
    assert found[0]["wrong"] == {"macs": "nobody has judged whether these are products: aten.addbmm"}


def test_a_page_of_some_does_not_replace_that_of_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert page.write_page([row("timm:a")], tmp_path, partly=True) == 0
    assert list(tmp_path.iterdir()) == []
    assert "not written" in capsys.readouterr().err
