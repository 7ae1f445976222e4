"""Files that are written whole or not at all, and what to try instead of one that does not exist."""

from __future__ import annotations

import os
from collections.abc import Mapping
from errno import EISDIR
from pathlib import Path

from modelglass.errors import UsageError

_MOST_LISTED = 8  # names in a message


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file under a temporary name and rename it, so that nobody ever sees half of it."""
    write_together({path: content})


def write_together(contents: Mapping[Path, str | bytes]) -> None:
    """Write files of which nobody ever sees half, and not one of them unless all can be written."""
    partial: dict[Path, Path] = {}
    target = Path()
    try:
        try:
            for target, content in contents.items():
                if target.is_dir():
                    raise IsADirectoryError(EISDIR, "it is a folder")
                partial[target] = target.with_name(f".{target.name}.{os.getpid()}.partial")
                partial[target].write_bytes(content.encode() if isinstance(content, str) else content)
            for target, written in partial.items():
                written.replace(target)
        finally:
            for written in partial.values():
                written.unlink(missing_ok=True)
    except OSError as cause:
        kept = isinstance(cause, PermissionError) and target.exists()
        hint = "close the program that has it open, or choose another file" if kept else "choose another file"
        raise UsageError(f"cannot write {str(target)!r}: {cause.strerror}", hint=hint) from cause


def check_writable(path: Path) -> None:
    """Refuse a file whose folder does not exist, before any work is done for it."""
    if not path.parent.is_dir():
        raise UsageError(
            f"cannot write {str(path)!r}: there is no folder {str(path.parent)!r}",
            hint="make the folder, or choose another file",
        )
    if path.is_dir():
        raise UsageError(f"cannot write {str(path)!r}: it is a folder", hint="choose another file")


def check_folder(folder: Path) -> None:
    """Refuse a folder that cannot be made or written to, before any work is done for it."""
    existing = next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path))
    if not existing.is_dir():
        problem = f"{str(existing)!r} is not a folder"
    elif not os.access(existing, os.W_OK):
        problem = f"{str(existing)!r} is read-only"
    else:
        return
    raise UsageError(f"cannot write to {str(folder)!r}: {problem}", hint="choose another folder")


def make_folder(folder: Path) -> None:
    """Make the folder, and those above it, unless it is there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as cause:
        raise UsageError(
            f"cannot make the folder {str(folder)!r}: {cause.strerror}", hint="choose another folder"
        ) from cause


def remove_marked(folder: Path, pattern: str, mark: str) -> None:
    """Remove the files of such names that carry the mark of an earlier run."""
    for path in folder.glob(pattern):
        if path.is_file() and mark in path.read_text(encoding="utf-8", errors="replace"):
            path.unlink()


def suggest_path(path: Path) -> str:
    """What to try instead of a path that does not exist."""
    parent = path.parent
    if not os.path.isdir(parent):
        return f"the folder {str(parent)!r} does not exist either"
    try:
        names = sorted(os.listdir(parent))
    except OSError as cause:
        return f"check the path: the folder {str(parent)!r} cannot be listed ({cause.strerror})"
    from difflib import get_close_matches

    close = get_close_matches(path.name, names, n=3, cutoff=0.5)
    if close:
        return f"did you mean {', '.join(close)}?"
    return f"check the path: the folder {str(parent.resolve())!r} {_list_names(names)}"


def _list_names(names: list[str]) -> str:
    """The first few names in a folder."""
    shown = [name for name in names if not name.startswith(".")]
    if not shown:
        return "is empty"
    return f"has {', '.join(shown[:_MOST_LISTED])}" + (", …" if len(shown) > _MOST_LISTED else "")
