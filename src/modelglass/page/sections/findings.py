"""What was found in files.

Nothing here says that a file is safe: it says what was found, and how much was read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from modelglass.page import Block, Cell, Column, Heading, Items, Listing, RowTone, Table, Text, Tone
from modelglass.page.units import size
from modelglass.report import Finding, GlobalUse, Level, Scan, ScannedFile

ORDER: tuple[Level, ...] = ("invalid", "limit", "high", "notice", "info")  # most severe first
SHOWN = 600  # characters of one text; JSON has all of it
MOST = 100  # findings, and globals, of one file; JSON has all of them
_LEVEL_TONES: dict[Level, Tone] = {
    "invalid": "alarm",
    "limit": "alarm",
    "high": "alarm",
    "notice": "warning",
    "info": "quiet",
}
_KINDS = ("dynamic", "call", "class", "data", "core")  # most telling first
_KIND_TONES: dict[str, Tone] = {"dynamic": "alarm", "call": "alarm", "class": "warning"}
_INERT = frozenset({"core", "data"})
_FINDINGS = tuple(Column(name, name) for name in ("level", "code", "where", "finding"))
_GLOBALS = (
    Column("name", "global", least=20),
    Column("kind", "kind"),
    Column("called", "called", from_width=50),
    Column("times", "times", number=True),
    Column("package", "package", least=12, from_width=70),
    Column("where", "where", least=14, from_width=60),
    Column("arguments", "arguments", least=16, from_width=80),
)
_VERDICT = "torch.load(weights_only=True)"
_DATA = (
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


def blocks(scan: Scan, top: int | None = None) -> Iterator[Block]:
    """What it comes to, and what was found, file by file."""
    yield Heading("Scan", level=2, of_document=True)
    yield Text([summary(scan)], tone=_summary_tone(scan), at_end=True)
    for brief, files in groupby(scan.files, key=lambda file: len(scan.files) > 1 and quiet(file)):
        if brief:
            yield Items([(file.path, _about(file)) for file in files])
        else:
            for file in files:
                yield from _file(file, top or MOST)


def data(scan: Scan) -> Table:
    """A row for each file, each finding and each global, under the same heads."""
    columns = [Column(name, name) for name in _DATA]
    return Table(columns, [[Cell("", record.get(name)) for name in _DATA] for record in _records(scan)])


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


def _summary_tone(scan: Scan) -> Tone | None:
    if not scan.files:
        return "alarm"
    worst = by_severity(scan.findings)[:1]
    return next((_LEVEL_TONES[finding.level] for finding in worst if finding.level != "info"), None)


def _file(file: ScannedFile, most: int) -> Iterator[Block]:
    yield Heading(file.path, about=_kind(file), below=list(_verdict(file)))
    findings = by_severity(file.findings)
    if findings:
        yield _findings(findings, file.path, most)
    uses = _listed(file)
    if uses:
        yield from _globals(uses, most)
    core = _core(file)
    if core:
        yield Text([core], tone="quiet", cut=True)


def _findings(findings: Sequence[Finding], path: str, most: int) -> Listing:
    shown = findings[:most]
    rows = [(each.level, each.code, place(each, path) or "–", each.text) for each in shown]
    tones: list[RowTone] = [_LEVEL_TONES[each.level] for each in shown]
    table = Table(_FINDINGS, rows, tones=tones, more=_rest(len(findings) - most, "findings"))
    return Listing([_sentence(each, path) for each in shown], table)


def _about(file: ScannedFile) -> str:
    """A file without anything above info, in few words."""
    parts = [_kind(file)]
    parts += [f"weights_only {file.weights_only}"] if file.weights_only is not None else []
    parts += [f"{len(file.findings):,} info"] if file.findings else []
    return ", ".join(parts)


def _kind(file: ScannedFile) -> str:
    format = "not recognised" if file.format is None else file.format
    return f"{format}, size unknown" if file.nbytes is None else f"{format}, {size(file.nbytes)}"


def _verdict(file: ScannedFile) -> Iterator[tuple[str, Tone | None]]:
    if file.weights_only == "accepts":
        yield f"{_VERDICT}: accepts", None
    elif file.weights_only == "refuses":
        yield f"{_VERDICT}: refuses{f': {file.refusal}' if file.refusal else ''}", "warning"


def _sentence(finding: Finding, path: str) -> str:
    where = place(finding, path)
    return f"{finding.level} [{finding.code}] {f'{_short(where)}: ' if where else ''}{finding.text}"


def _rest(number: int, nouns: str) -> str:
    return f"and {number:,} more {nouns}: --format json has all" if number > 0 else ""


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


def _globals(uses: Sequence[GlobalUse], most: int) -> Iterator[Block]:
    shown, first = uses[:most], uses[0].member
    if first is not None and all(use.member == first for use in shown):  # named once, above
        yield Text([f"Globals in {first}:"])
        shown = [replace(use, member=None) for use in shown]
    rows = [[_cell(use, column.name) for column in _GLOBALS] for use in shown]
    yield Table(_GLOBALS, rows, tones=list(map(_tones, shown)), more=_rest(len(uses) - most, "globals"))


def _tones(use: GlobalUse) -> RowTone:
    of_kind = _KIND_TONES.get(use.kind)
    return {"name": of_kind or "accent", "kind": of_kind, "where": "quiet", "arguments": "quiet"}


def _cell(use: GlobalUse, column: str) -> Cell | str:
    if column == "times":
        return Cell(f"{use.count:,}", use.count)
    if column == "called":
        return "called" if use.called else "named"
    if column == "where":
        return f"byte {use.offset:,}" + (f", {use.member}" if use.member is not None else "")
    text: str | None = getattr(use, column)
    return "–" if text is None else _short(text)


def _short(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


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
