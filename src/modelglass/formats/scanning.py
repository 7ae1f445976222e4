"""Files and folders searched for what loading them would do."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from modelglass.errors import FileError
from modelglass.formats.documents import DocumentError
from modelglass.formats.folders import MOST_FILES, WEIGHTS, read_found
from modelglass.formats.limits import Limits
from modelglass.formats.reading import Reading
from modelglass.formats.strangers import ORDINARY
from modelglass.report import Finding, Level, Scan, ScannedFile

_LOGS = ("events.out.tfevents.",)

Progress = Callable[[str], None]


def scan(paths: Sequence[Path], limits: Limits, progress: Progress) -> Scan:
    """What was found in each file. Files in a folder that do not claim to be models are passed over."""
    files: list[ScannedFile] = []
    for path in paths:
        if os.path.isdir(path):
            files += _scan_folder(path, limits, progress)
        else:
            progress(f"scanning {path.name}")
            with closing(Reading(limits=limits, thorough=True)) as reading:
                files.append(_scan_file(path, reading))
    return Scan(files=tuple(files))


def _scan_folder(folder: Path, limits: Limits, progress: Progress) -> list[ScannedFile]:
    walk = _Walk(folder)
    found: list[ScannedFile] = []
    for number, path in enumerate(walk.files()):
        progress(f"scanning {path.name}, file {number + 1:,}")
        with closing(Reading(limits=limits, thorough=True)) as reading:
            scanned = _scan_file(path, reading, within=folder)
            walk.described.update(os.path.realpath(each.path) for each in reading.opened[1:])
        if not _is_ordinary(path, scanned):
            found.append(_not_claiming(path, scanned))
    if not found and not walk.troubles:
        walk.add("not-a-model", "invalid", "no file in this folder is a model")
    if walk.troubles:
        found.append(
            ScannedFile(
                path=str(folder), format=None, nbytes=None, read_nbytes=0, findings=tuple(walk.troubles)
            )
        )
    return found


def _is_ordinary(path: Path, scanned: ScannedFile) -> bool:
    """Whether it is what folders hold beside a model, and does not claim to be one."""
    if scanned.format is not None or path.suffix.lower() in WEIGHTS:
        return False
    return all(finding.code in ORDINARY for finding in scanned.findings) or path.name.startswith(_LOGS)


def _not_claiming(path: Path, scanned: ScannedFile) -> ScannedFile:
    """A file that is not understood, without a model's suffix, is told of, but not called a broken model."""
    if scanned.format is not None or path.suffix.lower() in WEIGHTS:
        return scanned
    findings = (replace(f, level="notice") if f.level == "invalid" else f for f in scanned.findings)
    return replace(scanned, findings=tuple(findings))


class _Walk:
    """The files below a folder, in order, and what kept some of them from being looked at."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.troubles: list[Finding] = []
        self.described: set[str] = set()  # files that were read as parts of others

    def files(self) -> Iterator[Path]:
        """Each file; links to folders are not followed, and pieces that others describe are left to these."""
        count = 0
        for parent, folders, names in os.walk(self._folder, onerror=self._failed):
            folders.sort()
            for name in folders:
                if os.path.islink(os.path.join(parent, name)):
                    self.add("path.link", "info", "a link to a folder, not followed", file=f"{parent}/{name}")
            for name in sorted(names):
                count += 1
                if count > MOST_FILES:
                    self.add("limit", "limit", f"more than {MOST_FILES:,} files; the rest is not looked at")
                    return
                path = Path(parent, name)
                if path.is_symlink() and not path.exists():
                    self.add("path.link", "info", "a link to nowhere", file=str(path))
                elif path.suffix != ".distcp" or os.path.realpath(path) not in self.described:
                    yield path

    def add(self, code: str, level: Level, text: str, *, file: str | None = None) -> None:
        self.troubles.append(Finding(code=code, level=level, text=text, file=file or str(self._folder)))

    def _failed(self, error: OSError) -> None:
        text = f"a folder cannot be read: {error.strerror}"
        self.add("cannot-open", "invalid", text, file=str(error.filename))


def _scan_file(path: Path, reading: Reading, *, within: Path | None = None) -> ScannedFile:
    try:
        read_found(path, reading, within=within)
    except DocumentError:
        pass  # it was searched, and that a document has no weights is not a finding
    except FileError as error:
        reading.stopped(error)
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


def _beyond(path: Path, reading: Reading) -> Iterator[Finding]:
    """One finding for all of a kind that were too many to keep."""
    for (code, level), count in reading.beyond.items():
        yield Finding(code=code, level=level, text=f"and {count:,} more of this kind", file=str(path))
