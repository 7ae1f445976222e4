"""Inspects every architecture that timm and transformers build, and checks what modelglass says of it.

python zoo/run.py                                  all of them, or those that an earlier run has left
python zoo/run.py --only timm:resnet18 causal:*    some of them
python zoo/run.py --again                          those alone that failed a check
python zoo/run.py --fresh                          from the beginning

Every finding is kept at once in a results file, one a line: a run that was ended goes on where it was. What
other code has found is looked for anew. The page and its figures are written when all are done.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from random import Random

ROOT = Path(__file__).parents[1]
sys.path[:0] = [
    each
    for each in (str(ROOT), str(ROOT / "tests/support"), str(ROOT / "benchmarks"))
    if each not in sys.path
]

from zoo.page import write_page  # noqa: E402
from zoo.pool import looked_at_by_workers  # noqa: E402
from zoo.results import Results  # noqa: E402

RESULTS = ROOT / "zoo" / "results.jsonl"


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    from zoo.architectures import every

    names = list(every())
    results = Results.of(options.results, names, fresh=options.fresh)
    chosen = [name for name in names if not options.only or any(fnmatch(name, each) for each in options.only)]
    left = [name for name in chosen if not results.is_known(name, again=options.again)]
    if len(left) < len(chosen):
        print(f"{len(chosen) - len(left)} of {len(chosen)} are known from {options.results}", file=sys.stderr)
    Random(0).shuffle(left)  # families are told apart early, and the time that is left is told right
    try:
        looked_at_by_workers(left, results.keep, jobs=options.jobs, limit=options.limit)
    except KeyboardInterrupt:
        print(f"\nstopped; the same command goes on from {options.results}", file=sys.stderr)
        return 130
    rows = [results.rows[name] for name in chosen]
    whole = len(chosen) == len(names) and all(map(results.is_current, names))
    return write_page(rows, options.output, partly=not whole)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", help="names of architectures; * matches anything"
    )
    parser.add_argument("--again", action="store_true", help="look again at those that failed a check")
    parser.add_argument("--fresh", action="store_true", help="forget what earlier runs have found")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time")
    parser.add_argument("--limit", type=float, default=600, help="seconds for one architecture (600)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="what was found, one a line")
    parser.add_argument("-o", "--output", type=Path, help="folder for zoo.md and zoo.json; without it, print")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
