"""Memory over a run in a terminal, drawn with characters that fill eighths of a cell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, groupby, pairwise
from typing import TYPE_CHECKING, NamedTuple

from modelglass.page.units import size
from modelglass.renderers._terminal import CYAN, DIM, YELLOW, Paint

if TYPE_CHECKING:
    from modelglass.report.memory import Memory, Moment

ROWS = 8
_UP = " ▁▂▃▄▅▆▇█"
_ACROSS = " ▏▎▍▌▋▊▉█"
_FEWEST_CELLS = 10
_LIFTED = 2  # the chart starts at the lowest moment when even that is more than the peak divided by this


class Band(NamedTuple):
    """Some of the categories, drawn as one, and the character that a whole cell of it is filled with."""

    categories: slice
    name: str
    fill: str
    style: str


# From the bottom; together they take the categories in their order.
BANDS = (
    Band(slice(0, 3), "base", "░", DIM),
    Band(slice(3, 5), "gradients, optimizer state", "▒", YELLOW),
    Band(slice(5, 8), "activations, temporaries, scratch", "█", CYAN),
)


class Stretch(NamedTuple):
    """Neighbours that belong together, from `first` up to but without `after`."""

    name: str
    first: int
    after: int


def timeline(memory: Memory, width: int, paint: Paint) -> str:
    """What is held while each kernel runs: the peak marked above, phases below, then what is drawn how."""
    heights = [moment.nbytes for moment in memory.timeline]
    lowest, peak = min(heights), max(heights)
    floor = lowest if peak > lowest > peak // _LIFTED else 0
    labels = [size(peak), *[""] * (ROWS - 2), size(floor)]
    gutter = max(map(len, labels)) + 2
    cells = max(_FEWEST_CELLS, width - gutter)
    shown = [memory.timeline[index] for index in highest(heights, cells)]
    lines = [" " * gutter + paint(_mark(memory, cells), "1")]
    for label, row in zip(labels, _chart(shown, floor, peak), strict=True):
        axis = f"{label:>{gutter - 2}} {'┤' if label else '│'}"
        text = "".join(paint(text, BANDS[band].style) for band, text in row)
        lines.append(paint(axis, DIM) + text)
    lines.append(" " * gutter + paint(_rail(phases(memory.timeline), cells), DIM))
    return "\n".join(line.rstrip() for line in [*lines, "", *_legend(shown, floor, width, paint)])


def highest(heights: Sequence[int], cells: int) -> list[int]:
    """For each cell of a line, which of the heights that fall into it is the highest.

    Where there are fewer heights than cells, each takes several of them.
    """
    number = len(heights)
    bounds = [cell * number // cells for cell in range(cells + 1)] if number else []
    return [
        max(range(first, max(first + 1, after)), key=heights.__getitem__) for first, after in pairwise(bounds)
    ]


def phases(moments: Iterable[Moment]) -> list[Stretch]:
    """The phases in order; what backward runs again belongs to it."""
    return stretches("backward" if moment.phase == "recompute" else moment.phase for moment in moments)


def stretches(names: Iterable[str]) -> list[Stretch]:
    """Equal neighbours, put together."""
    found, place = [], 0
    for name, group in groupby(names):
        first, place = place, place + sum(1 for _ in group)
        found.append(Stretch(name, first, place))
    return found


def bar(part: int, whole: int, cells: int) -> str:
    """A part as a bar of at most so many cells; what is there at all can be seen."""
    eighths = -(-part * 8 * cells // whole) if whole else 0
    full, rest = divmod(eighths, 8)
    return (_ACROSS[8] * full + _ACROSS[rest]).rstrip()


def _chart(moments: Sequence[Moment], floor: int, peak: int) -> Iterator[list[tuple[int, str]]]:
    """The rows from the top, as texts of neighbouring cells that are in the same band."""
    columns = [list(accumulate(sum(moment.held[band.categories]) for band in BANDS)) for moment in moments]
    step = (peak - floor) / ROWS
    for row in reversed(range(ROWS)):
        cells = [_cell(tops, floor + row * step, step) for tops in columns]
        yield [
            (band, "".join(text for _, text in group)) for band, group in groupby(cells, lambda each: each[0])
        ]


def _cell(tops: Sequence[int], bottom: float, step: float) -> tuple[int, str]:
    """The band in the middle of what a cell shows, and the character for it."""
    part = min(max((tops[-1] - bottom) / step, 0.0), 1.0) if step else 0.0
    middle = bottom + part * step / 2
    band = next((index for index, top in enumerate(tops) if middle <= top), len(tops) - 1)
    eighths = round(8 * part)
    if not eighths:
        return -1, " "  # in no band, so that nothing is painted
    return band, BANDS[band].fill if eighths == 8 else _UP[eighths]


def _mark(memory: Memory, cells: int) -> str:
    """An arrow at the peak, the figure on the side that has more room."""
    if memory.at is None:
        return ""
    place = ((memory.at + 1) * cells - 1) // len(memory.timeline)
    text = f"peak {size(memory.peak_nbytes)}"
    if place >= len(text) + 1:
        return f"{text} ▼".rjust(place + 1)
    return " " * place + f"▼ {text}"


def _rail(parts: Sequence[Stretch], cells: int) -> str:
    """Where each stretch begins, named where there is room; those shorter than a cell are left out."""
    line = ""
    for name, first, after in parts:
        width = after * cells // parts[-1].after - first * cells // parts[-1].after
        label = name if len(name) + 2 <= width else name[:1] if width > 2 else ""
        line += f"╵{label}".ljust(width)[:width]
    return line.rstrip()


def _legend(shown: Sequence[Moment], floor: int, width: int, paint: Paint) -> Iterator[str]:
    """What is drawn how: on one line if that can be, else on a line each."""
    ends = [band.categories.stop for band in BANDS]
    used = [
        band
        for band, end in zip(BANDS, ends, strict=True)
        if any(sum(moment.held[band.categories]) and sum(moment.held[:end]) > floor for moment in shown)
    ]
    texts = [f"{band.fill} {band.name}" for band in used]
    painted = [f"{paint(band.fill, band.style)} {band.name}" for band in used]
    if floor:
        texts.append(f"drawn from {size(floor)} up")
        painted.append(texts[-1])
    if sum(map(len, texts)) + 3 * (len(texts) - 1) <= width:
        yield "   ".join(painted)
    else:
        yield from painted
