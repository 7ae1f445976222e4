"""Checkpoints of every format we know, read as if a stranger had made them.

What a file begins with is believed before its suffix. Nothing in it is run, imported, or followed out of its
folder; what is read grows with the metadata that is there, never with what it claims.
"""

from __future__ import annotations

import os
from pathlib import Path

from modelglass.errors import CorruptFileError, LimitError
from modelglass.formats.limits import Limits
from modelglass.formats.reading import Reading


def read(path: Path, reading: Reading) -> None:
    """Fill the reading from a file or a folder. What it opens stays open until the reading is closed."""
    if os.path.isdir(path):
        from modelglass.formats.folders import read as read_folder

        read_folder(path, reading)
        return
    from modelglass.formats.files import open_file, read_file

    read_file(open_file(path, reading), reading)


__all__ = ["CorruptFileError", "LimitError", "Limits", "Reading", "read"]
