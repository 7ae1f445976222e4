"""Zip archives that hold models: which kind it is, by its members."""

from __future__ import annotations

from collections.abc import Iterator

from modelglass.errors import FileError, NotAModelError
from modelglass.formats.archives import zip as zips, zip_members as members
from modelglass.formats.reading import Reading
from modelglass.formats.source import Source
from modelglass.formats.torch import archive as torch_archive

EXPORTED = "archive_format"  # a member that only exported programs have
OLD_EXPORTED = "serialized_exported_program.json"  # and what those before torch 2.8 have instead
MOST_ARCHIVES = 10_000  # that follow one another in a file


def read(source: Source, reading: Reading) -> None:
    """Fill the reading from an archive; one that is not a model is still searched for pickles."""
    archive = zips.read(source, reading)
    try:
        _read(source, archive, reading)
    finally:
        if reading.thorough:
            _look_at_others(source, archive, reading)


def _read(source: Source, archive: zips.Archive, reading: Reading) -> None:
    names = {zips.folded(entry.name.rpartition("/")[2]) for entry in archive.entries}
    saved = bool(torch_archive.tops(archive))
    if EXPORTED in names or OLD_EXPORTED in names:
        _export(source, archive, reading, also_saved=saved)
    elif saved:
        torch_archive.read(source, archive, reading)
    elif any(name.endswith(".npy") for name in names):
        from modelglass.formats import npz

        npz.read(source, reading, archive)
    else:
        members.look_into(archive, archive.entries, reading)
        shown = ", ".join(repr(entry.name[:60]) for entry in archive.entries[:4])
        raise source.is_archive(f"zip archive that does not hold a model ({shown or 'nothing'})")


def _export(source: Source, archive: zips.Archive, reading: Reading, *, also_saved: bool) -> None:
    """An exported program. One that `torch.load` would take for its own as well has two readings."""
    if also_saved:
        text = f"it has both {EXPORTED} and data.pkl: loaders differ in what they take it for"
        reading.found(source, "ambiguous", "invalid", text)
        other = reading.inner()
        try:
            torch_archive.read(source, archive, other)
        except FileError as error:
            other.stopped(error)
        reading.absorb(other)
    # Few archives are exported programs.
    from modelglass.formats.torch import exported

    exported.read(source, archive, reading)


def _look_at_others(source: Source, archive: zips.Archive, reading: Reading) -> None:
    """What readers find that go by other rules, and what precedes the archive: pickles, other archives."""
    before = max(each.before for each in (archive, *archive.others))
    for other in (*archive.others, *_preceding(source, before, reading)):
        inner = reading.inner()
        try:
            _read(other.source, other, inner)
        except NotAModelError:
            pass  # it was searched, and need not be a model
        except FileError as error:
            inner.stopped(error)
        reading.absorb(inner)


def _preceding(source: Source, before: int, reading: Reading) -> Iterator[zips.Archive]:
    """The archives in the bytes before the last one, going back; what is before all of them is searched."""
    for _ in range(MOST_ARCHIVES):
        front = source.part(0, before, source.member)
        if not before or not zips.has_end(front):
            break
        inner = reading.inner()
        try:
            archive = zips.read(front, inner)
        except FileError as error:
            reading.stopped(error)
            break
        yield archive
        yield from archive.others
        before = max(each.before for each in (archive, *archive.others))
    else:
        text = f"more than {MOST_ARCHIVES:,} archives one after the other; the others are not looked at"
        reading.found(source, "limit", "limit", text)
    if before:
        front = source.part(0, before, source.member)
        reading.look_into(front, raw=True)
