"""Every benchmark in one run: results, pages, pictures and the README's table.

    python benchmarks/run.py                             # everything, an hour or two
    python benchmarks/run.py --only speed --only files   # these alone, beside what is known of the others
    python benchmarks/run.py --quick                     # tiny sizes, into build/benchmarks
    python benchmarks/run.py --pages                     # measure nothing, make the pages from the results

Results and pages are written together, after each benchmark, so a run that is stopped loses no more than the
one that it was at.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import traceback
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from errors_said import said
from pages import RESULTS, ROOT, ZOO, made, read
from sections import PACKAGES, SCRIPTS, SECTIONS, named
from side_by_side import Meanwhile, machine

QUICK = ROOT / "build" / "benchmarks"
INTERRUPTED = 130


def main() -> int:
    options = _options()
    into = options.into or (QUICK if options.quick else ROOT)
    try:
        if options.pages:
            write(into, dict(read(into / RESULTS)))
            return 0
        return measure(options.only or [*SECTIONS, *SCRIPTS], into, quick=options.quick, partly=options.only)
    except KeyboardInterrupt:
        print("stopped; what was measured before is written", file=sys.stderr)
        return INTERRUPTED


def measure(names: list[str], into: Path, *, quick: bool, partly: bool) -> int:
    """Run these benchmarks; 1 where one of them failed."""
    known = read(into / RESULTS)
    results: dict[str, Any] = {"machine": machine(), "versions": _versions(), "quick": quick}
    if partly and all(known.get(key) == value for key, value in results.items()):
        results = dict(known)
    elif known and partly:
        print(
            f"{into / RESULTS} was measured on another machine, with other versions or other sizes\n"
            "  hint: run all benchmarks, or write elsewhere with --into",
            file=sys.stderr,
        )
        return 3
    results["one_run"] = not partly
    results["other_work"] = dict(results.get("other_work", {}))
    failed = []
    for number, name in enumerate(names, 1):
        print(f"[{number}/{len(names)}] {name}", file=sys.stderr, flush=True)
        began, meanwhile = time.perf_counter(), Meanwhile()
        if name in SECTIONS:
            results[name] = _section(name, quick)
        good = _script(name, into, quick) if name in SCRIPTS else "failed" not in results[name]
        share = meanwhile.share()
        results["other_work"][name] = None if share is None else round(share, 3)
        write(into, results)
        print(f"  {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
        failed += [] if good else [name]
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def write(into: Path, results: dict[str, Any]) -> None:
    """Results, and everything that is made from them."""
    order = ["machine", "versions", "quick", "one_run", "other_work", *SECTIONS]
    ordered = {name: results[name] for name in order if name in results}
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    texts = {RESULTS: json.dumps(ordered, indent=1, ensure_ascii=False) + "\n"}
    texts |= made(ordered, read(ROOT / ZOO), readme)
    for path, text in texts.items():
        _replace(into / path, text)


def _replace(path: Path, text: str) -> None:
    """The whole file or the old one, never a half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".new")
    beside.write_text(text, encoding="utf-8")
    os.replace(beside, path)


def _section(name: str, quick: bool) -> Any:
    try:
        return named(SECTIONS[name].measure)(quick=quick)
    except Exception as error:  # noqa: BLE001 (one benchmark that fails must not cost the others)
        traceback.print_exc()
        return {"failed": said(error)}


def _script(name: str, into: Path, quick: bool) -> bool:
    """Whether a script has written its page."""
    script = SCRIPTS[name]
    with TemporaryDirectory() as folder:
        page = Path(folder, script.page)
        options = [*(script.quick if quick else ()), "-o", str(page)]
        command = [sys.executable, str(ROOT / "benchmarks" / script.file), *options]
        done = subprocess.run(command, stdout=sys.stderr, check=False)
        if page.exists():
            _replace(into / "docs" / script.page, page.read_text(encoding="utf-8"))
        return done.returncode == 0 and page.exists()


def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("modelglass", *PACKAGES)}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", choices=[*SECTIONS, *SCRIPTS], help="this one alone")
    parser.add_argument("--quick", action="store_true", help="tiny sizes and few rounds, to try it out")
    parser.add_argument("--pages", action="store_true", help="make the pages from the results there are")
    parser.add_argument("--into", type=Path, help="the folder that gets docs/ and README.md")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
