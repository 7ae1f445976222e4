"""What one bad file is, and what must come out of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

Build = Callable[[Path], Path]
MB = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One bad file: how to build it in an empty folder, and what a scan of it must say.

    At least one of `codes` must be among the findings (none: the code is not fixed), and so must the text
    `contains`. `note` says what is not obvious.
    """

    id: str
    row: int
    name: str
    build: Build
    exit_codes: set[int]
    codes: set[str]
    contains: str | None
    note: str
    seconds: float = 5
    peak_nbytes: int = 400 * MB


def case(
    id: str,
    name: str,
    build: Build,
    exit_codes: set[int],
    *,
    codes: set[str] | None = None,
    contains: str | None = None,
    note: str = "",
    seconds: float = 5,
    peak_nbytes: int = 400 * MB,
) -> Case:
    """A case whose row is the number that its id starts with."""
    return Case(
        id=id,
        row=int(id.partition("-")[0]),
        name=name,
        build=build,
        exit_codes=exit_codes,
        codes=codes or set(),
        contains=contains,
        note=note,
        seconds=seconds,
        peak_nbytes=peak_nbytes,
    )


def file(name: str, content: Callable[[Path], bytes]) -> Build:
    """Builds one file of that name; `content` is told the folder, where a payload may aim."""

    def build(folder: Path) -> Path:
        path = folder / name
        path.write_bytes(content(folder))
        return path

    return build


def secret(folder: Path) -> Path:
    """A file outside of the folder, which nobody may open because of a file inside."""
    path = folder.parent / "secret.bin"
    path.write_bytes(b"not yours" * 16)
    return path
