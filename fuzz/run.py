"""Reads mutated files of every format, and keeps those that break a rule.

python fuzz/run.py --seconds 60                        each format for a minute
python fuzz/run.py --format gguf --seed 5 --seconds 60
python fuzz/run.py --format gguf --replay fuzz/failures/gguf-0123456789ab.bin
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

ROOT = Path(__file__).parents[1]
sys.path[:0] = [each for each in (str(ROOT), str(ROOT / "tests/support")) if each not in sys.path]
sys.dont_write_bytecode = True  # nothing may be written while a file is read

from fuzz.mutations import mutated  # noqa: E402
from fuzz.seeds import seeds  # noqa: E402
from fuzz.targets import TARGETS, Target, Trouble, attempt, prepared  # noqa: E402

FAILURES = ROOT / "fuzz" / "failures"


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    chosen = [TARGETS[name] for name in options.format or TARGETS]
    if options.replay is not None:
        return _replay(chosen[0], options.replay)
    made = seeds([target.name for target in chosen])
    broken = 0
    for target in chosen:
        broken += fuzz(
            target,
            list(made[target.name].values()),
            seed=options.seed,
            seconds=options.seconds,
            most=options.inputs,
            keep=FAILURES,
        )
    return 1 if broken else 0


def fuzz(
    target: Target, given: Sequence[bytes], *, seed: int, seconds: float, most: int | None = None, keep: Path
) -> int:
    """Read the seeds, then inputs made of them until the time is over; how many bugs were found."""
    places: dict[str, int] = {}
    number = 0
    with prepared(target) as folder:
        for data in given:
            _note(target, data, attempt(target, data, folder=folder, thorough=True), places, keep)
        start = time.monotonic()
        while time.monotonic() - start < seconds and (most is None or number < most):
            data = mutated(Random(f"{seed} {target.name} {number}"), given, target.structured)
            _note(target, data, attempt(target, data, folder=folder, number=number), places, keep)
            number += 1
    _say(f"{target.name}: {len(given)} seeds, {number:,} inputs, {len(places)} bugs")
    for place, times in places.items():
        _say(f"  {times:,} times: {place}")
    return len(places)


def _note(target: Target, data: bytes, trouble: Trouble | None, places: dict[str, int], keep: Path) -> None:
    """Keep the first input of each bug, and say how to see it again."""
    if trouble is None:
        return
    places[trouble.place] = places.get(trouble.place, 0) + 1
    if places[trouble.place] > 1:
        return
    keep.mkdir(exist_ok=True)
    path = keep / f"{target.name}-{hashlib.sha256(data).hexdigest()[:12]}.bin"
    path.write_bytes(data)
    shown = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    _say(f"{target.name}: {trouble.text}\n  python fuzz/run.py --format {target.name} --replay {shown}")


def _replay(target: Target, path: Path) -> int:
    with prepared(target) as folder:
        trouble = attempt(target, path.read_bytes(), folder=folder, thorough=True)
    _say("no rule is broken" if trouble is None else trouble.trace)
    return 0 if trouble is None else 1


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Read mutated files; keep those that break a rule.")
    parser.add_argument(
        "--format", action="append", choices=list(TARGETS), help="repeatable; all, if not given"
    )
    parser.add_argument("--seed", type=int, default=0, help="the same seed makes the same inputs")
    parser.add_argument("--seconds", type=float, default=60, help="for each format")
    parser.add_argument("--inputs", type=int, help="for each format, at most")
    parser.add_argument(
        "--replay", type=Path, metavar="FILE", help="read this file only; name its --format, too"
    )
    options = parser.parse_args(arguments)
    if options.replay is not None and len(options.format or ()) != 1:
        parser.error("--replay needs the --format of the file")
    return options


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
