"""Every name on the list is called dangerous in every kind of file, and the page of documentation says so."""

from __future__ import annotations

from pathlib import Path

import pytest

import modelglass as mg
from hostile.gadgets import WRAPPINGS, Gadget, gadgets
from modelglass.report import Finding

PAGE = Path(__file__).parents[2] / "docs" / "gadgets.md"
GADGETS = gadgets()


def findings(gadget: Gadget, wrapping: str, folder: Path) -> list[Finding]:
    suffix, content = WRAPPINGS[wrapping]
    path = folder / f"model{suffix}"
    path.write_bytes(content(gadget))
    return list(mg.scan(path).findings)


@pytest.mark.slow
@pytest.mark.parametrize("wrapping", WRAPPINGS)
def test_each_is_high_in_every_kind_of_file(wrapping: str, tmp_path: Path) -> None:
    missed = [
        gadget.path
        for gadget in GADGETS
        if not any(finding.level == "high" for finding in findings(gadget, wrapping, tmp_path))
    ]
    assert missed == []


def test_the_list_is_long_sorted_and_without_repetitions() -> None:
    names = [f"{gadget.module}:{gadget.name}" for gadget in GADGETS]
    assert len(names) > 800
    assert names == sorted(set(names), key=str.lower)
    assert sum("GHSA" in gadget.listed for gadget in GADGETS) >= 50


def test_the_page_is_current(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    renewed = page(tmp_path)
    if request.config.getoption("--update-golden"):
        PAGE.write_text(renewed)
    assert PAGE.read_text() == renewed


def page(folder: Path) -> str:
    rows = []
    for gadget in GADGETS:
        found = findings(gadget, "torch", folder)
        (level,) = {finding.level for finding in found if finding.code.startswith("pickle.")}
        code = next(finding.code for finding in found if finding.level == level)
        rows.append(f"| `{gadget.path}` | {gadget.listed} | {level} | `{code}` |")
    head = f"""# Names that run code

A pickle can call any function by its name. These {len(GADGETS)} have run code, opened files or connections,
or looked up others that do. They are from advisories of 2025 and 2026, which are named by their numbers; from
block-lists that scanners come with; and from a list of our own, of what was tried besides.

`modelglass scan` does not know this list. It reports whatever is not [proven to be data](scan.md#globals), so
that a name which nobody has listed yet comes out the same. Each is tried in a torch archive, a plain pickle
of protocols 0 and 4, a joblib file, and both older forms of torch files; a test keeps the table current.

| name | listed by | level | finding |
|---|---|---|---|
"""
    return head + "\n".join(rows) + "\n"
