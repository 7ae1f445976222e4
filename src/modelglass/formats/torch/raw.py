"""Pickles that are files of their own, without torch's archive around them."""

from __future__ import annotations

from modelglass.formats import pickles
from modelglass.formats.reading import Reading
from modelglass.formats.source import Source
from modelglass.formats.torch.checkpoint import fill
from modelglass.formats.torch.memory import Memory


def read(source: Source, reading: Reading) -> None:
    """Fill the reading with what the first pickle would build; all of them are scanned."""
    reading.format = "pickle"
    root = pickles.scan_stream(source, reading)
    fill(root, Memory(source, reading, lambda storage: None), reading, source)
