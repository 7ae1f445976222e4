"""Zip archives that hold models: which kind it is, by its members."""

from __future__ import annotations

from importlib import import_module

from modelglass.errors import NotAModelError
from modelglass.formats import pickles
from modelglass.formats import zip as zips
from modelglass.formats.reading import Reading
from modelglass.formats.source import Source
from modelglass.formats.torch import archive as torch_archive

EXPORTED = "archive_format"  # a member that only exported programs have


def read(source: Source, reading: Reading) -> None:
    """Fill the reading from an archive; one that is no model is still searched for pickles."""
    archive = zips.read(source, reading)
    if any(entry.name.rpartition("/")[2] == EXPORTED for entry in archive.entries):
        import_module("modelglass.formats.torch.exported").read(source, archive, reading)
    elif torch_archive.tops(archive):
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


def _scan_members(archive: zips.Archive, reading: Reading) -> None:
    for entry in archive.entries:
        if entry.name.endswith((".pkl", ".pickle")):
            pickles.scan_stream(archive.member(entry, reading.limits), reading)
