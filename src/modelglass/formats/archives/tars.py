"""Tar archives: headers of 512 bytes, each followed by what it describes.

Nothing in a tar says where its members are but the headers before them, and readers differ in what they skip:
Python does not skip the content of a folder or a link, others do. So both ways are gone, and what only one
of them meets is a finding.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from modelglass.errors import FileError
from modelglass.formats.reading import Reading
from modelglass.formats.source import Source
from modelglass.report import Level

BLOCK = 512
MOST_MEMBERS = 100_000
_MOST_NAME = 1 << 20  # bytes of a name or of extended fields
_MOST_FILLED = 64 << 20  # bytes of a file with holes

_REGULAR = (b"0", b"\0", b"7", b"S")
_FOLDER, _HARD_LINK, _LINK = b"5", b"1", b"2"
_DEVICES = (b"3", b"4", b"6")
_LONG_NAME, _LONG_LINK, _SPARSE = b"L", b"K", b"S"
_EXTENDED, _EXTENDED_FOR_ALL = (b"x", b"X"), b"g"
_WITHOUT_CONTENT = (_FOLDER, _HARD_LINK, _LINK, *_DEVICES)  # for Python; others go by the size


class Member(NamedTuple):
    """One member, as Python's reader names it."""

    name: str
    kind: bytes
    header: int  # where its header is
    start: int  # of its content
    nbytes: int
    link: str
    holes: tuple[tuple[int, int], ...] | None = None  # where pieces of a file with holes go, and their sizes
    real_nbytes: int = 0  # of a file with holes

    @property
    def is_file(self) -> bool:
        return self.kind in _REGULAR


def looks_like(head: bytes, nbytes: int) -> bool:
    """Whether the first header is one: by its checksum, because the oldest have nothing else."""
    return nbytes >= BLOCK and len(head) >= BLOCK and head[:1] != b"\0" and _checks(head[:BLOCK])


def read(source: Source, reading: Reading) -> list[Member]:
    """The members that some reader finds, in Python's order; where readers differ is found."""
    python = list(_walk(source, reading, by_size=False))
    others = list(_walk(source, None, by_size=True))
    headers = {member.header for member in python}
    extra = [member for member in others if member.header not in headers]
    if headers != {member.header for member in others}:
        shown = [member.name[:200] for member in extra[:20]]
        text = "a folder or link with content: readers differ in which members they see"
        reading.found(source, "tar.ambiguous", "invalid", text, members=shown)
    _check_names(source, [*python, *extra], reading)
    return [*python, *extra]


def content(source: Source, member: Member) -> Source:
    """What a member holds; one with holes is put together, as readers do."""
    name = member.name if source.member is None else f"{source.member}/{member.name}"
    held = source.part(member.start, member.nbytes, name, "a member of the archive")
    return held if member.holes is None else source.unpacked(_filled(held, member), name)


def _filled(held: Source, member: Member) -> bytes:
    """The pieces of a file with holes, each at its place."""
    at, data = 0, bytearray()
    for place, nbytes in member.holes or ():
        if place < len(data) or place + nbytes > min(member.real_nbytes, _MOST_FILLED):
            break
        data += bytes(place - len(data)) + held.up_to(at, nbytes)
        at += nbytes
    if at < held.nbytes and member.real_nbytes > _MOST_FILLED:
        raise held.over("inflated_nbytes", _MOST_FILLED)
    return bytes(data)


def look_into(source: Source, members: list[Member], reading: Reading) -> None:
    """Search the content of each member for what may run."""
    looked_at = 0
    for member in members:
        try:
            held = content(source, member)
            looked_at += held.nbytes
            if looked_at > 2 * source.nbytes:
                reading.found(source, "tar.overlap", "limit", "members overlap; the rest is not looked at")
                return
            if held.nbytes:
                reading.look_into(held, raw=not member.is_file)
        except FileError as error:
            reading.stopped(error)


