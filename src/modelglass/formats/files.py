"""Files of any kind, opened and read: those with weights, and documents about them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from modelglass.formats import table
from modelglass.formats.reading import Reading
from modelglass.formats.source import OpenFile, Source


def open_file(path: Path, reading: Reading) -> OpenFile:
    """Open a file for a reading, which owns it and searches what lies inside of its archives."""
    source = OpenFile(path)
    reading.opened.append(source)
    reading.search = _search
    return source


def read_file(source: OpenFile, reading: Reading) -> None:
    """Fill the reading from an open file."""
    table.read(source, reading, _read_document)


# Few files are documents, and few have anything inside of them: their readers are imported when one does.


def _read_document(source: OpenFile, reading: Reading) -> None:
    from modelglass.formats.documents.reader import read

    read(source, reading)


def _search(member: Source, reading: Reading, **how: Any) -> bool:
    from modelglass.formats.archives.inside import look_into

    return look_into(member, reading, **how)
