"""A zip writer that can lie in every field."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

STORED, DEFLATED = 0, 8


@dataclass(frozen=True, kw_only=True)
class Member:
    """One member. `packed` are its bytes in the file; what is None is told as it is."""

    name: bytes
    packed: bytes
    method: int = STORED
    nbytes: int | None = None  # unpacked
    crc: int | None = None
    flags: int = 0x0800
    local_name: bytes | None = None
    central_flags: int | None = None
    central_sizes: tuple[int, int] | None = None  # packed, unpacked
    central_extra: bytes = b""

    @property
    def told_crc(self) -> int:
        return zlib.crc32(self.packed) if self.crc is None else self.crc

    @property
    def told_nbytes(self) -> int:
        return len(self.packed) if self.nbytes is None else self.nbytes


def archive(members: Iterable[Member], *, shift: int = 0) -> bytes:
    """The members, their directory and its end; `shift` is added to every offset."""
    body, directory, count = b"", b"", 0
    for member in members:
        directory += central(member, len(body) + shift)
        body += local(member)
        count += 1
    return body + directory + end(count, len(directory), len(body) + shift)


def local(member: Member) -> bytes:
    name = member.name if member.local_name is None else member.local_name
    return (
        struct.pack(
            "<4s5H3I2H",
            b"PK\3\4",
            20,
            member.flags,
            member.method,
            0,
            0x21,
            member.told_crc,
            len(member.packed),
            min(member.told_nbytes, 0xFFFFFFFF),
            len(name),
            0,
        )
        + name
        + member.packed
    )


def central(member: Member, offset: int) -> bytes:
    flags = member.flags if member.central_flags is None else member.central_flags
    packed, unpacked = member.central_sizes or (len(member.packed), member.told_nbytes)
    return (
        struct.pack(
            "<4s6H3I5H2I",
            b"PK\1\2",
            20,
            20,
            flags,
            member.method,
            0,
            0x21,
            member.told_crc,
            packed,
            unpacked,
            len(member.name),
            len(member.central_extra),
            0,
            0,
            0,
            0,
            offset,
        )
        + member.name
        + member.central_extra
    )


def end(count: int, directory_nbytes: int, directory_offset: int) -> bytes:
    return struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, count, count, directory_nbytes, directory_offset, 0)


def deflated(name: bytes, data: bytes) -> Member:
    packer = zlib.compressobj(9, wbits=-15)
    packed = packer.compress(data) + packer.flush()
    return Member(name=name, packed=packed, method=DEFLATED, nbytes=len(data), crc=zlib.crc32(data))


def bomb(name: bytes, head: bytes, fill: bytes, nbytes: int, tail: bytes) -> Member:
    """A deflated member of `head`, then `nbytes` of one repeated byte, then `tail`.

    One piece is packed and its bytes are repeated: a full flush leaves nothing for the next to refer to.
    """
    piece_nbytes = 16 << 20
    pieces = nbytes // piece_nbytes
    start, piece, finish = _flushed(head), _packed_piece(fill, piece_nbytes), _flushed(tail)
    crc = zlib.crc32(head)
    for _ in range(pieces):
        crc = zlib.crc32(fill * piece_nbytes, crc)
    return Member(
        name=name,
        packed=start + piece * pieces + finish + b"\3\0",
        method=DEFLATED,
        nbytes=len(head) + pieces * piece_nbytes + len(tail),
        crc=zlib.crc32(tail, crc),
    )


@cache
def _packed_piece(fill: bytes, nbytes: int) -> bytes:
    return _flushed(fill * nbytes)


def _flushed(data: bytes) -> bytes:
    packer = zlib.compressobj(9, wbits=-15)
    return packer.compress(data) + packer.flush(zlib.Z_FULL_FLUSH)