def _walk(source: Source, reading: Reading | None, *, by_size: bool) -> Iterator[Member]:
    """The members one after the other; `by_size`: whatever has a size is skipped by it."""
    offset, count = 0, 0
    long_name = long_link = extended = None
    for_all: dict[str, str] = {}
    while offset + BLOCK <= source.nbytes:
        head = source.read(offset, BLOCK, "a tar header")
        if not head.strip(b"\0") or not _checks(head):
            break
        count += 1
        if count > MOST_MEMBERS:
            if reading is not None:
                text = f"more than {MOST_MEMBERS:,} members; the others are not looked at"
                reading.found(source, "limit", "limit", text, offset=offset)
            return
        member = _member(source, head, offset)
        kind, start = member.kind, member.start
        behind = start + _blocks(member.nbytes)
        if kind in (_LONG_NAME, _LONG_LINK):
            text = _cut(source.up_to(start, min(member.nbytes, _MOST_NAME)))
            long_name, long_link = (text, long_link) if kind == _LONG_NAME else (long_name, text)
        elif kind in _EXTENDED or kind == _EXTENDED_FOR_ALL:
            fields = _fields(source.up_to(start, min(member.nbytes, _MOST_NAME)))
            if kind == _EXTENDED_FOR_ALL:
                for_all |= fields
            else:
                extended = fields
        else:
            fields = for_all | (extended or {})
            member = _extend(member, fields, long_name, long_link)
            member, behind = _place(source, head, member, fields, by_size=by_size)
            long_name = long_link = extended = None
            yield member
        offset = behind


def _member(source: Source, head: bytes, offset: int) -> Member:
    name, kind = _cut(head[:100]), head[156:157]
    if kind == b"\0" and name.endswith("/"):
        kind = _FOLDER  # as the oldest archives tell it
    prefix = _cut(head[345:500])
    if prefix and kind not in (_LONG_NAME, _LONG_LINK, _SPARSE):
        name = f"{prefix}/{name}"
    if kind == _FOLDER:
        name = name.rstrip("/")
    nbytes = _number(head[124:136])
    if nbytes is None or nbytes < 0:
        raise source.corrupt(f"{name[:200]!r} has the size {head[124:136]!r}", code="tar.size", offset=offset)
    return Member(name, kind, offset, offset + BLOCK, nbytes, _cut(head[157:257]))


def _extend(member: Member, fields: dict[str, str], long_name: str | None, long_link: str | None) -> Member:
    """The member with the name and size that the records before it give."""
    name = fields.get("GNU.sparse.name") or fields.get("path") or long_name or member.name
    size = _decimal(fields.get("size", ""))
    return member._replace(
        name=name.rstrip("/") if member.kind == _FOLDER else name,
        link=fields.get("linkpath") or long_link or member.link,
        nbytes=member.nbytes if size is None else size,
    )


def _place(
    source: Source, head: bytes, member: Member, fields: dict[str, str], *, by_size: bool
) -> tuple[Member, int]:
    """The member with the place of its content, and where the next header is."""
    if member.kind == _SPARSE:
        member = _with_holes(source, head, member)
    if member.kind in _WITHOUT_CONTENT and not by_size:
        return member, member.start
    behind = member.start + _blocks(member.nbytes)
    if member.start + member.nbytes > source.nbytes and member.is_file:
        left = max(0, source.nbytes - member.start)
        text = f"{member.name[:200]!r} takes {member.nbytes:,} bytes, but {left:,} are left"
        raise source.corrupt(text, code="truncated", offset=member.header)
    return _with_told_holes(source, member, fields), behind


def _with_holes(source: Source, head: bytes, member: Member) -> Member:
    """A file with holes as GNU writes it: where its pieces go is in the header and in blocks after it."""
    places, start, more = _places(head[386:482], all=True), member.start, head[482:483] != b"\0"
    while more and start + BLOCK <= source.nbytes:
        block = source.read(start, BLOCK, "a tar header")
        places += _places(block[:504], all=False)
        more, start = block[504:505] != b"\0", start + BLOCK
    real = _number(head[483:495]) or 0
    return member._replace(start=start, holes=tuple(places), real_nbytes=real)


def _places(data: bytes, *, all: bool) -> list[tuple[int, int]]:
    pairs = [
        (_number(data[at : at + 12]), _number(data[at + 12 : at + 24])) for at in range(0, len(data), 24)
    ]
    return [
        (at, size) for at, size in pairs if at is not None and size is not None and (all or (at and size))
    ]


