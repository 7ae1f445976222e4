"""The bytes of a pickle, a window at a time."""

from __future__ import annotations

from modelglass.errors import CorruptFileError
from modelglass.formats.source import Source

WINDOW = 1 << 20
FIRST_WINDOW = 4096  # one file may hold very many short pickles
MOST_FIXED = 16  # bytes that an opcode and its fixed argument take at most
KEPT = 64 << 10  # bytes of one argument that are kept
LINE = 1 << 20


class Feed:
    """A window on a source. `data[pos]` is the next byte; `base` is where the window begins.

    Up to `safe` an opcode and its fixed argument are sure to be in the window, and in the frame.
    """

    def __init__(self, source: Source, offset: int) -> None:
        self.source = source
        self.start = offset  # of the stream
        self.base = offset
        self.data = b""
        self.pos = 0
        self.safe = -1
        self._window = FIRST_WINDOW  # how much to read next; it grows
        self.frame_end: int | None = None  # counted from the start of the source

    @property
    def offset(self) -> int:
        """Where the next byte is, counted from the start of the source."""
        return self.base + self.pos

    def refill(self) -> None:
        """Move the window so that the next opcode is in it."""
        here = self.offset
        if self.frame_end is not None and here >= self.frame_end:
            if here > self.frame_end:
                raise self.corrupt("an argument crosses the end of its frame", code="pickle.frame")
            self.frame_end = None
        if self.pos > len(self.data) - MOST_FIXED:
            self._load(here, self._window)
        if self.pos >= len(self.data):
            raise self.corrupt("the pickle ends without its last opcode", code="pickle.truncated")
        self._set_safe()

    def enter_frame(self, length: int) -> None:
        """A frame of that many bytes begins here."""
        if self.frame_end is not None and self.offset < self.frame_end:
            raise self.corrupt("a frame begins inside another", code="pickle.frame")
        if length > self.source.nbytes - self.offset:
            left = self.source.nbytes - self.offset
            raise self.corrupt(f"a frame of {length:,} bytes, but {left:,} are left", code="pickle.frame")
        self.frame_end = self.offset + length
        self._set_safe()

    def take(self, length: int, what: str) -> bytes:
        """The next bytes, all of them."""
        self.require(length, what)
        if self.pos + length > len(self.data):
            self._load(self.offset, length + self._window)
        start = self.pos
        self.pos = start + length
        if self.pos > len(self.data):
            raise self.corrupt(f"{what} is cut off", code="pickle.truncated")
        return self.data[start : self.pos]

    def skip(self, length: int, what: str) -> bytes:
        """The first of the next bytes; the rest is passed over and not read."""
        if length <= KEPT:
            return self.take(length, what)
        self.require(length, what)
        end = self.offset + length
        head = self.take(KEPT, what)
        if end - self.base <= len(self.data):
            self.pos = end - self.base
        else:
            self.base, self.data, self.pos = end, b"", 0
            self.safe = -1
        return head

    def line(self, what: str) -> bytes:
        """The bytes up to the next line end."""
        end = self.data.find(b"\n", self.pos, self.pos + LINE)
        if end < 0:
            self._load(self.offset, LINE + self._window)
            end = self.data.find(b"\n", self.pos, self.pos + LINE)
        if end < 0 and self.base + len(self.data) == self.source.nbytes and len(self.data) <= LINE:
            # The file's end takes the place of the line's, and CPython looks a name up all the same.
            end = len(self.data) - 1
        if end < self.pos:
            raise self.corrupt(f"{what} has no end within {LINE:,} bytes", code="pickle.text")
        found = self.data[self.pos : end]
        self.pos = end + 1
        return found

    def corrupt(self, problem: str, *, code: str) -> CorruptFileError:
        return self.source.corrupt(problem, code=code, offset=self.offset)

    def require(self, length: int, what: str) -> None:
        left = self.source.nbytes - self.offset
        if length > left:
            raise self.corrupt(f"{what} of {length:,} bytes, but {left:,} are left", code="pickle.length")

    def _load(self, start: int, length: int) -> None:
        self.base, self.data, self.pos = start, self.source.up_to(start, length), 0
        self._window = min(self._window * 4, WINDOW)
        self._set_safe()

    def _set_safe(self) -> None:
        self.safe = len(self.data) - MOST_FIXED
        if self.base + len(self.data) == self.source.nbytes:
            self.safe = len(self.data) - 1  # nothing more will come: shorter arguments are cut off
        if self.frame_end is not None:
            self.safe = min(self.safe, self.frame_end - self.base - 1)
