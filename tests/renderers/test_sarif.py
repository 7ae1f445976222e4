"""What was found, as SARIF: what consumers of version 2.1.0 rely on."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from modelglass import __version__
from modelglass.renderers import sarif
from modelglass.report import Finding, Scan, ScannedFile

LEVELS = {"invalid": "error", "limit": "error", "high": "error", "notice": "warning", "info": "note"}


def finding(level: str = "high", **more: Any) -> Finding:
    known = {"code": f"pickle.{level}-thing", "text": f"{level} found", "file": "models/a b.pt"}
    return Finding(**{**known, "level": level, **more})


def scanned(*findings: Finding, path: str = "models/a b.pt") -> Scan:
    file = ScannedFile(path=path, format="torch_zip", nbytes=100, read_nbytes=90, findings=findings)
    return Scan(files=(file,))


def run_of(found: Scan) -> dict[str, Any]:
    document = json.loads(sarif.render(found))
    assert document["version"] == "2.1.0"
    assert document["$schema"].endswith("sarif-2.1.0.json")
    (run,) = document["runs"]
    return dict(run)


def uri_of(result: dict[str, Any]) -> str:
    return str(result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"])


def test_the_tool_and_its_version() -> None:
    driver = run_of(scanned())["tool"]["driver"]
    assert (driver["name"], driver["version"]) == ("modelglass", __version__)


def test_every_result_has_what_the_standard_requires() -> None:
    run = run_of(scanned(*map(finding, LEVELS)))
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == sorted({result["ruleId"] for result in run["results"]})
    for result in run["results"]:
        rule = rules[result["ruleIndex"]]
        assert rule["id"] == result["ruleId"]
        assert rule["defaultConfiguration"]["level"] == result["level"]
        assert rule["shortDescription"]["text"]
        assert result["message"]["text"]
        assert len(result["locations"]) == 1
        assert all(isinstance(item, str) for item in result["partialFingerprints"].values())


@pytest.mark.parametrize("level", LEVELS)
def test_levels(level: str) -> None:
    (result,) = run_of(scanned(finding(level)))["results"]
    assert result["level"] == LEVELS[level]
    assert result["properties"]["level"] == level


def test_a_rule_has_the_highest_level_of_its_code() -> None:
    run = run_of(
        scanned(finding("info", code="a.b"), finding("high", code="a.b"), finding("notice", code="a.b"))
    )
    (rule,) = run["tool"]["driver"]["rules"]
    assert rule["defaultConfiguration"]["level"] == "error"
    assert [result["level"] for result in run["results"]] == ["note", "error", "warning"]


def test_a_byte_of_the_file_is_a_region_and_a_byte_of_a_member_is_not() -> None:
    run = run_of(scanned(finding(offset=12), finding(offset=12, member="archive/data.pkl"), finding()))
    in_file, in_member, nowhere = run["results"]
    assert in_file["locations"][0]["physicalLocation"]["region"] == {"byteOffset": 12}
    assert "logicalLocations" not in in_file["locations"][0]
    assert "region" not in in_member["locations"][0]["physicalLocation"]
    (logical,) = in_member["locations"][0]["logicalLocations"]
    assert (logical["name"], logical["fullyQualifiedName"]) == ("data.pkl", "archive/data.pkl")
    assert in_member["properties"]["memberByteOffset"] == 12
    assert "region" not in nowhere["locations"][0]["physicalLocation"]


URIS = {
    "models/a b.pt": "models/a%20b.pt",
    "./a.pt": "a.pt",
    "../a.pt": "../a.pt",
    "/srv/a.pt": "file:///srv/a.pt",
    r"C:\models\a.pt": "file:///C:/models/a.pt",
    "javascript:alert(1)": "javascript%3Aalert%281%29",
    "a?b#c%20.pt": "a%3Fb%23c%2520.pt",
    "\u202eé.pt": "%E2%80%AE%C3%A9.pt",
    "name\udcff": "name%FF",
    "lone\ud800": "lone%ED%A0%80",
    "a\nb": "a%0Ab",
}


@pytest.mark.parametrize("path", URIS, ids=ascii)
def test_paths_are_addresses(path: str) -> None:
    run = run_of(scanned(finding(file=path), path=path))
    assert uri_of(run["results"][0]) == URIS[path]
    assert run["artifacts"][0]["location"]["uri"] == URIS[path]
    assert urlsplit(URIS[path]).scheme in ("", "file")


def test_an_address_leads_back_to_the_path() -> None:
    path = "a b/ü%?#&+=;:@[]{}|^~!$'(),.pt"
    (result,) = run_of(scanned(finding(file=path)))["results"]
    assert unquote(uri_of(result)) == path


def test_fingerprints_are_stable_and_tell_findings_apart() -> None:
    def marks(*findings: Finding) -> list[str]:
        return [
            result["partialFingerprints"]["modelglassFinding/v1"]
            for result in run_of(scanned(*findings))["results"]
        ]

    first = finding(offset=12)
    others = [
        replace(first, code="a.b"),
        replace(first, text="other"),
        replace(first, file="other"),
        replace(first, member="data.pkl"),
    ]
    assert marks(first) == marks(first)
    assert marks(first) == marks(replace(first, offset=99)), "a finding that moved is the same finding"
    assert len(set(marks(first, *others, first))) == 6


def test_texts_do_not_become_links_of_the_standard() -> None:
    (result,) = run_of(scanned(finding(text="[click](https://example.org) \u202e\x1b[31m\ud800")))["results"]
    assert result["message"]["text"] == "[click] (https://example.org) \\u202e\\x1b[31m\\ud800"


def test_details_come_along() -> None:
    details = {"name": "os.system", "count": 2, "\ud800": ["\u202e", None]}
    (result,) = run_of(scanned(finding(details=details)))["results"]
    shown = {"name": "os.system", "count": 2, "\\ud800": ["\\u202e", None]}
    assert result["properties"]["details"] == shown


def test_no_findings_are_an_empty_list_and_the_files_are_named() -> None:
    run = run_of(scanned())
    assert run["results"] == []
    assert run["artifacts"][0]["length"] == 100
