"""Zip archives: a directory at the end of the file that says where each member is.

Everything is said twice in a zip, and readers differ in which copy they believe. So both are read and
compared, and whatever two readers could understand differently is a finding of level "invalid". Such a
finding does not stop the reading: members are still found as loaders find them, by the directory.
"""

from __future__ import annotations

import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

from modelglass.errors import CorruptFileError
from modelglass.formats.limits import Limits
from modelglass.formats.reading import Reading
from modelglass.formats.source import Source

if TYPE_CHECKING:
    from modelglass.report import Level

STORED, DEFLATED = 0, 8

_END = Struct("<4s4H2LH")
_END_MAGIC = b"PK\x05\x06"
_LOCATOR = Struct("<4sLQL")
_LOCATOR_MAGIC = b"PK\x06\x07"
_END64 = Struct("<4sQ2H2L4Q")
_END64_MAGIC = b"PK\x06\x06"
_RECORD = Struct("<4s2x2x2H4x3L3HH2x4xL")
_RECORD_MAGIC = b"PK\x01\x02"
_LOCAL = Struct("<4s2x2H4x4x2L2H")
_LOCAL_MAGIC = b"PK\x03\x04"

_LONGEST_COMMENT = 0xFFFF
# Bytes at the end in which readers look for the end record: torch's goes on to the end of a block.
_SEARCHED = _END.size + _LONGEST_COMMENT + (8 << 10)
_MOST_ENDS = 16  # end records of one file that are tried
_IN_ZIP64 = 0xFFFFFFFF  # a size or position that does not fit; the real one is in an extra field
_EXTRA = Struct("<2H")
_ZIP64_EXTRA, _UNICODE_NAME_EXTRA = 0x0001, 0x7075
_ENCRYPTED = 0x0001 | 0x0020 | 0x0040  # encrypted, a patch of another file, strongly encrypted
_HAS_DESCRIPTOR, _IS_UTF8 = 0x0008, 0x0800
_DESCRIPTOR_NBYTES = (12, 16, 20, 24)  # after the data; with or without a signature and 64-bit sizes
_MOST_DEFLATED = 1032  # bytes that one byte of a deflate stream can give at most
_MOST_HEAD = 30 + 512  # bytes of a local header without its name; only padding can be longer
_CHUNK = 64 << 10
_NEAR = 4 << 10  # bytes between local headers that are not worth a second read
_MOST_FINDINGS = 10  # of one code; the rest is counted

# Members that some loader looks up by name.
_LOOKED_UP = (".pkl", ".json", "version", "byteorder")


class Entry(NamedTuple):  # a tuple, because an archive can have very many
    """One member, as the directory describes it; its name is as the directory spells it."""

    name: str
    method: int
    flags: int
    nbytes: int  # unpacked
    packed_nbytes: int
    crc: int
    offset: int  # of the local header
    data_offset: int  # as the local header gives it

    @property
    def data_end(self) -> int:
        return self.data_offset + self.packed_nbytes


