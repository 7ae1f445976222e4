"""What was found in files, as text, Markdown, CSV and JSON.

No output says that a file is safe: it says what was found, and how much was read.
"""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from itertools import groupby
from typing import Any

from modelglass.renderers._escape import cell_width, csv_cell, fitted, markdown, printable
from modelglass.renderers._json import pretty
from modelglass.renderers._markdown import head, line
from modelglass.page.redact import redacted_noun
from modelglass.renderers._terminal import BOLD, CYAN, DIM, RED, YELLOW, Paint, Style, Table, painter
from modelglass.page.units import size
from modelglass.report import Finding, GlobalUse, Level, Scan, ScannedFile

FORMAT = "modelglass-scan"
VERSION = 1
ORDER: tuple[Level, ...] = ("invalid", "limit", "high", "notice", "info")  # most severe first

SHOWN = 600  # cells of one text; JSON has all of it
MOST = 100  # findings, and globals, of one file; JSON has all of them
_LEVEL_STYLE = {"invalid": RED, "limit": RED, "high": RED, "notice": YELLOW, "info": DIM}
_KINDS = ("dynamic", "call", "class", "data", "core")  # most telling first
_KIND_STYLE = {"dynamic": RED, "call": RED, "class": YELLOW}
_INERT = frozenset({"core", "data"})
_GLOBALS = ("name", "kind", "called", "times", "package", "where", "arguments")
_NUMBERS = frozenset({"times"})
_FLEXIBLE = {"name": 20, "package": 12, "where": 14, "arguments": 16}
_FROM_WIDTH = {"arguments": 80, "package": 70, "where": 60, "called": 50}  # worth showing from here on
_VERDICT = "torch.load(weights_only=True)"
_LONGEST_INTEGER = 13_000  # bits; Python refuses to write much longer ones in decimal


def render(scan: Scan, *, width: int = 100, color: bool = False, redact: bool = False) -> str:
    """What was found, file by file, in lines of at most `width` cells."""
    scan = redacted_noun(scan) if redact else scan
    paint = painter(color)
    parts = []
    for brief, files in groupby(scan.files, key=lambda file: len(scan.files) > 1 and quiet(file)):
        if brief:
            parts.append("\n".join(_brief(file, width) for file in files))
        else:
            parts += [_block(file, width, paint) for file in files]
    parts.append(_styled(summary(scan), width, paint, _summary_style(scan)))
    return "\n\n".join(parts) + "\n"


def render_markdown(scan: Scan, *, redact: bool = False) -> str:
    """What was found, for a pull request."""
    scan = redacted_noun(scan) if redact else scan
    lines = ["## Scan", "", markdown(summary(scan)), ""]
    for brief, files in groupby(scan.files, key=lambda file: len(scan.files) > 1 and quiet(file)):
        if brief:
            lines += [*(f"- {_safe(file.path)}: {_safe(_about(file))}" for file in files), ""]
        else:
            lines += [text for file in files for text in _markdown_block(file)]
    return "\n".join(lines).rstrip("\n") + "\n"


