"""Lines on logarithmic axes as SVG, readable on light and dark pages; the same points give the same bytes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

WIDTH, PANEL, HEIGHT = 960, 440, 300  # of the picture, of a panel's step, of a panel's plot
LEFT, TOP, PLOT = 56, 64, 360
ROW, COLUMNS = 20, 3  # of the legend
LEAST_SPAN = 1.2  # decades; lines that are nearly level look level
COLOURS = (  # on a light page, then on a dark one
    ("#0369a1", "#38bdf8"),
    ("#c2410c", "#fb923c"),
    ("#15803d", "#4ade80"),
    ("#7e22ce", "#c084fc"),
    ("#be123c", "#fb7185"),
    ("#854d0e", "#facc15"),
    ("#0f766e", "#2dd4bf"),
    ("#9d174d", "#f472b6"),
    ("#475569", "#cbd5e1"),
    ("#4338ca", "#818cf8"),
    ("#365314", "#a3e635"),
)
DASHES = ("", "6 3", "2 3")


class Line(NamedTuple):
    """A name and points; both coordinates are above 0."""

    name: str
    points: Sequence[tuple[float, float]]


class Frame(NamedTuple):
    """Where a panel's numbers are on the page."""

    left: float
    x: tuple[float, float]  # decimal logarithms, least and most
    y: tuple[float, float]

    def place(self, x: float, y: float) -> tuple[float, float]:
        across = (math.log10(x) - self.x[0]) / (self.x[1] - self.x[0])
        up = (math.log10(y) - self.y[0]) / (self.y[1] - self.y[0])
        return round(self.left + PLOT * across, 1), round(TOP + HEIGHT * (1 - up), 1)


def panels(
    *, title: str, panels: dict[str, list[Line]], unit: str, size_text: Callable[[float, str], str]
) -> str:
    """One panel beside the other, a legend below them for both, and dotted lines that are linear."""
    names = list(dict.fromkeys(line.name for lines in panels.values() for line in lines if line.points))
    height = TOP + HEIGHT + 64 + ROW * math.ceil(len(names) / COLUMNS)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" role="img"><title>{escape(title)}</title><style>{_styles()}</style>',
        f'<rect class="page" width="{WIDTH}" height="{height}"/>',
        f'<text class="title" x="20" y="28">{escape(title)}</text>',
    ]
    for index, (label, lines) in enumerate(panels.items()):
        parts += _panel(LEFT + 20 + index * (PANEL + 20), label, lines, names, unit, size_text)
    parts += _legend(names)
    return "\n".join(parts) + "\n</svg>\n"


def _panel(
    left: float,
    label: str,
    lines: list[Line],
    names: list[str],
    unit: str,
    size_text: Callable[[float, str], str],
) -> Iterator[str]:
    known = [line for line in lines if line.points]
    yield f'<text class="axis" x="{left}" y="{TOP - 12}">{escape(label)}</text>'
    if not known:
        yield f'<text class="axis" x="{left}" y="{TOP + 20}">nothing large enough to be seen</text>'
        return
    sizes = sorted({x for line in known for x, _ in line.points})
    values = [y for line in known for _, y in line.points]
    frame = Frame(left, _span(sizes), _span(values))
    yield from _grid(frame, sizes, unit, size_text)
    yield from _linear(frame)
    for line in known:
        yield _drawn(frame, line, names.index(line.name))


def _span(values: Sequence[float]) -> tuple[float, float]:
    low, high = math.log10(min(values)), math.log10(max(values))
    wanted = max(LEAST_SPAN, (high - low) * 1.08)
    middle = (low + high) / 2
    return middle - wanted / 2, middle + wanted / 2


