"""Files and folders searched for what loading them would do."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from modelglass.errors import FileError, LimitError
from modelglass.formats import read_file
from modelglass.formats.documents import DocumentError
from modelglass.formats.folders import MOST_FILES
from modelglass.formats.limits import Limits
from modelglass.formats.reading import Reading
from modelglass.formats.source import OpenFile
from modelglass.formats.torch import distributed
from modelglass.report import Finding, Scan, ScannedFile

# Codes of files that a folder may well hold beside a model.
_ORDINARY = frozenset({"not-a-model", "empty"})
_WEIGHTS = (
    ".safetensors",
    ".bin",
    ".pt",
    ".pth",
    ".ckpt",
    ".pkl",
    ".gguf",
    ".onnx",
    ".npz",
    ".npy",
    ".pt2",
    ".h5",
)

Progress = Callable[[str], None]


def scan(paths: Sequence[Path], limits: Limits, progress: Progress) -> Scan:
    """What was found in each file. Files in a folder that do not claim to be models are passed over."""
    files: list[ScannedFile] = []
    for path in paths:
        if path.is_dir():
            files += _scan_folder(path, limits, progress)
        else:
            progress(f"scanning {path.name}")
            files.append(_scan_file(path, limits))
    return Scan(files=tuple(files))


def _scan_folder(folder: Path, limits: Limits, progress: Progress) -> list[ScannedFile]:
    found: list[ScannedFile] = []
    for number, path in enumerate(path for path in _files(folder) if not _is_described(path)):
        progress(f"scanning {path.name}, file {number + 1:,}")
        scanned = _scan_file(path, limits)
        passed_over = scanned.format is None and path.suffix.lower() not in _WEIGHTS
        if not (passed_over and all(each.code in _ORDINARY for each in scanned.findings)):
            found.append(scanned)
    if not found:
        text = "no file in this folder is a model"
        nothing = Finding(code="not-a-model", level="invalid", text=text, file=str(folder))
        found.append(
            ScannedFile(path=str(folder), format=None, nbytes=None, read_nbytes=0, findings=(nothing,))
        )
    return found


def _is_described(path: Path) -> bool:
    """Whether the pieces of a file are described elsewhere, and are scanned from there."""
    return path.suffix == ".distcp" and (path.parent / distributed.METADATA).exists()


def _files(folder: Path) -> Iterator[Path]:
    """The files below a folder, in order; links to folders are not followed."""
    count = 0
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            count += 1
            if count <= MOST_FILES:
                yield Path(parent, name)


def _scan_file(path: Path, limits: Limits) -> ScannedFile:
    reading = Reading(limits=limits, thorough=True)
    try:
        _read(path, reading)
    except DocumentError:
        pass  # it was searched, and that a document has no weights is not a finding
    except FileError as error:
        reading.findings.append(_as_finding(error))
    finally:
        opened = list(reading.opened)
        reading.close()
    first = opened[0] if opened else None
    return ScannedFile(
        path=str(path),
        format=reading.format,
        nbytes=None if first is None else first.nbytes,
        read_nbytes=0 if first is None else min(first.meter.nbytes, first.nbytes),
        weights_only=reading.weights_only,
        refusal=reading.refusal,
        globals=tuple(reading.globals),
        findings=tuple(reading.findings),
    )


def _read(path: Path, reading: Reading) -> None:
    source = OpenFile(path)
    reading.opened.append(source)
    if path.name == distributed.METADATA:
        distributed.read(source, reading)
        source.check_unchanged()
    else:
        read_file(source, reading)


def _as_finding(error: FileError) -> Finding:
    return Finding(
        code=error.code,
        level="limit" if isinstance(error, LimitError) else "invalid",
        text=error.text,
        file=error.file,
        member=error.member,
        offset=error.offset,
        details={"hint": error.hint},
    )
