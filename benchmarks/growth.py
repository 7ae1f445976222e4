"""How time and memory grow with layers, operators, tensors and bytes.

    python benchmarks/run.py --only growth      # into the results and pages
    python benchmarks/growth.py --quick         # tiny sizes, on the screen
    python benchmarks/growth.py ops branches    # these alone

Each size has processes of its own, which do everything once, as a user does: torch remembers what it has
seen, and a second call is faster. Time is that of the processor, which other work on the machine changes
least.
"""

from __future__ import annotations

import math
import os
import statistics
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from growing import DRAWN, FLOW, LISTED, SUBJECTS, Call
from line_plots import Line, panels
from side_by_side import forget_peak, in_own_process, peak_mib

PROCESSES, QUICK_PROCESSES = 2, 1  # of each size
WORST = 1.15  # an exponent above it is more than linear
DECADE = 10
LEAST_POINTS = 3
LEAST_SECONDS, LEAST_MIB = 0.02, 8.0  # below, the clock and the allocator say more than the work
PICTURES = Path("pictures")

# Why a line grows faster than its subject, where it does: because there is more to do,
MORE_WORK = {
    ("skips", DRAWN): "Drawn as SVG, every skip connection is a line beside all layers that it passes, and "
    "each layer makes room for it: as many places as levels times layers. Real networks of this kind have "
    "four to six levels. As text, Mermaid and DOT nothing has to be placed.",
}
# or because the same takes longer. Tests count what is to be done.
SAME_WORK = {
    (name, what): f"For {what}, as many functions are called for each of the {SUBJECTS[name].unit}, however "
    "many there are, and a test counts them: the work is in proportion. Each call takes longer, most likely "
    "because what it looks at no longer fits into the processor's caches."
    for name, what in (("ops", FLOW), ("ops", DRAWN), ("branches", DRAWN), ("tensors", LISTED))
}
# or because of how memory is counted.
ROOM_AT_HAND = {
    ("tensors", "`mg.inspect`, safetensors"): "A small file finds room that the process has already, which "
    "does not count as added. Beyond that each tensor takes about as much as the one before, until a table "
    "is full and grows to twice its size.",
}
EXPLAINED = MORE_WORK | SAME_WORK | ROOM_AT_HAND

Section = dict[str, Any]
Point = dict[str, float]


# Measuring


def growth(*, quick: bool = False, only: Iterable[str] = ()) -> dict[str, Any]:
    """Measured points of every line, for each subject."""
    chosen = list(only) or list(SUBJECTS)
    return {"sections": [_section(name, quick) for name in chosen]}


def _section(name: str, quick: bool) -> Section:
    subject = SUBJECTS[name]
    lines: dict[str, list[Point]] = {}
    for size in subject.quick if quick else subject.sizes:
        print(f"growth: {size:,} {subject.unit} ({name})", file=sys.stderr, flush=True)
        rounds = [in_own_process(points, name, size) for _ in range(QUICK_PROCESSES if quick else PROCESSES)]
        for what in rounds[0]:
            lines.setdefault(what, []).append({"size": size, **_least([each[what] for each in rounds])})
    return {
        "name": name,
        "title": subject.title,
        "unit": subject.unit,
        "story": subject.story,
        "lines": [{"what": what, "points": found} for what, found in lines.items()],
    }