class Archive:
    """The members of a zip archive, in the order of its directory."""

    def __init__(self, source: Source, entries: tuple[Entry, ...], *, before: int = 0) -> None:
        self.source, self.entries = source, entries
        self.before = before  # bytes that precede the archive, and that it does not know of
        self.others: tuple[Archive, ...] = ()  # what readers find that go by other rules
        self.by_name: dict[str, Entry] = {}  # the first of a name
        for entry in entries:
            self.by_name.setdefault(entry.name, entry)
        self._by_folded: dict[str, Entry] = {}

    def find(self, name: str) -> Entry | None:
        """The first member of that name."""
        return self.by_name.get(name)

    def find_in_any_case(self, name: str) -> Entry | None:
        """The member of that name as torch finds it, which takes large letters for small ones."""
        if name in self.by_name:
            return self.by_name[name]
        if not self._by_folded:
            for entry in self.entries:
                self._by_folded.setdefault(folded(entry.name), entry)
        return self._by_folded.get(folded(name))

    def member(self, entry: Entry, limits: Limits) -> Source:
        """What a member holds. A compressed one is unpacked into memory, up to the limits."""
        if entry.method == STORED:
            return self._packed(entry)
        data = b"".join(self._inflate(entry, entry.nbytes, limits))
        return self.source.unpacked(data, entry.name)

    def start(self, entry: Entry, nbytes: int, limits: Limits) -> bytes:
        """The first bytes of a member, without unpacking what comes after them."""
        if entry.method == STORED:
            return self._packed(entry).up_to(0, nbytes)
        nbytes = min(nbytes, entry.nbytes)
        return b"".join(self._inflate(entry, nbytes, limits))[:nbytes]

    def _packed(self, entry: Entry) -> Source:
        return self.source.part(entry.data_offset, entry.packed_nbytes, entry.name, "a member of the archive")

    def _inflate(self, entry: Entry, wanted: int, limits: Limits) -> Iterator[bytes]:
        """Unpacked pieces until there are `wanted` bytes; all of a member must be exactly that long."""
        packed, whole = self._packed(entry), wanted == entry.nbytes
        if entry.method != DEFLATED:
            raise packed.corrupt(
                f"its compression method {entry.method} is not one of 0 (stored) and 8 (deflated)",
                code="zip.method",
            )
        limits.take("inflated_nbytes", wanted, packed)
        stream, at, given = zlib.decompressobj(-zlib.MAX_WBITS), 0, 0
        while not stream.eof and given < wanted + whole:
            data = stream.unconsumed_tail
            if not data:
                data = packed.up_to(at, _CHUNK)
                at += len(data)
            # One byte more than was declared tells that the declaration is wrong.
            piece = _decompress(packed, stream, data, min(_CHUNK * 16, wanted + whole - given))
            given += len(piece)
            if given > limits.inflated_free_nbytes and given > limits.inflated_ratio * at:
                raise packed.over("inflated_ratio", limits.inflated_ratio, offset=at)
            if piece:
                yield piece
            elif not data:
                break
        if given < wanted or (whole and (given > wanted or not stream.eof)):
            amount = "more" if given > wanted else "less" if given < wanted else "something else"
            raise packed.corrupt(
                f"it unpacks to {amount} than the {entry.nbytes:,} bytes it declares", code="zip.size"
            )


def read(source: Source, reading: Reading) -> Archive:
    """The directory of an archive, compared with what stands before each member.

    Where readers differ in which directory they take, the others are in `others`.
    """
    notes = Notes(source, reading)
    tail = _Tail(source)
    first = tail.last()
    try:
        archive = _archive(source, _end(source, tail, first, notes), notes, reading.limits)
    except CorruptFileError:
        ends = [end for at in tail.ends() for end in _directories(source, tail, at)]
        readable = list(_readable(source, ends, reading.limits))
        if not readable:
            raise
        text = "its last end record leads nowhere, and readers differ in what they take instead"
        notes.add("zip.ambiguous", text, offset=first)
        archive = readable[0]
        archive.others = tuple(readable[1:])
    notes.close()
    return archive


def has_end(source: Source, *, glance: bool = False) -> bool:
    """Whether some reader finds an archive at the end of these bytes, whatever they begin as.

    A `glance` reads no more than an end record without a comment.
    """
    tail = _Tail(source, _END.size if glance else _SEARCHED)
    return any(_is_directory(source, end) for at in tail.ends() for end in _directories(source, tail, at))


def folded(name: str) -> str:
    """A name as torch compares it: only the letters of ASCII have two cases."""
    return name.lower() if name.isascii() else "".join(c.lower() if c.isascii() else c for c in name)


def _archive(source: Source, ends: list[_End], notes: Notes, limits: Limits) -> Archive:
    """The archive by the first of the directories; the others that can be read are kept beside it."""
    first, *others = ends
    archive = _listed(source, first, notes, limits)
    archive.others = tuple(_readable(source, others, limits))
    return archive


def _readable(source: Source, ends: Iterable[_End], limits: Limits) -> Iterator[Archive]:
    """The archives of those directories that are some; what is wrong with them is said of the first only."""
    for end in dict.fromkeys(ends):
        if _is_directory(source, end):
            with suppress(CorruptFileError):
                yield _listed(source, end, Notes(source, Reading(limits=limits)), limits)


def _listed(source: Source, end: _End, notes: Notes, limits: Limits) -> Archive:
    if end.count > limits.zip_entries:
        raise source.over("zip_entries", limits.zip_entries, offset=end.start)
    if end.nbytes > limits.zip_directory_nbytes:
        raise source.over("zip_directory_nbytes", limits.zip_directory_nbytes, offset=end.start)
    entries = _entries(source, end, notes, limits)
    _check_names(entries, notes)
    _check_places(entries, end, notes)
    return Archive(source, entries, before=end.shift)


