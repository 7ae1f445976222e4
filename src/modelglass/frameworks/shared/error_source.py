"""Which line of the model's own code an error came from."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterator
from pathlib import Path
from traceback import walk_tb
from types import CodeType

from modelglass.report import SourceLine

# Whoever reads the report did not write these, and cannot mend the model there.
_NOT_THE_MODELS = sys.stdlib_module_names | {"modelglass", "torch", "functorch", "mlx"}
_INSTALLED = ("site-packages", "dist-packages")


def find_source_line(error: BaseException) -> SourceLine | None:
    """The innermost line that the error passed through and that is not the framework's, Python's or ours.

    None where no such code ran, as in a plain chain of the framework's own layers.
    """
    found = None
    for code, module, line in _lines(error):
        if module.partition(".")[0] not in _NOT_THE_MODELS and not code.co_filename.startswith("<frozen "):
            found = code.co_filename, line
    if found is None:
        return None
    file, line = found
    return SourceLine(file=_short(file), line=line, text=linecache.getline(file, line).strip())


def _lines(error: BaseException) -> Iterator[tuple[CodeType, str, int]]:
    for frame, line in walk_tb(error.__traceback__):
        yield frame.f_code, str(frame.f_globals.get("__name__", "")), line


def _short(file: str) -> str:
    """A path as people would write it: from the current folder, or from the package's own."""
    path = Path(file)
    for name in _INSTALLED:
        if name in path.parts:
            return Path(*path.parts[path.parts.index(name) + 1 :]).as_posix()
    try:
        here = Path.cwd()
    except OSError:  # the current folder is gone
        return file
    return path.relative_to(here).as_posix() if path.is_relative_to(here) else file
