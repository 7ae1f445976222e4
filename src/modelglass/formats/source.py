"""A file as a reader may see it: opened once, read by position, never beyond its end.

Reads instead of a memory map, because a file that shrinks while it is mapped kills the process.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from modelglass.errors import CorruptFileError, LimitError, NotAModelError
from modelglass.formats.opening import open_to_read, read_at

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)


class Meter:
    """Bytes that were read of a file, by whichever window."""

    def __init__(self) -> None:
        self.nbytes = 0


class Source:
    """Bytes to read by position: a whole file, a part of one, or an unpacked member of one.

    `file` and `member` are what messages call it; positions are counted from its own start.
    """

    def __init__(
        self,
        pread: Callable[[int, int], bytes],
        nbytes: int,
        *,
        file: str,
        member: str | None = None,
        meter: Meter | None = None,
        start: int = 0,
    ) -> None:
        self._pread, self._start = pread, start
        self.nbytes, self.file, self.member = nbytes, file, member
        self.meter = meter or Meter()

    def read(self, offset: int, length: int, what: str) -> bytes:
        """Exactly those bytes; when the file ends before, an error that says so. `what` names them."""
        if length < 0 or offset < 0:
            raise self.corrupt(f"{what} has a negative length or position", code="truncated", offset=offset)
        if offset + length > self.nbytes:
            left = max(0, self.nbytes - offset)
            raise self.corrupt(
                f"{what} takes {length:,} bytes, but {left:,} are left", code="truncated", offset=offset
            )
        data = self._pread(self._start + offset, length)
        self.meter.nbytes += len(data)
        if len(data) != length:
            raise self.corrupt("the file became shorter while it was read", code="changed", offset=offset)
        return data

    def up_to(self, offset: int, length: int) -> bytes:
        """Those bytes, or as many of them as there are."""
        return self.read(offset, max(0, min(length, self.nbytes - offset)), "the file")

    def part(self, offset: int, length: int, member: str | None, what: str = "a part") -> Source:
        """A window on this source, under the name of a member, with positions of its own."""
        if offset < 0 or length < 0 or offset + length > self.nbytes:
            raise self.corrupt(
                f"{what} of {length:,} bytes is not inside the {self.nbytes:,} bytes of the file",
                code="truncated",
                offset=offset,
            )
        return Source(
            self._pread,
            length,
            file=self.file,
            member=member or self.member,
            meter=self.meter,
            start=self._start + offset,
        )

    def unpacked(self, data: bytes, member: str) -> Source:
        """Bytes that were unpacked from this source, as a source of their own."""
        return Source(lambda at, n: data[at : at + n], len(data), file=self.file, member=member)

    def corrupt(
        self, problem: str, *, code: str, offset: int | None = None, hint: str | None = None
    ) -> CorruptFileError:
        """The error to raise when the bytes break the rules of their format."""
        more = {} if hint is None else {"hint": hint}
        return CorruptFileError(problem, file=self.file, code=code, member=self.member, offset=offset, **more)

    def is_archive(
        self, kind: str, *, hint: str = "unpack it first, or pass the model's own file"
    ) -> NotAModelError:
        """The error to raise when it only packs other files."""
        return NotAModelError(
            f"this is a {kind}", file=self.file, code="archive", member=self.member, hint=hint
        )

    def over(self, limit: str, value: int, *, offset: int | None = None) -> LimitError:
        """The error to raise when going on would exceed a limit; `limit` is its name in `Limits`."""
        return LimitError(
            f"stopped at the limit {limit} = {value:,}",
            file=self.file,
            code="limit",
            member=self.member,
            offset=offset,
            hint=f"if you trust the file, raise it: --limit {limit}=N",
        )


class OpenFile(Source):
    """A regular file on disk; close it, or use it in a `with` statement.

    One that rests holds no descriptor, of which a process has few: it is opened for each read, and must then
    still be the same file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._hold(_opened(path), str(path))

    def _hold(self, descriptor: int, name: str) -> None:
        self._descriptor: int | None = descriptor
        try:
            self._before = os.fstat(descriptor)
            for test, kind in _KINDS:
                if test(self._before.st_mode):
                    raise NotAModelError(f"this is {kind}, not a file", file=name, code="not-a-file")
        except BaseException:
            self.close()
            raise
        super().__init__(self._at, self._before.st_size, file=name)

    @property
    def links(self) -> int:
        """How many names the file has on its disk."""
        return self._before.st_nlink

    def rest(self) -> None:
        """Hold no descriptor between reads."""
        self.close()

    def check_unchanged(self) -> None:
        """Nobody wrote to the file since it was opened."""
        with self._open() as descriptor:
            now = os.fstat(descriptor)
        for part in ("st_dev", "st_ino", "st_size", "st_mtime_ns", "st_ctime_ns"):
            if getattr(now, part) != getattr(self._before, part):
                raise self.corrupt("the file was changed while it was read", code="changed")

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    @contextmanager
    def _open(self) -> Iterator[int]:
        if self._descriptor is not None:
            yield self._descriptor
            return
        descriptor = _opened(self.path)
        try:
            now = os.fstat(descriptor)
            if (now.st_dev, now.st_ino) != (self._before.st_dev, self._before.st_ino):
                raise self.corrupt("the file was exchanged for another while it was read", code="changed")
            yield descriptor
        finally:
            os.close(descriptor)

    def _at(self, offset: int, length: int) -> bytes:
        pieces = []
        try:
            with self._open() as descriptor:
                while length > 0:
                    piece = read_at(descriptor, min(length, 1 << 30), offset)
                    if not piece:
                        break
                    pieces.append(piece)
                    offset, length = offset + len(piece), length - len(piece)
        except OSError as cause:
            raise self.corrupt(
                f"it cannot be read: {cause.strerror}",
                code="cannot-read",
                offset=offset,
                hint="check the disk",
            ) from cause
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def __enter__(self) -> OpenFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _opened(path: Path) -> int:
    try:
        return open_to_read(path)
    except IsADirectoryError as cause:
        raise NotAModelError("this is a folder, not a file", file=str(path), code="not-a-file") from cause
    except (OSError, ValueError) as cause:
        reason = getattr(cause, "strerror", None) or str(cause)
        raise NotAModelError(
            f"it cannot be opened: {reason}",
            file=str(path),
            code="cannot-open",
            hint="check who may read it, and that no other program keeps it to itself"
            if isinstance(cause, PermissionError)
            else "check the path",
        ) from cause