def check_crc(archive: Archive, entry: Entry, reading: Reading, member: Source | None = None) -> None:
    """Compare a member with its checksum; `member` is what it holds, if that was already unpacked.

    A wrong one is only a notice, because torch does not look at it.
    """
    member = member or archive.member(entry, reading.limits)
    crc = 0
    for at in range(0, member.nbytes, 1 << 20):
        crc = zlib.crc32(member.up_to(at, 1 << 20), crc)
    if crc != entry.crc:
        reading.found(
            archive.source,
            "zip.crc",
            "notice",
            f"its checksum is {crc:#010x}, but the archive records {entry.crc:#010x}: it was changed after it"
            " was packed",
            member=entry.name,
            offset=entry.offset,
        )


class Notes:
    """Findings about an archive, few of each kind: a hostile one can have millions."""

    def __init__(self, source: Source, reading: Reading) -> None:
        self._source, self._reading = source, reading
        self._counts: Counter[tuple[str, Level]] = Counter()

    def add(
        self,
        code: str,
        text: str,
        *,
        level: Level = "invalid",
        member: str | None = None,
        offset: int | None = None,
    ) -> None:
        self._counts[code, level] += 1
        if self._counts[code, level] <= _MOST_FINDINGS:
            self._reading.found(self._source, code, level, text, member=member, offset=offset)

    def close(self) -> None:
        for (code, level), count in self._counts.items():
            if count > _MOST_FINDINGS:
                more = count - _MOST_FINDINGS
                self._reading.found(self._source, code, level, f"{more:,} more of these", count=count)


@dataclass(frozen=True, slots=True)
class _End:
    """Where the directory is. `shift` is how far everything lies behind the position it declares."""

    start: int
    nbytes: int
    count: int
    shift: int


class _Claim(NamedTuple):
    """What an end record at a place says: how many members, in a directory of how many bytes, and where."""

    at: int
    members: int
    nbytes: int
    start: int


# --- the end of the archive ---------------------------------------------------------------------------


class _Tail:
    """The last bytes of a file, in which readers look for the end record."""

    def __init__(self, source: Source, searched: int = _SEARCHED) -> None:
        self._source = source
        self.start = max(0, source.nbytes - searched)
        self.data = source.up_to(self.start, searched)

    def last(self) -> int:
        """Where the last end record is: Python and torch take that one."""
        found = next(self.ends(), None)
        if found is None:
            raise self._source.corrupt(
                "it has no zip directory: the end of the file is missing",
                code="zip.truncated",
                offset=self._source.nbytes,
            )
        return found

    def ends(self) -> Iterator[int]:
        """Where end records may be, the last one first."""
        at = len(self.data) - _END.size + len(_END_MAGIC)
        for _ in range(_MOST_ENDS):
            at = self.data.rfind(_END_MAGIC, 0, max(0, at))
            if at < 0:
                return
            yield self.start + at
            at += len(_END_MAGIC) - 1

    def record(self, at: int) -> tuple[Any, ...]:
        return _END.unpack_from(self.data, at - self.start)


def _end(source: Source, tail: _Tail, at: int, notes: Notes) -> list[_End]:
    """Where the directory is, by the end record at that place: first as torch has it, then by other rules."""
    _, disk, directory_disk, disk_count, count, _, _, comment = tail.record(at)
    earlier = _check_comment(source, tail, at, comment, notes)
    if (disk, directory_disk) not in ((0, 0), (0xFFFF, 0xFFFF)) or disk_count != count:
        notes.add("zip.disks", "it is marked as one of several parts", offset=at)
    claims = _claims(source, tail, at, notes)
    found = [_place(source, claims[0], notes)]
    for claim in claims[1:]:
        found += _places(claim)
    found += _places(claims[0])
    for other in earlier:
        found += _directories(source, tail, other)
    return list(dict.fromkeys(found))


def _directories(source: Source, tail: _Tail, at: int) -> list[_End]:
    """Every directory that some reader finds by the end record at that place."""
    with suppress(CorruptFileError):
        return [end for claim in _claims(source, tail, at, None) for end in _places(claim)]
    return []