def _grid(
    frame: Frame, sizes: Sequence[float], unit: str, size_text: Callable[[float, str], str]
) -> Iterator[str]:
    bottom = TOP + HEIGHT
    for power in range(math.ceil(frame.y[0]), math.floor(frame.y[1]) + 1):
        _, y = frame.place(10 ** frame.x[0], 10.0**power)
        yield f'<path class="grid" d="M{frame.left} {y}H{frame.left + PLOT}"/>'
        text = f"{10**power:,}" if power >= 0 else f"{10.0**power:.{-power}f}"
        yield f'<text class="tick end" x="{frame.left - 6}" y="{y + 4}">{text}</text>'
    step = math.ceil(len(sizes) / 6)
    for size in sizes[::-1][::step]:
        x, _ = frame.place(size, 10 ** frame.y[0])
        yield f'<path class="grid" d="M{x} {TOP}V{bottom}"/>'
        yield f'<text class="tick middle" x="{x}" y="{bottom + 16}">{size_text(size, unit)}</text>'
    yield f'<rect class="frame" x="{frame.left}" y="{TOP}" width="{PLOT}" height="{HEIGHT}"/>'
    yield f'<text class="tick middle" x="{frame.left + PLOT / 2}" y="{bottom + 34}">{escape(unit)}</text>'


def _linear(frame: Frame) -> Iterator[str]:
    """Dotted lines of slope 1, a decade apart, as far as they lie inside."""
    (left, right), (low, high) = frame.x, frame.y
    for offset in range(math.ceil(low - right), math.floor(high - left) + 1):
        start, end = max(left, low - offset), min(right, high - offset)
        if end - start > 0.05:
            a, b = frame.place(10**start, 10 ** (start + offset)), frame.place(10**end, 10 ** (end + offset))
            yield f'<path class="linear" d="M{a[0]} {a[1]}L{b[0]} {b[1]}"/>'


def _drawn(frame: Frame, line: Line, index: int) -> str:
    places = [frame.place(x, y) for x, y in line.points]
    path = "L".join(f"{x} {y}" for x, y in places)
    dots = "".join(f'<circle cx="{x}" cy="{y}" r="2.6"/>' for x, y in places)
    return f'<g class="c{index % len(COLOURS)}"><path class="line"{_dash(index)} d="M{path}"/>{dots}</g>'


def _dash(index: int) -> str:
    dash = DASHES[index // len(COLOURS) % len(DASHES)]
    return f' stroke-dasharray="{dash}"' if dash else ""


def _legend(names: list[str]) -> Iterator[str]:
    rows = math.ceil(len(names) / COLUMNS)
    for index, name in enumerate(names):
        x, y = 20 + index // rows * 310, TOP + HEIGHT + 60 + index % rows * ROW
        sample = f'<path class="line"{_dash(index)} d="M{x} {y}h22"/><circle cx="{x + 11}" cy="{y}" r="2.6"/>'
        text = f'<text class="name" x="{x + 30}" y="{y + 4}">{escape(name.replace("`", ""))}</text>'
        yield f'<g class="c{index % len(COLOURS)}">{sample}</g>{text}'


def _styles() -> str:
    light = [
        "text{font-family:Helvetica,Arial,'Liberation Sans',sans-serif;fill:#0f172a}",
        ".page{fill:#fff}.title{font-size:16px;font-weight:700}.axis{font-size:12px;font-weight:600}",
        ".name{font-size:12px}.tick{font-size:11px;fill:#475569}.end{text-anchor:end}",
        ".middle{text-anchor:middle}.grid{stroke:#e2e8f0}.frame{fill:none;stroke:#94a3b8}",
        ".line{fill:none;stroke-width:1.8}.linear{stroke:#94a3b8;stroke-dasharray:1 4;fill:none}",
    ]
    dark = [
        ".page{fill:#0d1117}text{fill:#e6edf3}.tick{fill:#9aa5b1}.grid{stroke:#21262d}",
        ".frame{stroke:#6e7681}.linear{stroke:#6e7681}",
    ]
    for index, (by_day, by_night) in enumerate(COLOURS):
        light.append(f".c{index} .line{{stroke:{by_day}}}.c{index} circle{{fill:{by_day}}}")
        dark.append(f".c{index} .line{{stroke:{by_night}}}.c{index} circle{{fill:{by_night}}}")
    return "".join(light) + f"@media (prefers-color-scheme:dark){{{''.join(dark)}}}"
