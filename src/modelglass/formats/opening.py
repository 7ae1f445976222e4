"""Opening files and reading them by position, on every system.

What only some systems have is looked up when it is needed: flags, reading without moving, steps from one
folder to the next that cannot be led astray.
"""

from __future__ import annotations

import errno
import os
import stat
from threading import Lock

_moving = Lock()  # where reading moves a position that all threads share


def _flags(*names: str) -> int:
    """Flags of `os.open`, those that this system has. Without O_BINARY, Windows would change line ends."""
    return os.O_RDONLY | sum(
        getattr(os, name, 0) for name in ("O_BINARY", "O_NOINHERIT", "O_CLOEXEC", *names)
    )


def open_to_read(path: str | os.PathLike[str]) -> int:
    """A descriptor of the file. Where a folder cannot be opened, the error is the one of a folder."""
    try:
        # Without O_NONBLOCK, opening a pipe waits for somebody to write to it.
        return os.open(path, _flags("O_NONBLOCK"))
    except PermissionError:
        if os.path.isdir(path):  # Windows opens none, and says that it is not permitted
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR)) from None
        raise


def read_at(descriptor: int, length: int, offset: int) -> bytes:
    """Up to so many bytes from there."""
    if hasattr(os, "pread"):
        return os.pread(descriptor, length, offset)
    with _moving:
        os.lseek(descriptor, offset, os.SEEK_SET)
        return os.read(descriptor, length)


class Steps:
    """A folder from which files below are opened, one step after the other and without following a link.

    The path that it begins with is followed. Each step is from the open folder before it, so that nothing can
    be exchanged between the check and the use.
    """

    def __init__(self, folder: str | os.PathLike[str], *, follow: bool = True) -> None:
        flags = _flags("O_DIRECTORY") if follow else _flags("O_DIRECTORY", "O_NOFOLLOW")
        self._folder = os.open(folder, flags)

    def is_link(self, name: str) -> bool:
        return stat.S_ISLNK(os.stat(name, dir_fd=self._folder, follow_symlinks=False).st_mode)

    def readlink(self, name: str) -> str:
        return os.readlink(name, dir_fd=self._folder)

    def enter(self, name: str) -> None:
        """Go to a folder in this one."""
        below = os.open(name, _flags("O_DIRECTORY", "O_NOFOLLOW"), dir_fd=self._folder)
        self.close()
        self._folder = below

    def open(self, name: str) -> int:
        """A descriptor of a file in this folder; ELOOP where it is a link."""
        try:
            return os.open(name, _flags("O_NONBLOCK", "O_NOFOLLOW"), dir_fd=self._folder)
        except OSError as cause:
            if cause.errno == errno.EMLINK and self.is_link(name):  # what some systems say
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from cause
            raise

    def close(self) -> None:
        os.close(self._folder)


class StepsByPath:
    """The same where folders cannot be held open: each step is looked at, and what was opened is compared."""

    def __init__(self, folder: str | os.PathLike[str], *, follow: bool = True) -> None:
        self._folder = os.fspath(folder)
        if not follow and _leads_elsewhere(self._folder):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))

    def is_link(self, name: str) -> bool:
        return _leads_elsewhere(os.path.join(self._folder, name))

    def readlink(self, name: str) -> str:
        return os.readlink(os.path.join(self._folder, name))

    def enter(self, name: str) -> None:
        below = os.path.join(self._folder, name)
        if _leads_elsewhere(below) or not os.path.isdir(below):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        self._folder = below

    def open(self, name: str) -> int:
        path = os.path.join(self._folder, name)
        before = os.lstat(path)
        if _leads_elsewhere(path):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        descriptor = open_to_read(path)
        if not os.path.samestat(before, os.fstat(descriptor)):
            os.close(descriptor)
            raise OSError(errno.ESTALE, "it was exchanged for another while it was opened")
        return descriptor

    def close(self) -> None:
        """Nothing is held."""


def steps_from(folder: str | os.PathLike[str], *, follow: bool = True) -> Steps | StepsByPath:
    """The steps that this system allows, from a folder; `follow`: itself it may be a link."""
    can_hold = os.open in os.supports_dir_fd and hasattr(os, "O_DIRECTORY") and hasattr(os, "O_NOFOLLOW")
    return Steps(folder, follow=follow) if can_hold else StepsByPath(folder, follow=follow)


def _leads_elsewhere(path: str) -> bool:
    """Whether this is a link, or what Windows calls a junction."""
    found = os.lstat(path)
    junction = getattr(stat, "IO_REPARSE_TAG_MOUNT_POINT", None)
    return stat.S_ISLNK(found.st_mode) or (
        junction is not None and getattr(found, "st_reparse_tag", None) == junction
    )