def _is_directory(source: Source, end: _End) -> bool:
    """Whether a directory with members may be there."""
    inside = 0 <= end.start <= source.nbytes - end.nbytes
    fits = _RECORD.size <= end.nbytes and end.count * _RECORD.size <= end.nbytes
    return inside and fits and source.up_to(end.start, 4) == _RECORD_MAGIC


def _check_comment(source: Source, tail: _Tail, at: int, comment: int, notes: Notes) -> list[int]:
    """Nothing follows the comment; the earlier end records that claim to be the last one."""
    surplus = source.nbytes - (at + _END.size + comment)
    if surplus > 0:
        notes.add(
            "zip.outside", f"{surplus:,} bytes follow the end of the archive", offset=source.nbytes - surplus
        )
    elif surplus < 0:
        notes.add(
            "zip.outside", f"its comment of {comment:,} bytes goes beyond the end of the file", offset=at
        )
    earlier = [
        other
        for other in tail.ends()
        if other < at and other + _END.size + tail.record(other)[7] == source.nbytes
    ]
    for other in earlier:
        text = "it has two end records, and readers differ in which one they take"
        notes.add("zip.ambiguous", text, offset=other)
    return earlier


def _claims(source: Source, tail: _Tail, at: int, notes: Notes | None) -> list[_Claim]:
    """What the end records say about the directory; that for large archives goes first, if there is one."""
    *_, count, nbytes, start, _ = tail.record(at)
    small = _Claim(at, count, nbytes, start)
    large = _large_claims(source, at, notes)
    if not large:
        return [small]
    full = (count, 0xFFFF), (nbytes, _IN_ZIP64), (start, _IN_ZIP64)
    first = large[0]
    agrees = all(value in (most, other) for (value, most), other in zip(full, first[1:], strict=True))
    if not agrees and notes is not None:
        notes.add(
            "zip.ambiguous",
            f"its two end records disagree: {count:,} members in {nbytes:,} bytes at {start:,}, or"
            f" {first.members:,} in {first.nbytes:,} at {first.start:,}",
            offset=at,
        )
    return [*large, small]


def _large_claims(source: Source, end_at: int, notes: Notes | None) -> list[_Claim]:
    """What the end records for large archives say, where there are some."""
    locator_at = end_at - _LOCATOR.size
    if locator_at < 0:
        return []
    magic, _, declared, _ = _LOCATOR.unpack(source.read(locator_at, _LOCATOR.size, "the zip64 locator"))
    if magic != _LOCATOR_MAGIC:
        return []
    adjacent = locator_at - _END64.size
    places = [at for at in dict.fromkeys((declared, adjacent)) if _is_end64(source, at, locator_at)]
    if not places:
        raise source.corrupt(
            f"its zip64 end record is not at {declared:,}, where it should be",
            code="zip.zip64",
            offset=locator_at,
        )
    if len(places) > 1 and notes is not None:
        notes.add("zip.ambiguous", f"it has two zip64 end records, at {declared:,} and {adjacent:,}")
    found = []
    for at in places:
        data = _END64.unpack(source.read(at, _END64.size, "the zip64 end record"))
        if at + 12 + data[1] != locator_at and at == places[0] and notes is not None:
            text = f"its zip64 end record has {data[1]:,} bytes, which is not where it ends"
            notes.add("zip.zip64", text, offset=at)
        found.append(_Claim(at, data[7], data[8], data[9]))
    return found


def _is_end64(source: Source, at: int, locator_at: int) -> bool:
    return 0 <= at <= locator_at - _END64.size and source.read(at, 4, "a signature") == _END64_MAGIC


def _places(claim: _Claim) -> list[_End]:
    """Where the directory is: some readers take its declared start, others count back from its end."""
    shift = claim.at - claim.nbytes - claim.start
    found = [_End(claim.start, claim.nbytes, claim.members, 0)]
    return found if shift <= 0 else [*found, _End(claim.start + shift, claim.nbytes, claim.members, shift)]