def points(name: str, size: int) -> dict[str, Point]:
    """Seconds and added memory of everything done with a subject of one size, once, in this process."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    subject = SUBJECTS[name]
    with TemporaryDirectory() as folder:
        for _, call in subject.calls(subject.quick[0], Path(folder)):
            call()  # what is imported and compiled once does not count
        return {what: _point(call) for what, call in subject.calls(size, Path(folder))}


def _point(call: Call) -> Point:
    before, began = forget_peak(), time.process_time()
    result = call()
    seconds, added = time.process_time() - began, peak_mib() - before
    del result  # its end does not count
    return {"seconds": round(seconds, 6), "added_mib": round(max(0.0, added), 1)}


def _least(rounds: list[Point]) -> Point:
    return {figure: min(each[figure] for each in rounds) for figure in rounds[0]}


# Results


def exponent(points: list[Point], figure: str, least: float) -> float | None:
    """By which power a figure grows over the last decade of sizes; None where too little is known to tell."""
    largest = points[-1]["size"]
    known = [each for each in points if each[figure] >= least and each["size"] * DECADE >= largest]
    if len(known) < LEAST_POINTS or known[-1]["size"] != largest:
        return None
    xs = [math.log(each["size"]) for each in known]
    ys = [math.log(each[figure]) for each in known]
    return statistics.linear_regression(xs, ys).slope


def growth_page(results: dict[str, Any]) -> Iterator[str]:
    """The section of the page, a line at a time."""
    yield "## Growth"
    yield ""
    yield "How time and memory grow with the size of what is looked at. The exponent is the slope of a"
    yield "straight line through the measured points of the last decade, both axes logarithmic: 1 is linear,"
    yield f"0 is constant. More than {WORST} is more than linear, and stands out. Seconds are those of the"
    yield "processor in a first call, memory is by how much the process's peak grew, the least of"
    yield f"{PROCESSES} processes each. Dotted lines in the pictures are linear."
    for section in results["sections"]:
        yield ""
        yield from _section_page(section)


def _section_page(section: Section) -> Iterator[str]:
    unit, lines = section["unit"], section["lines"]
    last = lines[0]["points"][-1]["size"]
    yield f"### {section['title']}"
    yield ""
    yield section["story"]
    yield ""
    yield f"![Seconds and memory against {unit}]({PICTURES / picture_name(section)})"
    yield ""
    yield f"| what | seconds, {_count(last, unit)} | exponent | memory | exponent |"
    yield "|---|---:|---:|---:|---:|"
    for line in lines:
        point = line["points"][-1]
        slopes = [_slope(line, *figure) for figure in FIGURES]
        seconds, memory = f"{point['seconds']:.3f}", f"{point['added_mib']:,.0f} MiB"
        yield f"| {line['what']} | {seconds} | {slopes[0]} | {memory} | {slopes[1]} |"
    for what in more_than_linear(section):
        yield ""
        yield EXPLAINED.get((section["name"], what), f"Nobody has explained yet why {what} grows faster.")


def more_than_linear(section: Section) -> list[str]:
    """What takes more than in proportion to its subject, in time or in memory."""
    return [
        line["what"]
        for line in section["lines"]
        if any((exponent(line["points"], *figure) or 0) > WORST for figure in FIGURES)
    ]


FIGURES = (("seconds", LEAST_SECONDS), ("added_mib", LEAST_MIB))


def _slope(line: dict[str, Any], figure: str, least: float) -> str:
    found = exponent(line["points"], figure, least)
    if found is None:
        return "too small to tell" if figure == "seconds" else ""
    return f"**{found:.2f}**" if found > WORST else f"{found:.2f}"


def _count(size: int, unit: str) -> str:
    return f"{size_text(size, unit)} {unit}" if unit != "bytes" else size_text(size, unit)


def size_text(size: float, unit: str) -> str:
    """A size as the axis and the table show it."""
    if unit != "bytes":
        return f"{size:,.0f}"
    for name, factor in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= factor:
            return f"{size / factor:,.0f} {name}"
    return f"{size:,.0f} B"


def picture_name(section: Section) -> str:
    return f"growth-{section['name'].replace(' ', '-')}.svg"


def growth_pictures(results: dict[str, Any]) -> dict[str, str]:
    """The plots as SVG, by the names of their files under `docs/pictures/`."""
    return {picture_name(section): _picture(section) for section in results["sections"]}


def _picture(section: Section) -> str:
    unit = section["unit"]

    def lines(figure: str, least: float) -> list[Line]:
        return [
            Line(
                line["what"],
                [(each["size"], each[figure]) for each in line["points"] if each[figure] >= least],
            )
            for line in section["lines"]
        ]

    return panels(
        title=section["title"],
        panels={"seconds": lines("seconds", 0.001), "MiB added": lines("added_mib", 1.0)},
        unit=unit,
        size_text=size_text,
    )


def main() -> None:
    """Measure what was asked for, and print the page."""
    asked = [each for each in sys.argv[1:] if not each.startswith("-")]
    unknown = set(asked) - set(SUBJECTS)
    if unknown:
        sys.exit(f"there is no {', '.join(sorted(unknown))}: subjects are {', '.join(SUBJECTS)}")
    results = growth(quick="--quick" in sys.argv, only=asked)
    print("\n".join(growth_page(results)))


if __name__ == "__main__":
    main()
