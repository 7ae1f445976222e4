"""Writes the hostile and damaged files of the tests, for scanners to look at.

    python benchmarks/scanners/hostile.py FOLDER

`FOLDER/code` gets what runs code or reaches outside of itself when it is loaded, `FOLDER/damaged` what breaks
the rules of its format or takes too much time or memory. A list of targets is in each: some are folders. The
payloads would create a file named `canary` beside themselves, and do nothing else.
"""

from __future__ import annotations

import argparse
import stat
import sys
from pathlib import Path

HERE = Path(__file__).resolve()
sys.path[:1] = [str(HERE.parents[2] / "tests/support"), str(HERE.parents[1]), str(HERE.parents[2] / "src")]

from hostile.case import Case  # noqa: E402 - of the tests, and not this file
from hostile.cases import CASES  # noqa: E402
from scanners.run import TARGETS  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder.resolve()
    written: dict[str, list[str]] = {"code": [], "damaged": []}
    for case in CASES:
        kind = _kind(case)
        if kind is None:
            continue
        place = folder / kind / case.id
        place.mkdir(parents=True, exist_ok=True)
        target = case.build(place)
        if _is_ordinary(target) and target.is_relative_to(place):
            written[kind].append(str(target.relative_to(folder / kind)))
    for kind, targets in written.items():
        (folder / kind / TARGETS).write_text("\n".join(targets) + "\n")
        print(f"{len(targets)} targets in {folder / kind}")


def _kind(case: Case) -> str | None:
    """Which corpus a case belongs to; None for those that are meant to be found clean."""
    if 0 in case.exit_codes:
        return None
    return "code" if case.exit_codes == {1} else "damaged"


def _is_ordinary(target: Path) -> bool:
    """Whether it is a file or folder: devices and links in circles are nothing to compare scanners by."""
    try:
        mode = target.stat().st_mode
    except OSError:
        return False
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


if __name__ == "__main__":
    main()