def _place(source: Source, claim: _Claim, notes: Notes) -> _End:
    """The directory that torch would take; that other readers take another one is noted."""
    behind, count, nbytes, start = claim
    if start + nbytes > behind:
        raise source.corrupt(
            f"its directory of {nbytes:,} bytes at {start:,} does not fit before its end record",
            code="zip.directory",
            offset=behind,
        )
    if count * _RECORD.size > nbytes:
        raise source.corrupt(
            f"its directory of {nbytes:,} bytes is too short for {count:,} members",
            code="zip.count",
            offset=behind,
        )
    shift = behind - nbytes - start
    if shift and nbytes and source.read(start, 4, "a signature") == _RECORD_MAGIC:
        notes.add(
            "zip.ambiguous",
            f"its directory is at {start:,} by one rule and at {start + shift:,} by another",
            offset=start,
        )
        shift = 0
    elif shift:
        notes.add(
            "zip.outside", f"{shift:,} bytes precede the archive, which does not know of them", offset=0
        )
    return _End(start + shift, nbytes, count, shift)


# --- the directory ------------------------------------------------------------------------------------


def _entries(source: Source, end: _End, notes: Notes, limits: Limits) -> tuple[Entry, ...]:
    directory = source.read(end.start, end.nbytes, "the zip directory")
    entries: list[Entry] = []
    heads = _Heads(source, notes)
    unpack, size, total, shift = _RECORD.unpack_from, _RECORD.size, len(directory), end.shift
    at, most = 0, limits.zip_entries
    while at < total:
        if total - at < size:
            raise _broken(source, end.start + at)
        magic, flags, method, crc, packed, nbytes, nname, nextra, ncomment, disk, offset = unpack(
            directory, at
        )
        extra_at = at + size + nname
        raw = directory[at + size : extra_at]
        at = extra_at + nextra + ncomment
        if magic != _RECORD_MAGIC or at > total:
            raise _broken(source, extra_at - nname - size + end.start)
        name = raw.decode() if raw.isascii() else _decode(raw, flags, notes)
        if nextra:
            extra = directory[extra_at : extra_at + nextra]
            nbytes, packed, offset = _with_extra(extra, raw, (nbytes, packed, offset), notes, name)
        if disk and disk != 0xFFFF:
            notes.add("zip.disks", f"it is declared to be on disk {disk}", member=name)
        if method or packed != nbytes or flags & _ENCRYPTED:
            _check_packing(flags, method, packed, nbytes, notes, name, offset)
        offset += shift
        data_offset = heads.data_offset(offset, flags, method, packed, nbytes, raw, name)
        entries.append(Entry(name, method, flags, nbytes, packed, crc, offset, data_offset))
        if len(entries) > most:
            raise source.over("zip_entries", most, offset=end.start)
    if len(entries) != end.count:
        notes.add(
            "zip.count",
            f"its end record counts {end.count:,} members, but its directory has {len(entries):,}",
            offset=end.start,
        )
    return tuple(entries)


class _Heads:
    """The local headers, which repeat what the directory says and alone tell where the data begin."""

    def __init__(self, source: Source, notes: Notes) -> None:
        self._source, self._notes = source, notes
        self._data, self._start, self._end = b"", 0, 0  # what was read last, and where it is
        self._furthest = 0

    def data_offset(
        self, offset: int, flags: int, method: int, packed: int, nbytes: int, raw: bytes, name: str
    ) -> int:
        """Where the data begin; what differs from the directory is noted."""
        at, nname = offset - self._start, len(raw)
        if at < 0 or offset + nname + _MOST_HEAD > self._end:
            self._load(offset, nname + _MOST_HEAD)
            at = 0
        data = self._data
        if len(data) - at < _LOCAL.size or data[at : at + 4] != _LOCAL_MAGIC:
            self._notes.add("zip.local", f"no member begins at byte {offset:,}", member=name, offset=offset)
            return offset
        _, l_flags, l_method, l_packed, l_nbytes, l_nname, l_nextra = _LOCAL.unpack_from(data, at)
        at += _LOCAL.size
        l_raw = data[at : at + min(nname, l_nname)]
        if l_flags != flags or l_method != method or l_nname != nname or l_raw != raw:
            self._differs("flags", flags, l_flags, name, offset)
            self._differs("method", method, l_method, name, offset)
            self._differs("name", raw, data[at : at + min(nname + 64, l_nname)], name, offset)
        if l_packed != packed or l_nbytes != nbytes:
            if l_packed == _IN_ZIP64 or l_nbytes == _IN_ZIP64:
                extra = data[at + l_nname : at + l_nname + l_nextra]
                l_nbytes, l_packed, _ = _with_extra(extra, None, (l_nbytes, l_packed, 0), self._notes, name)
            # A writer that cannot go back writes zeros, and the sizes after the data.
            if l_packed or l_nbytes or not flags & _HAS_DESCRIPTOR:
                self._differs("size", nbytes, l_nbytes, name, offset)
                self._differs("packed size", packed, l_packed, name, offset)
        begin: int = offset + _LOCAL.size + l_nname + l_nextra
        return begin

    def _load(self, offset: int, length: int) -> None:
        # Headers of small members lie close together, and are read many at once.
        # Only ones further on, or else members that go back and forth would cost a large read each.
        near = self._start <= offset < self._end + _NEAR and offset + length > self._furthest
        inside = offset < self._source.nbytes
        self._data = self._source.up_to(offset, max(length, _CHUNK) if near else length) if inside else b""
        self._start, self._end = offset, offset + len(self._data)
        self._furthest = max(self._furthest, self._end)

    def _differs(self, what: str, listed: object, local: object, name: str, offset: int) -> None:
        if listed != local:
            shown = [
                value[:200].decode(errors="backslashreplace") if isinstance(value, bytes) else value
                for value in (listed, local)
            ]
            self._notes.add(
                "zip.mismatch",
                f"the directory has {what} {shown[0]!r}, its local header {shown[1]!r}",
                member=name,
                offset=offset,
            )


