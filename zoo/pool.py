"""Several workers at a time, each with a time limit for one architecture."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]
WORKER = Path(__file__).parent / "worker.py"
MOST_ROWS = 150  # of one process, which then has given its memory back
KILLED = "inspected"  # the check that an architecture fails whose process did not survive it


def looked_at_by_workers(
    names: Sequence[str], keep: Callable[[Row], None], *, jobs: int, limit: float
) -> None:
    """Have every architecture looked at, and each row kept when it is there."""
    waiting, bar, lock = deque(names), _Bar(len(names)), threading.Lock()
    stopped = threading.Event()

    def told(row: Row) -> None:
        with lock:
            keep(row)
            bar.advance(row)

    def serve() -> None:
        while waiting and not stopped.is_set():
            with _Worker(limit) as worker:
                for _ in range(MOST_ROWS):
                    if not waiting or stopped.is_set() or not worker.lives:
                        break
                    told(worker.look_at(waiting.popleft()))

    threads = [threading.Thread(target=serve, daemon=True) for _ in range(min(jobs, len(names)))]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            while thread.is_alive():
                thread.join(0.5)
    finally:
        stopped.set()
        bar.end()


class _Worker:
    """A process that looks at one architecture after the other; it is ended when one takes too long."""

    def __init__(self, limit: float) -> None:
        self.limit, self.lives = limit, True

    def __enter__(self) -> _Worker:
        self.process = subprocess.Popen(
            [sys.executable, str(WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        return self

    def __exit__(self, *_: Any) -> None:
        self.process.kill()
        self.process.communicate()  # which closes its pipes and waits for its end

    def look_at(self, name: str) -> Row:
        late = threading.Timer(self.limit, self.process.kill)
        began = time.monotonic()
        late.start()
        try:
            self.process.stdin.write(name + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            late.cancel()
        if line:
            return dict(json.loads(line))
        self.lives = False
        took = time.monotonic() - began
        why = f"longer than {self.limit:.0f} s" if took >= self.limit else "the process ended"
        return {"name": name, "wrong": {KILLED: why}}


class _Bar:
    """How far it is, what is going on and how long it may take, on one line where there is a terminal."""

    def __init__(self, total: int) -> None:
        self.total, self.done, self.wrong, self.began = total, 0, 0, time.monotonic()

    def advance(self, row: Row) -> None:
        self.done += 1
        self.wrong += bool(row["wrong"])
        left = (time.monotonic() - self.began) / self.done * (self.total - self.done)
        filled = "█" * (30 * self.done // self.total)
        text = (
            f"{filled:░<30} {self.done}/{self.total}, {self.wrong} failed a check, {left / 60:.0f} min left"
        )
        if sys.stderr.isatty():
            print(f"\r{text}  {row['name']:<50.50}", end="", file=sys.stderr, flush=True)
        elif row["wrong"] or self.done % 50 == 0:
            print(f"{text}  {row['name']}  {row['wrong'] or ''}"[:400], file=sys.stderr, flush=True)

    def end(self) -> None:
        if sys.stderr.isatty() and self.done:
            print(file=sys.stderr)
