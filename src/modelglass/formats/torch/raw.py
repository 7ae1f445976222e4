"""Pickles that are files of their own, without torch's archive around them."""

from __future__ import annotations

from modelglass.formats import pickles
from modelglass.formats.reading import Reading
from modelglass.formats.source import Source
from modelglass.formats.torch.checkpoint import fill
from modelglass.formats.torch.memory import Memory
from modelglass.formats.torch.tensors import INSIDE, Storage
from modelglass.report.dtypes import nbytes_of


def read(source: Source, reading: Reading) -> None:
    """Fill the reading with what the first pickle would build; all of them are scanned."""
    reading.format = "pickle"
    root = pickles.scan_stream(source, reading)

    def locate(storage: Storage) -> tuple[Source, int, int] | None:
        """Where a storage is that is inside the pickle: it ends with its numbers."""
        if not storage.key.startswith(INSIDE):
            return None
        nbytes = nbytes_of(storage.dtype, storage.numel) or 0
        start = int(storage.key.removeprefix(INSIDE)) - nbytes
        return (source, start, nbytes) if start >= 0 else None

    fill(root, Memory(source, reading, locate), reading, source)
