"""Members of zip archives, unpacked within limits and searched."""

from __future__ import annotations

from modelglass.errors import FileError
from modelglass.formats.archives import zip as zips
from modelglass.formats.reading import Reading
from modelglass.formats.source import Source


def look_into(
    archive: zips.Archive, entries: tuple[zips.Entry, ...] | list[zips.Entry], reading: Reading
) -> None:
    """Search members for what may run; one that cannot be read does not hide those after it."""
    looked_at = 0
    for entry in entries:
        if entry.name.endswith("/") and not entry.nbytes:
            continue
        # Members that overlap could have the same bytes searched any number of times.
        looked_at += entry.packed_nbytes
        if looked_at > archive.source.nbytes:
            text = "it and the members after it are not looked at: members overlap"
            reading.found(
                archive.source, "zip.overlap", "limit", text, member=entry.name, offset=entry.offset
            )
            return
        try:
            reading.look_into(unpacked(archive, entry, reading))
        except FileError as error:
            reading.stopped(error)


def unpacked(archive: zips.Archive, entry: zips.Entry, reading: Reading) -> Source:
    """What a member holds; of all members that are looked into, not more is unpacked than of one."""
    if entry.method != zips.STORED:
        reading.unpacked.nbytes += entry.nbytes
        if reading.unpacked.nbytes > reading.limits.inflated_nbytes:
            raise archive.source.over("inflated_nbytes", reading.limits.inflated_nbytes, offset=entry.offset)
    return archive.member(entry, reading.limits)
