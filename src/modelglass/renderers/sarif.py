"""What was found, as SARIF 2.1.0: the form in which code hosts and editors take the results of scanners."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

from modelglass._version import __version__
from modelglass.page.redact import redact_noun
from modelglass.page.sections.findings import SHOWN, by_severity
from modelglass.renderers._escape import printable
from modelglass.renderers._json import pretty
from modelglass.report import Finding, Level, Scan

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS: dict[Level, str] = {
    "invalid": "error",
    "limit": "error",
    "high": "error",
    "notice": "warning",
    "info": "note",
}
_ABOUT: dict[Level, str] = {
    "invalid": "The file breaks the rules of its format, can be read in two ways, or is not a model.",
    "limit": "Reading stopped at a limit; the result is incomplete.",
    "high": "Loading runs what the file names, or reaches outside of it.",
    "notice": "Loading needs or runs something beyond tensors.",
    "info": "Ordinary files have this as well.",
}
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
_SHARE = re.compile(r"\\\\[^\\/?.]")  # \\server\share


def render(scan: Scan, *, redact: bool = False) -> str:
    """One run with a result for each finding."""
    scan = redact_noun(scan) if redact else scan
    rules = _rules(scan.findings)
    run = {
        "tool": {"driver": {"name": "modelglass", "version": __version__, "rules": list(rules.values())}},
        "artifacts": [_artifact(file.path, file.nbytes) for file in scan.files],
        "results": list(_results(scan.findings, list(rules))),
        "columnKind": "unicodeCodePoints",
    }
    return pretty({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]})


def _rules(findings: Sequence[Finding]) -> dict[str, dict[str, Any]]:
    """A rule for each code, with the highest level at which it was found."""
    highest: dict[str, Level] = {}
    for finding in by_severity(findings):
        highest.setdefault(finding.code, finding.level)
    return {
        code: {
            "id": printable(code),
            "shortDescription": {"text": _describe(code)},
            "fullDescription": {"text": _ABOUT[level]},
            "defaultConfiguration": {"level": _LEVELS[level]},
        }
        for code, level in sorted(highest.items())
    }


def _describe(code: str) -> str:
    """ "pickle.no-stop" is "pickle: no stop"."""
    return printable(code).replace(".", ": ", 1).replace("-", " ")


def _artifact(path: str, nbytes: int | None) -> dict[str, Any]:
    length = {} if nbytes is None else {"length": nbytes}
    return {"location": {"uri": _uri(path)}, **length, "roles": ["analysisTarget"]}


def _results(findings: Sequence[Finding], codes: Sequence[str]) -> Iterator[dict[str, Any]]:
    index = {code: number for number, code in enumerate(codes)}
    seen: Counter[str] = Counter()
    for finding in findings:
        mark = _fingerprint(finding)
        seen[mark] += 1  # equal findings stay apart, in the order in which they lie in the file
        yield {
            "ruleId": printable(finding.code),
            "ruleIndex": index[finding.code],
            "level": _LEVELS[finding.level],
            "message": {"text": _message(finding)},
            "locations": [_location(finding)],
            "partialFingerprints": {"modelglassFinding/v1": f"{mark}:{seen[mark]}"},
            "properties": _properties(finding),
        }


def _message(finding: Finding) -> str:
    """The text, in which nothing is a link or a place to fill in, as SARIF has them."""
    text = finding.text if len(finding.text) <= SHOWN else f"{finding.text[: SHOWN - 1]}…"
    plain = printable(text).replace("{", "{{").replace("}", "}}").replace("](", "] (")
    return plain or _describe(finding.code)


def _location(finding: Finding) -> dict[str, Any]:
    """The file, the member in it, and the byte: SARIF counts bytes from the start of the file only."""
    physical: dict[str, Any] = {"artifactLocation": {"uri": _uri(finding.file)}}
    if finding.member is None:
        if finding.offset is not None:
            physical["region"] = {"byteOffset": finding.offset}
        return {"physicalLocation": physical}
    member = printable(finding.member)
    logical = {"name": member.rpartition("/")[2] or member, "fullyQualifiedName": member, "kind": "member"}
    return {"physicalLocation": physical, "logicalLocations": [logical]}


def _properties(finding: Finding) -> dict[str, Any]:
    properties: dict[str, Any] = {"level": finding.level}
    if finding.member is not None and finding.offset is not None:
        properties["memberByteOffset"] = finding.offset
    if finding.details:
        properties["details"] = _show(finding.details)
    return properties


def _show(value: Any) -> Any:
    """The value with its texts made printable: strict readers refuse half of a surrogate pair."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {printable(key): _show(item) for key, item in value.items()}
    return [_show(item) for item in value] if isinstance(value, list) else value


def _fingerprint(finding: Finding) -> str:
    """The same for the same finding, wherever in the file it has moved."""
    parts = (finding.code, _uri(finding.file), finding.member or "", finding.text)
    joined = "\0".join(part.replace("\0", "\\0") for part in parts)
    return hashlib.sha256(joined.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _uri(path: str) -> str:
    """The path as an address: relative as it was given, or `file://` and absolute."""
    if _SHARE.match(path):
        return f"file:{_quote(path.replace(chr(92), '/'))}"
    if _DRIVE.match(path):
        return f"file:///{path[:2]}{_quote(path[2:].replace(chr(92), '/'))}"
    return f"file://{_quote(path)}" if path.startswith("/") else _quote(path.removeprefix("./"))


def _quote(path: str) -> str:
    try:
        named = path.encode("utf-8", "surrogateescape")  # how names that are no UTF-8 come from the system
    except UnicodeEncodeError:
        named = path.encode("utf-8", "surrogatepass")
    return quote(named, safe="/")
