"""NumPy's format of several arrays: a zip archive of .npy members.

Of a compressed member only the header is unpacked, so its values have no place that could be read, and the
length that the directory declares is compared with the array's but not proven.
"""

from __future__ import annotations

from itertools import count

from modelglass.errors import FileError, LimitError
from modelglass.formats import npy
from modelglass.formats.archives import zip
from modelglass.formats.archives.zip import Archive, Entry
from modelglass.formats.reading import Reading
from modelglass.formats.source import Source
from modelglass.report import Level

_FIRST_NBYTES = 1024  # of a compressed member; nearly every header fits into them
_PICKLES = (".pkl", ".pickle", ".p")
_PICKLE_STARTS = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")


def read(source: Source, reading: Reading, archive: Archive | None = None) -> None:
    """Read an archive of arrays. A member that cannot be read does not hide those after it.

    `archive` is its directory, if that was read already.
    """
    reading.format = "npz"
    _Members(archive or zip.read(source, reading), reading).read()


class _Members:
    """The members of an archive while they are read, one after the other."""

    def __init__(self, archive: Archive, reading: Reading) -> None:
        self._archive, self._reading = archive, reading
        self._notes = zip.Notes(archive.source, reading)
        self._taken: dict[str, str] = {}  # names of arrays, and the members that have them
        self._again = count(2)  # tells apart what has the same name
        self._unread: list[str] = []
        self._pickled_nbytes = 0

    def read(self) -> None:
        for entry in self._archive.entries:
            if entry.name.endswith("/"):
                continue
            try:
                self._read_one(entry)
            except FileError as error:
                level: Level = "limit" if isinstance(error, LimitError) else "invalid"
                self._found(error.code, level, error.text, entry, error.offset)
        self._notes.close()
        if self._unread:
            shown = ", ".join(repr(name[:200]) for name in self._unread[:8])
            more = ", …" if len(self._unread) > 8 else ""
            self._reading.found(
                self._archive.source,
                "npz.member",
                "info",
                f"neither arrays nor pickles: {shown}{more}",
                count=len(self._unread),
            )

    def _read_one(self, entry: Entry) -> None:
        start = self._archive.start(entry, _FIRST_NBYTES, self._reading.limits)
        # numpy goes by the first bytes: a member of any name that begins so is an array.
        if start.startswith(npy.MAGIC) or entry.name.lower().endswith(".npy"):
            self._read_array(entry, start)
        elif entry.name.lower().endswith(_PICKLES) or start.startswith(_PICKLE_STARTS):
            # Only few archives need the pickle machine.
            from modelglass.formats.pickles import scan_stream

            scan_stream(self._pickled(entry), self._reading)
        elif not (self._reading.thorough and self._reading.look_into(self._pickled(entry))):
            self._unread.append(entry.name)

    def _read_array(self, entry: Entry, start: bytes) -> None:
        archive, reading = self._archive, self._reading
        name, stored = self._own_name(entry), entry.method == zip.STORED
        if stored:
            member = archive.member(entry, reading.limits)
        else:
            needed = npy.header_nbytes(archive.source.unpacked(start, entry.name), start)
            if needed > len(start):
                start = archive.start(entry, needed, reading.limits)
            member = archive.source.unpacked(start, entry.name)
        head = npy.header(member, reading)
        if head.has_object:
            member = self._pickled(entry)
        elif not stored:
            self._check_ratio(entry)
        npy.add(
            member, reading, name, head, nbytes=entry.nbytes if not stored else member.nbytes, placed=stored
        )

    def _own_name(self, entry: Entry) -> str:
        """The name that numpy gives an array; a second one of that name gets a number."""
        name, taken = entry.name.removesuffix(".npy"), self._taken
        # A member that is there twice was already found.
        if taken.get(name, entry.name) != entry.name:
            text = f"numpy also gives it the name of {taken[name][:200]!r}"
            self._found("npz.ambiguous", "invalid", text, entry, entry.offset)
        own = name
        while own in taken:
            own = f"{name} #{next(self._again)}"
        taken[own] = entry.name
        return own

    def _pickled(self, entry: Entry) -> Source:
        """A member that holds a pickle, all of it."""
        source = self._archive.source
        # Members that overlap could have one pickle scanned any number of times.
        self._pickled_nbytes += entry.packed_nbytes
        if self._pickled_nbytes > source.nbytes:
            raise source.corrupt("not scanned: its members overlap", code="zip.overlap", offset=entry.offset)
        member = self._archive.member(entry, self._reading.limits)
        zip.check_crc(self._archive, entry, self._reading, member)
        return member

    def _check_ratio(self, entry: Entry) -> None:
        limits = self._reading.limits
        if entry.nbytes > max(limits.inflated_free_nbytes, limits.inflated_ratio * entry.packed_nbytes):
            self._found(
                "zip.bomb",
                "limit",
                f"its {entry.packed_nbytes:,} bytes unpack to {entry.nbytes:,}, beyond the limit"
                f" inflated_ratio = {limits.inflated_ratio}: an array of equal values, or a file made to fill"
                " the memory. Only its header was read",
                entry,
                entry.offset,
            )

    def _found(self, code: str, level: Level, text: str, entry: Entry, offset: int | None) -> None:
        self._notes.add(code, text, level=level, member=entry.name, offset=offset)
