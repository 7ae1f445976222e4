"""Files and folders searched for what loading them would do."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from modelglass.errors import FileError
from modelglass.formats.documents import DocumentError
from modelglass.formats.folders import MOST_FILES, WEIGHTS, read_found
from modelglass.formats.limits import Limits
from modelglass.formats.reading import Reading
from modelglass.formats.torch import distributed
from modelglass.report import Finding, Level, Scan, ScannedFile

Progress = Callable[[str], None]


def scan(paths: Sequence[Path], limits: Limits, progress: Progress) -> Scan:
    """What was found in each file. Files in a folder that do not claim to be models are passed over."""
    files: list[ScannedFile] = []
    for path in paths:
        if os.path.isdir(path):
            files += _scan_folder(path, limits, progress)
        else:
            progress(f"scanning {path.name}")
            files.append(_scan_file(path, limits))
    return Scan(files=tuple(files))


def _scan_folder(folder: Path, limits: Limits, progress: Progress) -> list[ScannedFile]:
    walk = _Walk(folder)
    found: list[ScannedFile] = []
    for number, path in enumerate(walk.files()):
        progress(f"scanning {path.name}, file {number + 1:,}")
        scanned = _scan_file(path, limits, within=folder)
        claims = path.suffix.lower() in WEIGHTS
        if scanned.format is not None or claims or any(each.level == "high" for each in scanned.findings):
            found.append(scanned)
    if not found and not walk.troubles:
        walk.add("not-a-model", "invalid", "no file in this folder is a model")
    if walk.troubles:
        found.append(
            ScannedFile(
                path=str(folder), format=None, nbytes=None, read_nbytes=0, findings=tuple(walk.troubles)
            )
        )
    return found


class _Walk:
    """The files below a folder, in order, and what kept some of them from being looked at."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.troubles: list[Finding] = []

    def files(self) -> Iterator[Path]:
        """Each file; links to folders are not followed, and pieces that others describe are left to these."""
        count = 0
        for parent, folders, names in os.walk(self._folder, onerror=self._failed):
            folders.sort()
            for name in sorted(names):
                count += 1
                if count > MOST_FILES:
                    self.add("limit", "limit", f"more than {MOST_FILES:,} files; the rest is not looked at")
                    return
                if not _is_described(Path(parent, name)):
                    yield Path(parent, name)

    def add(self, code: str, level: Level, text: str, *, file: str | None = None) -> None:
        self.troubles.append(Finding(code=code, level=level, text=text, file=file or str(self._folder)))

    def _failed(self, error: OSError) -> None:
        text = f"a folder cannot be read: {error.strerror}"
        self.add("cannot-open", "invalid", text, file=str(error.filename))


def _is_described(path: Path) -> bool:
    """Whether the pieces of a file are described elsewhere, and are scanned from there."""
    return path.suffix == ".distcp" and (path.parent / distributed.METADATA).exists()


def _scan_file(path: Path, limits: Limits, *, within: Path | None = None) -> ScannedFile:
    reading = Reading(limits=limits, thorough=True)
    try:
        read_found(path, reading, within=within)
    except DocumentError:
        pass  # it was searched, and that a document has no weights is not a finding
    except FileError as error:
        reading.stopped(error)
    opened = list(reading.opened)
    reading.close()
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


def _beyond(path: Path, reading: Reading) -> Iterator[Finding]:
    """One finding for all of a kind that were too many to keep."""
    for (code, level), count in reading.beyond.items():
        yield Finding(code=code, level=level, text=f"and {count:,} more of this kind", file=str(path))