def render_csv(scan: Scan, *, redact: bool = False) -> str:
    """A line for each file, each finding and each global, under the same heads."""
    scan = redacted_noun(scan) if redact else scan
    out = io.StringIO()
    writer = csv.DictWriter(out, _CSV, restval="", lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writeheader()
    for row in _records(scan):
        writer.writerow({key: csv_cell(item) if isinstance(item, str) else item for key, item in row.items()})
    return out.getvalue()


def render_json(scan: Scan, *, redact: bool = False) -> str:
    """Every field of the scan, the same text for the same scan."""
    scan = redacted_noun(scan) if redact else scan
    return pretty({"format": FORMAT, "version": VERSION, **plain(scan)})


def plain(value: Any) -> Any:
    """The value as JSON can hold it, each field of each noun included."""
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and value.bit_length() > _LONGEST_INTEGER:
        return hex(value)
    return value


def quiet(file: ScannedFile) -> bool:
    """Whether the file was understood and shows nothing but what ordinary files have."""
    return (
        file.format is not None
        and file.nbytes is not None
        and all(finding.level == "info" for finding in file.findings)
        and all(use.kind in _INERT for use in file.globals)
    )


def summary(scan: Scan) -> str:
    """One sentence about all files."""
    if not scan.files:
        return "Nothing was read: there was no file to scan."
    read = _number(sum(file.read_nbytes for file in scan.files), "byte")
    unread = _number(sum(file.unread_nbytes or 0 for file in scan.files), "byte")
    if all(map(quiet, scan.files)):
        return f"Found nothing that runs code in the {read} read; {unread} not read.{_carried(scan)}"
    levels = Counter(finding.level for finding in scan.findings)
    told = ", ".join(f"{levels[level]:,} {level}" for level in ORDER if levels[level])
    found = f"{_number(len(scan.findings), 'finding')} in {_number(len(scan.files), 'file')}"
    unknown = sum(file.format is None for file in scan.files)
    more = f"; {_number(unknown, 'file')} not recognised" if unknown else ""
    return f"{found}{f': {told}' if told else ''}{more}; {read} read, {unread} not read."


def place(finding: Finding, path: str | None = None) -> str:
    """Where in the file it was found; the file itself is named unless it is `path`."""
    parts = [finding.file] if path is not None and finding.file != path else []
    parts += [finding.member] if finding.member is not None else []
    parts += [f"at byte {finding.offset:,}"] if finding.offset is not None else []
    return ", ".join(parts)


def by_severity(findings: Iterable[Finding]) -> list[Finding]:
    """The most severe first, equals in their own order."""
    return sorted(findings, key=lambda finding: ORDER.index(finding.level))


def _carried(scan: Scan) -> str:
    """Code that loading does not run, but using the model does."""
    codes = sorted({finding.code for finding in scan.findings if finding.code.startswith("code.")})
    return f" Code that comes along, for later: {', '.join(codes)}." if codes else ""


def _number(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _summary_style(scan: Scan) -> str | None:
    if not scan.files:
        return RED
    worst = by_severity(scan.findings)[:1]
    return next((_LEVEL_STYLE[finding.level] for finding in worst if finding.level != "info"), None)


def _block(file: ScannedFile, width: int, paint: Paint) -> str:
    top = [_styled(f"{file.path}: {_kind(file)}", width, paint, BOLD)]
    top += [_styled(text, width, paint, style) for text, style in _verdict(file)]
    parts = ["\n".join(top)]
    findings = by_severity(file.findings)
    if findings:
        texts = [
            _styled(_finding(finding, file.path), width, paint, _LEVEL_STYLE[finding.level])
            for finding in findings[:MOST]
        ]
        parts.append("\n".join([*texts, *_rest(len(findings), "findings")]))
    uses = _listed(file)
    if uses:
        parts.append(_table(uses[:MOST], width, paint))
        parts += _rest(len(uses), "globals")
    core = _core(file)
    if core:
        parts.append(paint(fitted(printable(core[: SHOWN + width]), width), DIM))
    return "\n\n".join(parts)


def _brief(file: ScannedFile, width: int) -> str:
    rest = printable(f": {_about(file)}")
    path = fitted(printable(file.path[:SHOWN]), max(20, width - cell_width(rest)))
    return fitted(f"{path}{rest}", width)


def _about(file: ScannedFile) -> str:
    """A file without anything above info, in few words."""
    parts = [_kind(file)]
    parts += [f"weights_only {file.weights_only}"] if file.weights_only is not None else []
    parts += [f"{len(file.findings):,} info"] if file.findings else []
    return ", ".join(parts)


def _kind(file: ScannedFile) -> str:
    format = "not recognised" if file.format is None else file.format
    return f"{format}, size unknown" if file.nbytes is None else f"{format}, {size(file.nbytes)}"


def _verdict(file: ScannedFile) -> Iterator[tuple[str, str | None]]:
    if file.weights_only == "accepts":
        yield f"{_VERDICT}: accepts", None
    elif file.weights_only == "refuses":
        yield f"{_VERDICT}: refuses{f': {file.refusal}' if file.refusal else ''}", YELLOW


def _finding(finding: Finding, path: str) -> str:
    where = place(finding, path)
    return f"{finding.level} [{finding.code}] {f'{_short(where)}: ' if where else ''}{finding.text}"


def _rest(number: int, nouns: str) -> list[str]:
    return [f"and {number - MOST:,} more {nouns}: --format json has all"] if number > MOST else []


def _listed(file: ScannedFile) -> list[GlobalUse]:
    """The globals worth a line each, the most telling kinds first."""
    uses = [use for use in file.globals if use.kind != "core"]
    return sorted(uses, key=lambda use: _KINDS.index(use.kind))


def _core(file: ScannedFile) -> str:
    """The globals that every file of tensors has, in one line."""
    names = list(dict.fromkeys(use.name for use in file.globals if use.kind == "core"))
    if not names:
        return ""
    return f"{_number(len(names), 'core global')}: {', '.join(names[:MOST])}"


def _table(uses: Sequence[GlobalUse], width: int, paint: Paint) -> str:
    names = [name for name in _GLOBALS if width >= _FROM_WIDTH.get(name, 0)]
    heads = ["global" if name == "name" else name for name in names]
    first = uses[0].member
    shared = first is not None and all(use.member == first for use in uses)  # named once, above
    title = f"{_styled(f'Globals in {first}:', width, paint, None)}\n\n" if shared else ""
    shown = [replace(use, member=None) for use in uses] if shared else uses
    texts = [[printable(_short(_cell(use, name))) for name in names] for use in shown]
    table = Table(names, heads, texts, numbers=_NUMBERS, flexible=_FLEXIBLE)
    return title + table.text(width, [_style(use) for use in uses], paint)


def _style(use: GlobalUse) -> Style:
    of_kind = _KIND_STYLE.get(use.kind)
    return {"name": of_kind or CYAN, "kind": of_kind, "where": DIM, "arguments": DIM}.get


def _cell(use: GlobalUse, column: str) -> str:
    if column == "times":
        return f"{use.count:,}"
    if column == "called":
        return "called" if use.called else "named"
    if column == "where":
        return f"byte {use.offset:,}" + (f", {use.member}" if use.member is not None else "")
    text: str | None = getattr(use, column)
    return "–" if text is None else text


def _short(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


def _styled(text: str, width: int, paint: Paint, style: str | None) -> str:
    shown = fitted(printable(text[: SHOWN + 1]), SHOWN)
    return "\n".join(paint(part, style) for part in _folded(shown, width))


def _folded(text: str, width: int) -> list[str]:
    """The text in lines of at most `width` cells, later ones indented; a word too long for one is broken."""
    lines, current, indent = [], "", "    "
    for word in text.split(" "):
        candidate = f"{current} {word}" if current.strip() else current + word
        if current.strip() and cell_width(candidate) > width:
            lines.append(current)
            candidate = indent + word
        while cell_width(candidate) > width:
            kept = _first_cells(candidate, width)
            lines.append(candidate[:kept])
            candidate = indent + candidate[kept:]
        current = candidate
    return [*lines, current] if current.strip() or not lines else lines


def _first_cells(text: str, width: int) -> int:
    """How many characters of the text fit into that many cells."""
    used = 0
    for index, char in enumerate(text):
        used += cell_width(char)
        if used > width:
            return index
    return len(text)


def _safe(text: str) -> str:
    return markdown(_short(text))


def _markdown_block(file: ScannedFile) -> Iterator[str]:
    yield from (f"### {_safe(file.path)}", "", _safe(_kind(file)), "")
    for text, _ in _verdict(file):
        yield from (_safe(text), "")
    findings = by_severity(file.findings)
    if findings:
        columns = ("level", "code", "where", "finding")
        yield from head(columns, columns, ())
        for finding in findings[:MOST]:
            where = place(finding, file.path) or "–"
            yield line(map(_safe, (finding.level, finding.code, where, finding.text)))
        yield from ("", *_paragraph(_rest(len(findings), "findings")))
    uses = _listed(file)
    if uses:
        yield from head(_GLOBALS, ("global", *_GLOBALS[1:]), _NUMBERS)
        yield from (line(_safe(_cell(use, name)) for name in _GLOBALS) for use in uses[:MOST])
        yield from ("", *_paragraph(_rest(len(uses), "globals")))
    core = _core(file)
    if core:
        yield from (_safe(core), "")


def _paragraph(lines: Sequence[str]) -> list[str]:
    return [*lines, ""] if lines else []


_CSV = (
    "record",
    "file",
    "format",
    "nbytes",
    "read_nbytes",
    "weights_only",
    "level",
    "code",
    "member",
    "offset",
    "name",
    "kind",
    "called",
    "count",
    "package",
    "text",
)


def _records(scan: Scan) -> Iterator[dict[str, object]]:
    for file in scan.files:
        yield {
            "record": "file",
            "file": file.path,
            "format": file.format,
            "nbytes": file.nbytes,
            "read_nbytes": file.read_nbytes,
            "weights_only": file.weights_only,
            "text": file.refusal,
        }
        for finding in by_severity(file.findings):
            yield {"record": "finding", **_of(finding, "file", "level", "code", "member", "offset", "text")}
        for use in file.globals:
            yield {
                "record": "global",
                **_of(use, "file", "name", "kind", "member", "offset", "count", "package"),
                "called": "called" if use.called else "named",
                "text": use.arguments,
            }


def _of(noun: object, *names: str) -> dict[str, object]:
    return {name: getattr(noun, name) for name in names}
