"""What benchmarks share: contestants that take turns, processes of their own, pages of results."""

from __future__ import annotations

import argparse
import ctypes
import gc
import multiprocessing
import os
import platform
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

Contestants = dict[str, Callable[[], Any]]
Figures = tuple[dict[str, float], dict[str, float]]  # seconds, and MiB by which the peak grew


def take_turns(contestants: Contestants, rounds: int) -> dict[str, float]:
    """Median seconds of each, after one round that does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(rounds + 1):
        for name, run in contestants.items():
            gc.collect()
            began = time.perf_counter()
            run()
            if turn:
                seconds[name].append(time.perf_counter() - began)
    return {name: statistics.median(values) for name, values in seconds.items()}


def peak_mib() -> float:
    """The most memory this process ever had, or has had since it was last forgotten."""
    status = Path("/proc/self/status")
    if status.exists():  # what `getrusage` says may be the peak of the process that started this one
        lines = status.read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def forget_peak() -> float:
    """Let the peak be what the process needs now, and say how much that is."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what was freed would be used again, and add nothing to the peak
    Path("/proc/self/clear_refs").write_text("5")
    return peak_mib()


class Meanwhile:
    """What others have had of the machine's processors since it was made."""

    def __init__(self) -> None:
        self._began, self._spent, self._own = time.monotonic(), _spent_seconds(), _own_seconds()

    def share(self) -> float | None:
        """0 is nothing, 1 all of all processors; None where the system does not tell.

        Processes that this one has started count as its own when they have ended.
        """
        spent = _spent_seconds()
        if spent is None or self._spent is None:
            return None
        others = spent - self._spent - (_own_seconds() - self._own)
        return max(0.0, others / (time.monotonic() - self._began) / (os.cpu_count() or 1))


def _spent_seconds() -> float | None:
    """What all processors have worked since the system was started, or were kept from it by other systems."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return None
    user, nice, system, _idle, _waiting, *interrupts_and_stolen = map(int, stat.read_text().split()[1:9])
    return (user + nice + system + sum(interrupts_and_stolen)) / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    """What this process has worked, and those that it has started and seen end."""
    return sum(os.times()[:4])


def in_own_process(work: Callable[..., Any], *args: Any) -> Any:
    """The work's result, from a process that does nothing else."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(work, *args).result()


def versions(*names: str) -> str:
    """What the figures were measured with."""
    found = ", ".join(f"{name} {version(name)}" for name in names)
    return f"Python {platform.python_version()}, {found}, {os.cpu_count()} CPU cores"


def machine() -> dict[str, str | int]:
    """What the figures were measured on."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": names[0] if names else platform.processor(),
        "cores": os.cpu_count() or 1,
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "python": platform.python_version(),
    }


def write_page(page: Callable[[int], Iterator[str]], purpose: str) -> None:
    """Print the page line by line as it comes into being, and write it where the user wants it."""
    parser = argparse.ArgumentParser(description=purpose.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("-o", "--output", type=Path, help="write the page here as well")
    options = parser.parse_args()
    lines = []
    for line in page(3 if options.quick else 7):
        print(line, flush=True)
        lines.append(line)
    if options.output:
        options.output.write_text("\n".join(lines) + "\n", encoding="utf-8")
