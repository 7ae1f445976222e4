"""Ratios of what looking into files takes, and the pages that show them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple


class Cost(NamedTuple):
    """Median seconds of a call, and the median of its process's peaks."""

    seconds: float
    peak_mib: float


class Ratio(NamedTuple):
    """One line of the table of ratios: how many times as fast, as long, or as much memory at the peak."""

    what: str
    beside: str
    kind: str
    value: float
    goal: float | None = None

    @property
    def shown(self) -> str:
        if self.kind == "memory":
            return f"{100 * self.value:.0f} % of the peak memory"
        if self.kind == "as long":
            return f"{self.value:.2f} x as long"
        return f"{self.value:.2g} x as fast" if self.value < 10 else f"{self.value:.0f} x as fast"

    @property
    def aim(self) -> str:
        if self.goal is None:
            return ""
        return f"{'at least' if self.kind == 'as fast' else 'at most'} {self.goal:g} x"

    @property
    def verdict(self) -> str:
        if self.goal is None:
            return ""
        met = self.value >= self.goal if self.kind == "as fast" else self.value <= self.goal
        return "met" if met else "**missed**"


def faster(what: str, ours: float, beside: str, theirs: float, at_least: float | None = None) -> Ratio:
    return Ratio(what, beside, "as fast", theirs / ours, at_least)


def longer(what: str, ours: float, beside: str, theirs: float, at_most: float | None = None) -> Ratio:
    return Ratio(what, beside, "as long", ours / theirs, at_most)


def smaller(what: str, ours: Cost, beside: str, theirs: Cost) -> Ratio:
    return Ratio(what, beside, "memory", ours.peak_mib / theirs.peak_mib)


# Pages


def files_page(found: Mapping[str, Any]) -> Iterator[str]:
    """The ratios as a section of the page, a line at a time."""
    yield "## Files"
    yield ""
    yield f"Each ratio is of medians over {found['rounds']} rounds or more, in which contestants take turns"
    yield "after a round that does not count. [In seconds](benchmarks-files.md)."
    yield ""
    yield from ratios_table(found)


def files_details(found: Mapping[str, Any]) -> Iterator[str]:
    """What the ratios were made from, as lines of a page of its own."""
    yield "# Benchmarks: files"
    yield ""
    yield "Printed by `make bench`; machine and versions are those of [all benchmarks](benchmarks.md)."
    yield ""
    yield from ratios_table(found)
    yield ""
    yield "Commands are timed as whole processes, interpreter and imports included; calls inside fresh"
    yield "processes, imports excluded, apart from what modelglass imports only when called. picklescan is"
    yield "called by its command, as its documentation says, and by the function behind it. Statistics are"
    yield "measured twice: in a process that has computed them before, and as the first call, which loads"
    yield "numba and its loops. modelglass gives moments, extremes, tallies, quantiles and a histogram; the"
    yield "others give `mean`, `std`, `min` and `max`, with a whole file (safetensors) or a whole"
    yield "tensor (gguf) in memory."
    yield ""
    yield "## In seconds"
    yield ""
    yield "For orientation only: they differ from machine to machine. The peak is that of the whole process."
    yield ""
    yield "| what | seconds | peak | bytes of the file |"
    yield "|---|---:|---:|---:|"
    for cost in found["costs"]:
        seconds, peak, nbytes = cost["seconds"], cost["peak_mib"], cost["nbytes"]
        memory = "" if peak is None else f"{peak:.0f} MiB"
        speed = "" if nbytes is None else f"{nbytes / seconds / 1e9:.2f} GB/s"
        yield f"| {cost['what']} | {seconds:.3f} | {memory} | {speed} |"


def ratios_table(found: Mapping[str, Any]) -> Iterator[str]:
    if found["tiny"]:
        yield "**These files are tiny, to try the script out: goals are for files of full size.**"
        yield ""
    yield "| what | beside | ratio | goal | |"
    yield "|---|---|---:|---:|---|"
    for each in (Ratio(**ratio) for ratio in found["ratios"]):
        yield f"| {each.what} | {each.beside} | {each.shown} | {each.aim} | {each.verdict} |"