def _with_told_holes(source: Source, member: Member, fields: dict[str, str]) -> Member:
    """A file with holes as extended fields tell it, in one of three ways."""
    real = _decimal(fields.get("GNU.sparse.realsize") or fields.get("GNU.sparse.size") or "")
    if real is None or not member.is_file:
        return member
    numbers = fields.get("GNU.sparse.map", "").split(",")
    if fields.get("GNU.sparse.major") == "1":
        text = source.up_to(member.start, min(member.nbytes, _MOST_NAME))
        count = _decimal(text.partition(b"\n")[0].decode("latin-1")) or 0
        lines = text.split(b"\n", 2 * count + 1)[: 2 * count + 1]
        taken = _blocks(sum(len(line) + 1 for line in lines))
        numbers = [line.decode("latin-1") for line in lines[1:]]
        member = member._replace(start=member.start + taken, nbytes=max(0, member.nbytes - taken))
    elif "GNU.sparse.offset" in fields:
        pairs = zip(
            fields["GNU.sparse.offset"].split(","),
            fields.get("GNU.sparse.numbytes", "").split(","),
            strict=False,
        )
        numbers = [number for pair in pairs for number in pair]
    known = [_decimal(number) or 0 for number in numbers]
    holes = tuple(zip(known[::2], known[1::2], strict=False))
    return member._replace(holes=holes, real_nbytes=real)


def _decimal(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def _check_names(source: Source, members: list[Member], reading: Reading) -> None:
    seen: set[str] = set()
    twice = 0
    for member in members:
        _check_name(source, member, reading)
        twice += member.name in seen
        seen.add(member.name)
    if twice:
        text = f"{twice:,} members have the name of another: readers differ about them"
        reading.found(source, "tar.duplicate", "notice", text)


def _check_name(source: Source, member: Member, reading: Reading) -> None:
    shown, place = member.name, member.header
    field = source.up_to(member.header, 100)
    if field.partition(b"\0")[2].strip(b"\0"):
        text = f"its name has a NUL character, at which Python cuts it: {field.rstrip(bytes(1))[:100]!r}"
        reading.found(source, "tar.name", "invalid", text, member=shown, offset=place)
    if _leads_out(member.name):
        text = "its name leads out of the folder that it is unpacked in"
        reading.found(source, "tar.name", "high", text, member=shown, offset=place)
    if member.kind in (_LINK, _HARD_LINK):
        level: Level = "high" if _leads_out(member.link) else "info"
        text = f"it is a link to {member.link[:200]!r}"
        reading.found(source, "tar.link", level, text, member=shown, offset=place)
    elif member.kind in _DEVICES:
        reading.found(source, "tar.link", "invalid", "it is a device or a pipe", member=shown, offset=place)


def _leads_out(path: str) -> bool:
    return path.startswith("/") or ".." in path.split("/")


def _checks(head: bytes) -> bool:
    """Whether the checksum of a header is right, by either way of counting."""
    told = _number(head[148:156])
    others = (*head[:148], *head[156:])
    unsigned = 256 + sum(others)
    return told is not None and told in (unsigned, unsigned - 256 * sum(byte > 127 for byte in others))


def _number(field: bytes) -> int | None:
    """A number in text of base 8, or in bytes; None for anything else."""
    if field[:1] in (b"\x80", b"\xff"):
        value = int.from_bytes(field[1:], "big")
        return value if field[:1] == b"\x80" else value - 256 ** (len(field) - 1)
    digits = field.partition(b"\0")[0].strip()
    try:
        return int(digits or b"0", 8)
    except ValueError:
        return None


def _cut(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "backslashreplace")


def _blocks(nbytes: int) -> int:
    return -(-nbytes // BLOCK) * BLOCK


def _fields(data: bytes) -> dict[str, str]:
    """The fields of an extended header: "LENGTH KEY=VALUE" and a line end, each."""
    found: dict[str, str] = {}
    at = 0
    while at < len(data):
        digits, _, _ = data[at : at + 20].partition(b" ")
        if not digits.isdigit() or not (length := int(digits)) or at + length > len(data):
            break
        key, _, value = (
            data[at + len(digits) + 1 : at + length - 1].decode("utf-8", "backslashreplace").partition("=")
        )
        several = key in ("GNU.sparse.offset", "GNU.sparse.numbytes") and key in found
        found[key] = f"{found[key]},{value}" if several else value
        at += length
    return found