def _broken(source: Source, at: int) -> Exception:
    return source.corrupt("its directory has a record that cannot be read", code="zip.directory", offset=at)


def _decode(raw: bytes, flags: int, notes: Notes) -> str:
    """A name that is not ASCII: UTF-8, which old writers do not declare, or else the code page of DOS."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        if not flags & _IS_UTF8:
            return raw.decode("cp437")
        name = raw.decode(errors="surrogateescape")
        notes.add("zip.name", "its name is marked as UTF-8, and is not UTF-8", level="notice", member=name)
        return name


def _with_extra(
    extra: bytes, raw: bytes | None, sizes: tuple[int, int, int], notes: Notes, name: str
) -> tuple[int, int, int]:
    """Unpacked and packed size and position, those that did not fit taken from the extra field."""
    at, found = 0, False
    while at + 4 <= len(extra):
        kind, length = _EXTRA.unpack_from(extra, at)
        value = extra[at + 4 : at + 4 + length]
        if len(value) < length:
            break
        if kind == _ZIP64_EXTRA:
            if found:
                notes.add("zip.zip64", "it has two zip64 fields", member=name)
            else:
                sizes, found = _large(value, sizes, notes, name), True
        elif kind == _UNICODE_NAME_EXTRA and raw is not None and value[5:] != raw:
            other = value[5:].decode(errors="backslashreplace")
            notes.add("zip.name", f"it has a second name, {other[:200]!r}", member=name)
        at += 4 + length
    return sizes


def _large(value: bytes, sizes: tuple[int, int, int], notes: Notes, name: str) -> tuple[int, int, int]:
    result, at = list(sizes), 0
    for index, size in enumerate(sizes):
        if size == _IN_ZIP64:
            if at + 8 > len(value):
                notes.add("zip.zip64", f"its zip64 field of {len(value)} bytes is too short", member=name)
                break
            result[index] = int.from_bytes(value[at : at + 8], "little")
            at += 8
    return result[0], result[1], result[2]


def _check_packing(
    flags: int, method: int, packed: int, nbytes: int, notes: Notes, name: str, offset: int
) -> None:
    if flags & _ENCRYPTED:
        notes.add(
            "zip.flags",
            f"its flags {flags:#06x} mark it as encrypted or a patch",
            member=name,
            offset=offset,
        )
    if method not in (STORED, DEFLATED):
        notes.add(
            "zip.method",
            f"its compression method {method} is not one of 0 (stored) and 8 (deflated)",
            member=name,
            offset=offset,
        )
    elif method == STORED and packed != nbytes and not flags & _ENCRYPTED:
        notes.add(
            "zip.size",
            f"it is stored in {packed:,} bytes, but unpacks to {nbytes:,}",
            member=name,
            offset=offset,
        )
    elif method == DEFLATED and nbytes > packed * _MOST_DEFLATED:
        notes.add(
            "zip.size",
            f"{packed:,} compressed bytes cannot give the {nbytes:,} that it declares",
            member=name,
            offset=offset,
        )
    elif method == DEFLATED and packed > nbytes + nbytes // 8 + _CHUNK:
        notes.add(
            "zip.size",
            f"it takes {packed:,} compressed bytes, far more than the {nbytes:,} it declares to give",
            level="notice",
            member=name,
            offset=offset,
        )


# --- the members together -----------------------------------------------------------------------------


def _check_names(entries: tuple[Entry, ...], notes: Notes) -> None:
    names = [entry.name for entry in entries]
    joined = "\n".join(names)
    if (
        any(part in joined for part in ("\\", "\0", "..", ":", "\n/", "\n\n"))
        or not all(names)
        or joined[:1] == "/"
    ):
        for entry in entries:
            problem = _name_problem(entry.name)
            if problem:
                notes.add("zip.name", f"its name {problem}", member=entry.name, offset=entry.offset)
    # Nearly always no two names are alike, and then they need not be grouped.
    if len({name.casefold().replace("\\", "/") for name in names}) < len(names):
        _check_alike(entries, notes)


def _name_problem(name: str) -> str | None:
    if not name:
        return "is empty"
    if "\0" in name:
        return "has a NUL character, at which some readers cut it"
    if "\\" in name:
        return "has a backslash, which some readers take for a slash"
    if name.startswith("/") or (len(name) > 1 and name[1] == ":" and name[0].isalpha()):
        return "is an absolute path"
    if ".." in name.split("/"):
        return "leads out of the archive with '..'"
    return None


def _check_alike(entries: tuple[Entry, ...], notes: Notes) -> None:
    same: defaultdict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        same[entry.name].append(entry)
    alike: defaultdict[str, list[str]] = defaultdict(list)
    for name, group in same.items():
        alike[name.casefold().replace("\\", "/")].append(name)
        if len(group) > 1:
            places = ", ".join(f"{entry.offset:,}" for entry in group[:8])
            notes.add(
                "zip.duplicate",
                f"{len(group):,} members have this name, at bytes {places}: readers differ about them",
                member=name,
                offset=group[0].offset,
            )
    for names in alike.values():
        if len(names) > 1:
            others = ", ".join(repr(name[:200]) for name in names[1:8])
            folded = names[0].casefold()
            # Arrays x and X are saved and loaded by numpy, which never ignores case.
            other: Level = "info" if folded.endswith(".npy") else "notice"
            notes.add(
                "zip.name",
                f"its name differs only in case or slashes from {others}",
                level="invalid" if folded.endswith(_LOOKED_UP) else other,
                member=names[0],
                offset=same[names[0]][0].offset,
            )


def _check_places(entries: tuple[Entry, ...], end: _End, notes: Notes) -> None:
    """Members follow one another from the start of the file to the directory."""
    behind, before = 0, None
    for entry in sorted(entries, key=lambda entry: entry.offset):
        gap = entry.offset - behind
        if gap:
            _check_gap(gap, entry, before, end, notes)
        data_end = entry.data_offset + entry.packed_nbytes
        if data_end > behind:
            behind, before = data_end, entry
    gap = end.start - behind
    if gap < 0 and before is not None:
        notes.add(
            "zip.overlap",
            f"it ends at byte {behind:,}, behind the start of the directory at {end.start:,}",
            member=before.name,
            offset=before.offset,
        )
    elif gap > 0:
        _check_gap(gap, None, before, end, notes)


def _check_gap(gap: int, entry: Entry | None, before: Entry | None, end: _End, notes: Notes) -> None:
    at = end.start if entry is None else entry.offset
    if before is None:
        # Bytes that the archive does not count in its positions were already reported.
        if gap > end.shift:
            notes.add("zip.outside", f"{gap:,} bytes precede the first member", offset=0)
    elif gap < 0:
        notes.add(
            "zip.overlap",
            f"it begins at byte {at:,}, inside of {before.name[:200]!r}",
            member=None if entry is None else entry.name,
            offset=at,
        )
    elif not (before.flags & _HAS_DESCRIPTOR and gap in _DESCRIPTOR_NBYTES):
        notes.add("zip.gap", f"{gap:,} bytes belong to no member", level="notice", offset=at - gap)


def _decompress(packed: Source, stream: zlib._Decompress, data: bytes, most: int) -> bytes:
    try:
        return stream.decompress(data, most)
    except zlib.error as cause:
        raise packed.corrupt(f"it cannot be unpacked: {cause}", code="zip.deflate") from cause
