"""Files and folders searched for what loading them would do."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from modelglass.formats.files_beside import may_follow
from modelglass.formats.folders import MOST_FILES, WEIGHTS
from modelglass.formats.known_non_models import ORDINARY, SEARCHED
from modelglass.formats.limits import Limits
from modelglass.formats.scan.scanned_file import ScanAnswer, look
from modelglass.formats.scan.shadows import shadows
from modelglass.report import Finding, Level, Scan, ScannedFile

Progress = Callable[[str], None]

_CLAIMING = (*WEIGHTS, ".joblib", ".pickle")  # what is called so should be understood


Look = Callable[[Path, Path | None], ScanAnswer]  # at a file, found in a folder or not


def scan(paths: Sequence[Path], limits: Limits, progress: Progress, *, isolate: bool = False) -> Scan:
    """What was found in each file. Texts and pictures in a folder are looked at, but not listed.

    Isolated, they are read in another process, with bounds on its time and memory.
    """
    if isolate:
        # It needs more of the standard library than a scan.
        from modelglass.formats.scan.isolated import Isolated

        with Isolated(limits) as process:
            return Scan(files=tuple(_scanned(paths, process.look, progress)))
    return Scan(files=tuple(_scanned(paths, lambda path, within: look(path, within, limits), progress)))


def _scanned(paths: Sequence[Path], look: Look, progress: Progress) -> Iterator[ScannedFile]:
    for path in paths:
        if os.path.isdir(path):
            yield from _scan_folder(path, look, progress)
        else:
            progress(f"scanning {path.name}")
            yield look(path, None).file


def _scan_folder(folder: Path, look: Look, progress: Progress) -> list[ScannedFile]:
    walk = _Walk(folder)
    found: list[ScannedFile] = []
    naming: list[ScannedFile] = []  # those that name code, also when nothing else is said of them
    for number, path in enumerate(walk.files()):
        progress(f"scanning {path.name}, file {number + 1:,}")
        scanned, opened = look(path, folder)
        walk.described.update(map(os.path.realpath, opened))
        if scanned.globals or scanned.findings:
            naming.append(scanned)
        if not _is_ordinary(path, scanned):
            found.append(_not_claiming(path, scanned))
    walk.troubles += shadows(folder, naming)
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
    """Whether it is what folders hold beside a model, and does not claim to be one: texts, pictures, logs.

    Each was looked at: it is not a pickle that calls something, and no archive is behind it.
    """
    if scanned.format is not None or path.suffix.lower() in _CLAIMING:
        return False
    return all(finding.code in ORDINARY for finding in scanned.findings)


def _not_claiming(path: Path, scanned: ScannedFile) -> ScannedFile:
    """A file that is not understood, without a model's suffix, is told of, but not called a broken model."""
    if scanned.format is not None or path.suffix.lower() in _CLAIMING:
        return scanned
    findings = (
        replace(finding, level="info" if finding.code in SEARCHED else "notice")
        if finding.level == "invalid"
        else finding
        for finding in scanned.findings
    )
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
                    self._linked(Path(parent, name))
            for name in sorted(names):
                count += 1
                if count > MOST_FILES:
                    self.add("limit", "limit", f"more than {MOST_FILES:,} files; the rest is not looked at")
                    return
                path = Path(parent, name)
                if os.path.islink(path) and not os.path.exists(path):
                    text = "a link to nowhere, or to what cannot be read"
                    self.add("path.link", "info", text, file=str(path))
                elif path.suffix != ".distcp" or os.path.realpath(path) not in self.described:
                    yield path

    def _linked(self, path: Path) -> None:
        """A link to a folder. What is inside is searched anyway; what is outside is not looked at."""
        inside = may_follow(path, self._folder)
        text = "a link to a folder, not followed" if inside else "a link to a folder elsewhere, not looked at"
        self.add("path.link", "info" if inside else "notice", text, file=str(path))

    def add(self, code: str, level: Level, text: str, *, file: str | None = None) -> None:
        self.troubles.append(Finding(code=code, level=level, text=text, file=file or str(self._folder)))

    def _failed(self, error: OSError) -> None:
        text = f"a folder cannot be read: {error.strerror}"
        self.add("cannot-open", "invalid", text, file=str(error.filename))
