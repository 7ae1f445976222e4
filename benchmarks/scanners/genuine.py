"""Writes files that are what they should be, each by the library that such files come from.

    python benchmarks/scanners/genuine.py FOLDER [--with-code] [--only WRITER ...]

`--with-code` writes other files: genuine, too, but loading them runs code of theirs or of a package that
models were made with, so that a scanner may well say so.

A writer whose package is not installed, or that fails, is named on stderr and in the exit code; the others
write all the same. The packages: torch, and those that `science_writers` and its neighbours import.
"""

from __future__ import annotations

import argparse
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve()
# The folder of a script comes first on the path, and there this file has the name of one of the tests'.
sys.path[:1] = [str(HERE.parents[2] / "tests/support"), str(HERE.parents[1])]

from scanners.run import TARGETS  # noqa: E402

BESIDE = (".csv", ".data", ".log", ".md", ".txt", ".vocab")
Writer = Callable[[Path], None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="*", default=[], help="names of writers")
    parser.add_argument("--with-code", action="store_true")
    wanted = parser.parse_args()
    failed = []
    for name, writer in _writers(wanted.with_code).items():
        if not wanted.only or name in wanted.only:
            failed += [] if _written(name, writer, wanted.folder) else [name]
    targets = [str(path.relative_to(wanted.folder)) for path in _models(wanted.folder)]
    (wanted.folder / TARGETS).write_text("\n".join(targets) + "\n")
    print(f"{len(targets)} files in {wanted.folder}; failed: {', '.join(failed) or 'none'}")
    sys.exit(bool(failed))


def _models(folder: Path) -> list[Path]:
    """What somebody may scan by itself: not logs, word lists, and weights that another file describes."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.stat().st_size)
    return [path for path in found if path.suffix not in BESIDE and path.name != TARGETS]


def _writers(with_code: bool) -> dict[str, Writer]:
    from torchvision_beside_cpu import make_torchvision_importable  # of the tests

    make_torchvision_importable()
    from scanners import array_writers, exchange_writers, science_writers, torch_writers, training_writers

    if with_code:
        return torch_writers.WITH_CODE | training_writers.WITH_CODE
    modules = (torch_writers, array_writers, exchange_writers, science_writers, training_writers)
    return {name: writer for module in modules for name, writer in module.WRITERS.items()}


def _written(name: str, writer: Writer, folder: Path) -> bool:
    (folder / name).mkdir(parents=True, exist_ok=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            writer(folder / name)
    except Exception:  # noqa: BLE001 - a package that is missing or new must not keep the others from writing
        print(f"{name}:", file=sys.stderr)
        traceback.print_exc()
        return False
    return True


if __name__ == "__main__":
    main()
