"""Files that are compressed as a whole, as joblib and pandas do it: unpacked in memory, and looked into.

What they begin with tells how they are packed, whatever they are called: loaders go by it, too.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple, Protocol

from modelglass.errors import LimitError
from modelglass.formats.reading import Reading
from modelglass.formats.source import Source

_CHUNK = 64 << 10
_MOST_PIECE = 1 << 20
_MEMORY = 128 << 20  # that unpacking may take; a header of xz can ask for gigabytes
_MOST_STREAMS = 10_000  # that follow one another
# joblib before 0.10: a text that tells the length, then a zlib stream.
_ZFILE, _ZFILE_HEAD = b"ZF0x", 21
_ZLIB = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")


class _Stream(Protocol):
    """What the decompressors of bz2 and lzma have in common."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _Zlib:
    """A zlib or gzip stream with the manners of the others."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(zlib.MAX_WBITS | 32)  # of either kind

    @property
    def eof(self) -> bool:
        return self._stream.eof

    @property
    def needs_input(self) -> bool:
        return not self._stream.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._stream.unused_data

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        return self._stream.decompress(self._stream.unconsumed_tail + data, max_length)


class Packing(NamedTuple):
    """How a file is compressed, and where the stream begins."""

    name: str
    stream: Callable[[], _Stream]
    start: int = 0


def _bzip2() -> _Stream:
    return import_module("bz2").BZ2Decompressor()  # type: ignore[no-any-return]


def _xz() -> _Stream:
    return import_module("lzma").LZMADecompressor(memlimit=_MEMORY)  # type: ignore[no-any-return]


_PACKINGS = (
    (b"\x1f\x8b", Packing("gzip", _Zlib)),
    (b"BZh", Packing("bzip2", _bzip2)),
    (b"\xfd7zXZ\x00", Packing("xz", _xz)),
    (_ZFILE, Packing("zlib", _Zlib, _ZFILE_HEAD)),
)

# The old form has no magic: usual settings, a dictionary, and a size that is known or not.
_LZMA = re.compile(rb"\x5d\x00.{3}(?:\xff{8}|.{5}\x00{3})", re.DOTALL)


def packing_of(head: bytes) -> Packing | None:
    """How a file with these first bytes is compressed; None: it is not."""
    for magic, packing in _PACKINGS:
        if head.startswith(magic):
            return packing
    if _LZMA.match(head):
        return Packing("lzma", _xz)
    return Packing("zlib", _Zlib) if head.startswith(_ZLIB) and _unpacks(head) else None


def looks_like(head: bytes, nbytes: int) -> bool:
    return packing_of(head) is not None


def _unpacks(head: bytes) -> bool:
    """Whether a zlib stream really begins so: a text may begin with the same two letters."""
    try:
        return bool(_Zlib().decompress(head, _CHUNK))
    except zlib.error:
        return False


def read(source: Source, reading: Reading) -> None:
    """Look into what was compressed. A scan does; nothing else takes it for a model."""
    packing = packing_of(source.up_to(0, 1024))
    if packing is None:
        raise source.corrupt("it is not compressed in a way that is known", code="not-a-model", offset=0)
    if reading.thorough and _look_inside(source, packing, reading):
        reading.format = packing.name
        return
    raise source.is_archive(f"{packing.name} file", hint="unpack it first")


def _look_inside(source: Source, packing: Packing, reading: Reading) -> bool:
    """Whether what was compressed is something that loaders load."""
    stopped: LimitError | None = None
    data = bytearray()
    try:
        _unpack(source, packing, reading, data)
    except LimitError as error:
        stopped = error  # what was unpacked until then is looked into all the same
    name = f"{source.member or ''}[{packing.name}]"
    is_loaded = reading.look_into(source.unpacked(bytes(data), name), raw=stopped is not None)
    if stopped is not None:
        raise stopped
    return is_loaded


def _unpack(source: Source, packing: Packing, reading: Reading, data: bytearray) -> None:
    """Append what the streams give, one after the other, to `data`."""
    limits, at = reading.limits, packing.start
    for _ in range(_MOST_STREAMS):
        stream = packing.stream()
        while not stream.eof:
            packed = source.up_to(at, _CHUNK) if stream.needs_input else b""
            at += len(packed)
            if stream.needs_input and not packed:
                raise source.corrupt(f"its {packing.name} stream is cut off", code="truncated", offset=at)
            piece = _piece(source, packing, stream, packed, at)
            data += piece
            reading.unpacked.nbytes += len(piece)
            if reading.unpacked.nbytes > limits.inflated_nbytes:
                raise source.over("inflated_nbytes", limits.inflated_nbytes, offset=at)
            if len(data) > limits.inflated_free_nbytes and len(data) > limits.inflated_ratio * at:
                raise source.over("inflated_ratio", limits.inflated_ratio, offset=at)
        at -= len(stream.unused_data)
        # What follows without being packed is passed over by those who unpack, or is padding.
        if packing_of(source.up_to(at, 64)) is None:
            return
    text = f"more than {_MOST_STREAMS:,} streams one after the other; the others are not looked at"
    reading.found(source, "limit", "limit", text, offset=at)


def _piece(source: Source, packing: Packing, stream: _Stream, packed: bytes, at: int) -> bytes:
    try:
        return stream.decompress(packed, _MOST_PIECE)
    except (zlib.error, _lzma_error(), OSError, EOFError, ValueError) as cause:
        text = f"it cannot be unpacked as {packing.name}: {cause}"
        raise source.corrupt(text, code="compressed", offset=at) from cause


def _lzma_error() -> type[Exception]:
    error: type[Exception] = import_module("lzma").LZMAError
    return error
