"""One file searched for what loading it would do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from modelglass.errors import FileError, LimitError
from modelglass.formats.documents.reader import DocumentError
from modelglass.formats.folders import read_found
from modelglass.formats.limits import Limits
from modelglass.formats.reading import Reading
from modelglass.report import Finding, ScannedFile


class ScanAnswer(NamedTuple):
    """A file that was looked at, and the paths of others that were opened as parts of it."""

    file: ScannedFile
    opened: tuple[str, ...] = ()


def look(
    path: Path, within: Path | None, limits: Limits, *, exhausted: tuple[type[Exception], ...] = ()
) -> ScanAnswer:
    """What is found in a file. Errors of the `exhausted` kinds end the search, and are told as limits."""
    with closing(Reading(limits=limits.of_one_file(), thorough=True)) as reading:
        scanned = _scan_file(path, reading, within, exhausted)
        return ScanAnswer(scanned, tuple(str(each.path) for each in reading.opened[1:]))


def _scan_file(
    path: Path, reading: Reading, within: Path | None, exhausted: tuple[type[Exception], ...]
) -> ScannedFile:
    try:
        read_found(path, reading, within=within)
    except DocumentError:
        pass  # it was searched, and that a document has no weights is not a finding
    except FileError as error:
        reading.stopped(error)
    except exhausted as error:
        reading.stopped(_exhausted(path, reading.limits, error))
    opened = reading.opened
    return ScannedFile(
        path=str(path),
        format=reading.format,
        nbytes=sum(each.nbytes for each in opened) if opened else None,
        read_nbytes=sum(min(each.meter.nbytes, each.nbytes) for each in opened),
        weights_only=reading.weights_only,
        refusal=reading.refusal,
        globals=tuple(reading.globals),
        findings=(*reading.findings, *_beyond(path, reading)),
    )


def _exhausted(path: Path, limits: Limits, error: Exception) -> LimitError:
    name = "memory_nbytes" if isinstance(error, MemoryError) else "seconds"
    return LimitError(
        f"stopped at the limit {name} = {getattr(limits, name):,}: what comes after that was not looked at",
        file=str(path),
        code="limit",
        hint=f"if you trust the file, raise it: --limit {name}=N",
    )


def _beyond(path: Path, reading: Reading) -> Iterator[Finding]:
    """One finding for all of a kind that were too many to keep."""
    for (code, level), count in reading.beyond.items():
        yield Finding(code=code, level=level, text=f"and {count:,} more of this kind", file=str(path))
