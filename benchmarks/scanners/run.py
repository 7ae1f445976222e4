"""What scanners say of the files in some folders: how many they flag, and how long they take.

    python benchmarks/scanners/run.py --corpus genuine hostile/code --environments FOLDER [-o page.md]

Each scanner is asked by its own command, once for each file, and answers by its exit code. The folder of
environments has one for each scanner, named as it is: `python -m venv picklescan; picklescan/bin/pip install
picklescan`. One that is missing there is left out, and the page says so.

Some look at the source of packages that a file names, or need a package to open a format. They must have
them, or their answers are about the environment: torch and the packages of `genuine.py` beside modelaudit,
torch and typing_extensions beside fickling (`fickling[torch]`), h5py beside modelscan (`modelscan[h5py]`).
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TARGETS = "targets.txt"  # in a corpus of which not every file is to be scanned by itself
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scanner:
    """How a scanner is called. Its exit codes: 0, those of `flagged`, and any other when it failed."""

    name: str
    arguments: tuple[str, ...]
    flagged: tuple[int, ...] = (1,)
    by_python: bool = False  # the arguments are Python's, not those of a command of its own
    ours: bool = False  # of the environment and the source that this script is run with


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of one file: "flagged", "not flagged" or "failed"."""

    verdict: str
    seconds: float


# Its command takes pickles, and for archives it has a function; both flag what is not "likely safe".
_FICKLING = """
import sys, zipfile
from fickling import scan_file, scan_zip_archive
path = sys.argv[1]
found = list(scan_zip_archive(path).values()) if zipfile.is_zipfile(path) else [scan_file(path)]
sys.exit(2 if not found else 0 if all(each.is_safe for each in found) else 1)
"""
# An error that Python itself reports ends with 1, too, which must not pass for an answer.
_OR_FAILED = (
    "import os, sys, traceback\nsys.excepthook = lambda *e: (traceback.print_exception(*e), os._exit(2))\n"
)

SCANNERS = (
    # Its codes 3 and 4 say that a file is broken or could not be read to its end.
    Scanner(
        name="modelglass",
        arguments=("-m", "modelglass.cli.main", "scan"),
        flagged=(1, 3, 4),
        by_python=True,
        ours=True,
    ),
    Scanner(name="picklescan", arguments=("--path",)),
    Scanner(name="modelscan", arguments=("--path",)),
    Scanner(name="fickling", arguments=("-c", _OR_FAILED + _FICKLING), by_python=True),
    Scanner(name="modelaudit", arguments=("scan", "--no-cache", "--quiet")),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", nargs="+", type=Path, required=True)
    parser.add_argument("--environments", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=[], help="names of scanners")
    parser.add_argument("--patience", type=float, default=60, help="seconds for one file")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--list", type=Path, help="write each file's verdicts there")
    given = parser.parse_args()
    scanners = [scanner for scanner in SCANNERS if not given.only or scanner.name in given.only]
    page, lines = _page(scanners, given.corpus, given.environments, given.patience)
    print(page)
    if given.output:
        given.output.write_text(page)
    if given.list:
        given.list.write_text("".join(f"{line}\n" for line in lines))


def _page(
    scanners: list[Scanner], corpora: list[Path], environments: Path, patience: float
) -> tuple[str, list[str]]:
    rows = ["| corpus | files | scanner | flagged | not flagged | failed | seconds | median |"]
    rows.append("|---|---:|---|---:|---:|---:|---:|---:|")
    lines = []
    for corpus in corpora:
        targets = list(_targets(corpus))
        for scanner in scanners:
            version = _version(scanner, environments)
            if version is None:
                rows.append(f"| {corpus.name} | {len(targets)} | {scanner.name} | not installed | | | | |")
                continue
            answers = {target: _asked(scanner, target, environments, patience) for target in targets}
            rows.append(_row(corpus.name, f"{scanner.name} {version}", list(answers.values())))
            print(rows[-1], file=sys.stderr)
            lines += [f"{scanner.name}\t{each.verdict}\t{target}" for target, each in answers.items()]
    return "\n".join(rows) + "\n", lines


def _row(corpus: str, scanner: str, answers: list[Answer]) -> str:
    count = Counter(answer.verdict for answer in answers)
    seconds = [answer.seconds for answer in answers]
    cells = [corpus, len(answers), scanner, count["flagged"], count["not flagged"], count["failed"]]
    cells += [f"{sum(seconds):.0f}", f"{statistics.median(seconds):.2f}"]
    return f"| {' | '.join(map(str, cells))} |"


def _targets(corpus: Path) -> Iterator[Path]:
    """What is listed in the corpus, or else every file in it."""
    listed = corpus / TARGETS
    if listed.exists():
        yield from (corpus / line for line in listed.read_text().splitlines())
    else:
        yield from (path for path in sorted(corpus.rglob("*")) if path.is_file())


def _python(scanner: Scanner, environments: Path) -> Path:
    return Path(sys.executable) if scanner.ours else environments / scanner.name / "bin" / "python"


def _version(scanner: Scanner, environments: Path) -> str | None:
    python = _python(scanner, environments)
    if not python.exists():
        return None
    asking = f"from importlib.metadata import version; print(version({scanner.name!r}))"
    answer = subprocess.run([python, "-c", asking], capture_output=True, text=True, check=False)
    return answer.stdout.strip() or None


def _asked(scanner: Scanner, target: Path, environments: Path, patience: float) -> Answer:
    """One file, in a process with an empty folder of its own to write to."""
    python = _python(scanner, environments)
    command = python if scanner.by_python else python.with_name(scanner.name)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        path = str(ROOT / "src") if scanner.ours else ""
        environment = os.environ | {"HOME": folder, "NO_ANALYTICS": "1", "PYTHONPATH": path}
        try:
            done = subprocess.run(
                [str(command), *scanner.arguments, str(target.resolve())],
                capture_output=True,
                timeout=patience,
                cwd=folder,
                env=environment,
                check=False,
            )
            code = done.returncode
        except subprocess.TimeoutExpired:
            code = -1
    verdict = "not flagged" if code == 0 else "flagged" if code in scanner.flagged else "failed"
    return Answer(verdict=verdict, seconds=time.perf_counter() - began)


if __name__ == "__main__":
    main()
