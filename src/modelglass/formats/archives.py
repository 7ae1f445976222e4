"""Zip archives that hold models: which kind it is, by its members."""

from __future__ import annotations

from importlib import import_module

from modelglass.errors import FileError, NotAModelError
from modelglass.formats import pickles
from modelglass.formats import zip as zips
from modelglass.formats.reading import Reading
from modelglass.formats.source import Source
from modelglass.formats.torch import archive as torch_archive

EXPORTED = "archive_format"  # a member that only exported programs have


def read(source: Source, reading: Reading) -> None:
    """Fill the reading from an archive; one that is no model is still searched for pickles."""
    archive = zips.read(source, reading)
    exports = any(entry.name.rpartition("/")[2] == EXPORTED for entry in archive.entries)
    saved = bool(torch_archive.tops(archive))
    if exports:
        _export(source, archive, reading, also_saved=saved)
    elif saved:
        torch_archive.read(source, archive, reading)
    elif any(entry.name.endswith(".npy") for entry in archive.entries):
        import_module("modelglass.formats.npz").read(source, reading, archive)
    else:
        _scan_members(archive, reading)
        names = ", ".join(repr(entry.name[:60]) for entry in archive.entries[:4])
        hint = "unpack it first, or pass the model's own file"
        raise NotAModelError(
            f"this is a zip archive that holds no model ({names or 'nothing'})",
            file=source.file,
            code="not-a-model",
            member=source.member,
            hint=hint,
        )


def _export(source: Source, archive: zips.Archive, reading: Reading, *, also_saved: bool) -> None:
    """An exported program. One that `torch.load` would take for its own as well has two readings."""
    if also_saved:
        text = f"it has both {EXPORTED} and data.pkl: loaders differ in what they take it for"
        reading.found(source, "ambiguous", "invalid", text)
        other = Reading(limits=reading.limits, thorough=reading.thorough)
        try:
            torch_archive.read(source, archive, other)
        except FileError as error:
            other.stopped(error)
        reading.absorb(other)
    import_module("modelglass.formats.torch.exported").read(source, archive, reading)


def _scan_members(archive: zips.Archive, reading: Reading) -> None:
    """Search an archive that is no model for what may run: pickles, code in documents, archives inside."""
    for entry in archive.entries:
        if entry.name.endswith("/"):
            continue
        try:
            _scan_member(archive, entry, reading)
        except FileError as error:
            reading.stopped(error)


def _scan_member(archive: zips.Archive, entry: zips.Entry, reading: Reading) -> None:
    head = archive.start(entry, 64, reading.limits)
    if head[:4] == b"PK\x03\x04":
        text = f"an archive inside the archive, which is not opened: {entry.name[:200]!r}"
        reading.found(archive.source, "zip.nested", "notice", text, member=entry.name, offset=entry.offset)
    elif entry.name.endswith(".json"):
        member = archive.member(entry, reading.limits)
        content = import_module("modelglass.formats.strict_json").document(
            member, reading.limits, lenient=True
        )
        import_module("modelglass.formats.sidecars").code_references(content, member, reading)
    elif entry.name.endswith((".pkl", ".pickle", ".joblib")) or pickles.looks_like(head):
        pickles.scan_stream(archive.member(entry, reading.limits), reading)
