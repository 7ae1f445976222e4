"""Files that a model names: opened only when they lie beside it, whatever the name says.

No link on the way is followed, save into the blobs of a cache of Hugging Face.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path

from modelglass.formats.opening import steps_from
from modelglass.formats.reading import Reading
from modelglass.formats.source import OpenFile
from modelglass.report import Level

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|(?:file|data|https?|ftp|s3|gs|hf):", re.IGNORECASE)
_DRIVE = re.compile(r"[A-Za-z]:")
_DEVICE = re.compile(
    r"(?:CON|PRN|AUX|NUL|CONIN\$|CONOUT\$|(?:COM|LPT)[0-9\u00b9\u00b2\u00b3])", re.IGNORECASE
)


class Sibling(OpenFile):
    """A regular file that was opened step by step from the folder of the model. There may be thousands."""

    def __init__(self, descriptor: int, path: Path, *, name: str) -> None:
        self.path = path
        self._hold(descriptor, name)
        self.rest()


def open_sibling(source: OpenFile, relative: str, reading: Reading, level: Level = "high") -> OpenFile | None:
    """The file that `source` calls `relative`, or None and a finding that says why it is not opened.

    `level` is that of a name that leads out of the folder, or nowhere. `reading` owns what was opened.
    """
    reason = is_safe_relative(relative)
    if reason is not None:
        _refuse(source, relative, reading, "path.outside", level, reason)
        return None
    path = source.path.parent / relative
    try:
        descriptor = _descriptor(source.path.parent, relative, source, reading, level)
    except (FileNotFoundError, NotADirectoryError):
        _refuse(source, relative, reading, "path.missing", level, "does not exist")
        return None
    except IsADirectoryError:
        _refuse(source, relative, reading, "path.not-a-file", "invalid", "is a folder")
        return None
    except (OSError, ValueError) as cause:
        problem = getattr(cause, "strerror", None) or str(cause)
        _refuse(source, relative, reading, "path.cannot-open", "invalid", f"cannot be opened: {problem}")
        return None
    if descriptor is None:
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        _refuse(source, relative, reading, "path.not-a-file", "invalid", "is not a regular file")
        return None
    sibling = Sibling(descriptor, path, name=str(path))
    reading.opened.append(sibling)
    if sibling.links > 1:
        reading.found(
            source,
            "path.hard-link",
            "info",
            f"{relative[:200]!r} has {sibling.links:,} names on its disk (hard links)",
            path=relative,
            links=sibling.links,
        )
    return sibling


def is_safe_relative(text: str) -> str | None:
    """None for the plain name of a file in the same folder or below; otherwise the reason why it is not."""
    if not text:
        return "is empty"
    if "\0" in text:
        return "holds a NUL character"
    if not _encodes(text):
        return "is not valid text"
    if _URL.match(text):
        return "is a URL"
    if _DRIVE.match(text):
        return "starts with a drive letter"
    if text.startswith(("//", "\\\\")):
        return "names another computer"
    if "\\" in text:
        return "holds a backslash"
    if text.startswith("/"):
        return "is an absolute path"
    return _unsafe_part(text)


def _unsafe_part(text: str) -> str | None:
    parts = text.split("/")
    if ".." in parts:
        return "leads upwards with '..'"
    if parts[-1] in ("", "."):
        return "names a folder"
    for part in parts:
        if _DEVICE.fullmatch(part.partition(".")[0].rstrip(" ")):
            return "is the name of a device on Windows"
    return None


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _descriptor(folder: Path, relative: str, source: OpenFile, reading: Reading, level: Level) -> int | None:
    """The file, opened; None: it is behind a link that is not followed, and a finding says so."""
    parts = [part for part in relative.split("/") if part not in ("", ".")]
    steps = steps_from(folder)  # the path that the user typed is followed
    try:
        for part in parts[:-1]:
            if steps.is_link(part):
                _refuse(
                    source, relative, reading, "path.link", level, f"goes through the link {part[:200]!r}"
                )
                return None
            steps.enter(part)
        try:
            return steps.open(parts[-1])
        except OSError as cause:
            if cause.errno != errno.ELOOP:
                raise
        target = steps.readlink(parts[-1])
        return _through_cache(folder, relative, target, source, reading, level)
    finally:
        steps.close()


def _through_cache(
    folder: Path, relative: str, target: str, source: OpenFile, reading: Reading, level: Level
) -> int | None:
    """What a link of the Hugging Face cache stands for: snapshots/<revision>/... -> blobs/<digest>."""
    blobs = _blobs(folder)
    resolved = os.path.realpath(os.path.join(folder, os.path.dirname(relative), target))
    if blobs is None or os.path.dirname(resolved) != blobs:
        _refuse(source, relative, reading, "path.link", level, f"is a link, to {target[:200]!r}")
        return None
    steps = steps_from(blobs, follow=False)
    try:
        descriptor = steps.open(os.path.basename(resolved))
    finally:
        steps.close()
    reading.found(
        source,
        "path.cache-link",
        "info",
        f"{relative[:200]!r} is a link into the blobs of the same cache, and was followed",
        path=relative,
        target=target,
    )
    return descriptor


def _blobs(folder: Path) -> str | None:
    """The folder of blobs that belongs to the snapshot in which `folder` lies."""
    parts = os.path.realpath(folder).split(os.sep)
    if "snapshots" not in parts[:-1]:
        return None
    root = parts[: len(parts) - 1 - parts[::-1].index("snapshots", 1)]
    blobs = os.sep.join((*root, "blobs"))
    # A "blobs" that is itself a link could stand for any folder.
    return blobs if os.path.realpath(blobs) == blobs else None


def _refuse(source: OpenFile, relative: str, reading: Reading, code: str, level: Level, reason: str) -> None:
    reading.found(
        source,
        code,
        level,
        f"it names the file {relative[:200]!r}, which {reason}; it was not opened",
        path=relative[:1000],
    )


def may_follow(path: Path, folder: Path) -> bool:
    """Whether a file that was found in a folder is in it: itself, or what it links to, or in its cache."""
    if not path.is_symlink():
        return True
    target, inside = os.path.realpath(path), os.path.realpath(folder)
    blobs = _blobs(path.parent)
    return target.startswith(inside + os.sep) or (blobs is not None and os.path.dirname(target) == blobs)
