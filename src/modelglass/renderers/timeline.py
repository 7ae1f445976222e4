"""Memory over a run as a picture: categories stacked, the peak marked, phases above and modules below.

Figures are made directly, without pyplot, so that no backend or open figure of the user is touched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from io import BytesIO
from itertools import accumulate, pairwise
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from modelglass.errors import UsageError
from modelglass.page.sections.memory import known_memory, what_ran, where_text, words
from modelglass.page.units import share, size
from modelglass.page.what_if import sure_text, what_if_text
from modelglass.renderers._escape import shortened, told
from modelglass.renderers._sparkline import Stretch, highest, phases, stretches
from modelglass.renderers.plots import known_format
from modelglass.report import Report
from modelglass.report.memory import CATEGORIES, Memory, Moment

__all__ = ["known_format", "render"]

# Colours that people with any kind of colour vision tell apart (Okabe and Ito's), in the order of the stack.
_COLORS = ("#0072b2", "#56b4e9", "#999999", "#e69f00", "#d55e00", "#009e73", "#cc79a7", "#f0e442")
_PHASE_COLORS = {"forward": "#e3e9ef", "loss": "#8a8f94", "backward": "#cdd5dd", "optimizer": "#e6e0d4"}
_RECOMPUTE = "#93a7ba"
_BLACK, _GREY, _LIGHT = "#111111", "#555555", "#e8e8e8"
_PLAIN_TEXT: dict[str, Any] = {"parse_math": False}  # names are no formulas
_NO_DATE: dict[str, dict[str, Any]] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
_SIZE = 12.0, 6.2  # inches
_LEFT, _RIGHT, _TOP, _BOTTOM = 0.85, 2.15, 1.3, 0.95  # inches around the curve
_STRIP, _STRIP_GAP = 0.24, 0.05  # inches
_POINT = 1 / 72 / (_SIZE[0] - _LEFT - _RIGHT)  # of the width that the run takes
_COLUMNS = 1600  # more than these cannot be told apart
_HEADROOM = 1.2  # of the peak, for what is said of it
_LIFTED = (
    4 / 3
)  # the axis starts above zero when even the lowest moment is more than the peak divided by this
_BROAD = 0.2  # modules that take more than this share of the kernels are shown by their parts
_MOST_BANDS = 40
_EDGED = 3.0  # points; what is narrower would be lost between white lines
_LETTER = 0.62  # width of a letter, by the size of the font
_LOOKS = (  # settings of the user that would change the picture
    *("agg", "axes", "figure", "font", "grid", "hatch", "legend", "lines", "mathtext"),
    *("patch", "path", "pdf", "savefig", "svg", "text", "xtick", "ytick"),
)


def render(result: Report | Memory, *, format: str = "png") -> bytes:
    """The picture as "png", "svg" or "pdf"."""
    memory = known_memory(result) if isinstance(result, Report) else result
    if not memory.timeline:
        raise UsageError(
            "there is nothing to plot: no kernel ran", hint="inspect a model that computes something"
        )
    usual = {
        name: value for name, value in matplotlib.rcParamsDefault.items() if name.partition(".")[0] in _LOOKS
    }
    content = BytesIO()
    with matplotlib.rc_context(usual):
        figure = _figure(result, memory)
        figure.savefig(content, format=known_format(format), metadata=_NO_DATE[format])
    return content.getvalue()


def _figure(result: Report | Memory, memory: Memory) -> Figure:
    width, height = _SIZE
    figure = Figure(figsize=_SIZE, dpi=110, facecolor="white")
    inner = height - _TOP - _BOTTOM
    for drawing, bottom, tall in (
        (_curve, _BOTTOM, inner),
        (_phase_strip, _BOTTOM + inner + _STRIP_GAP, _STRIP),
        (_module_strip, _BOTTOM - _STRIP_GAP - _STRIP, _STRIP),
    ):
        place = _LEFT / width, bottom / height, (width - _LEFT - _RIGHT) / width, tall / height
        axes = figure.add_axes(place)
        axes.set_xlim(0, len(memory.timeline))
        drawing(axes, memory)
    for index, (text, style) in enumerate(_headline(result, memory)):
        up = 1 - (0.32 + 0.23 * index) / height
        figure.text(0.3 / width, up, text, **style, **_PLAIN_TEXT)
    return figure


def _headline(result: Report | Memory, memory: Memory) -> list[tuple[str, dict[str, Any]]]:
    name = ran = ""
    if isinstance(result, Report):
        name, ran = result.model.name, what_ran(result, memory)
    changed = "" if memory.what_if is None else what_if_text(memory.what_if)
    peak = f"peak {size(memory.peak_nbytes)} ({memory.peak_nbytes:,} bytes), {sure_text(memory)}"
    if memory.in_first_step is False:
        peak += f"; the first step {size(memory.first_peak_nbytes or 0)}"
    what = "; ".join(filter(None, (ran, changed)))
    title = shortened(_plain(name or "Memory"), 90)
    return [
        (title, {"fontsize": 13, "fontweight": "bold", "color": _BLACK}),
        (shortened(_plain(what), 150), {"fontsize": 9, "color": _GREY}),
        (peak, {"fontsize": 9, "color": _GREY}),
    ]


def _curve(axes: Axes, memory: Memory) -> None:
    """What is held, by category, and the peak."""
    unit, name = _unit(memory.peak_nbytes)
    places, shown = _columns(memory.timeline)
    stacks = [list(accumulate(moment.held)) for moment in (*shown, shown[-1])]
    used = [index for index in range(len(CATEGORIES)) if any(moment.held[index] for moment in shown)]
    # Each from the ground, the highest first: between neighbours that only touch, the ground would show.
    for index in reversed(used):
        tops = [stack[index] / unit for stack in stacks]
        axes.fill_between(places, tops, step="post", linewidth=0, color=_COLORS[index], zorder=2)
    parts = phases(memory.timeline)
    whole: dict[str, Any] = {"transform": axes.get_xaxis_transform()}  # from the bottom to the top
    spans = [(part.first, part.after - part.first) for part in parts[::2]]
    axes.broken_barh(spans, (0, 1), color="#f5f5f5", linewidth=0, zorder=0, **whole)
    begins = [part.first for part in parts[1:]]
    axes.vlines(begins, 0, 1, color="white", linewidth=0.7, linestyle=(0, (4, 3)), zorder=3, **whole)
    _frame(axes, memory, unit, name)
    _mark(axes, memory, unit)
    handles = [
        Patch(color=_COLORS[index], label=_held_text(memory, CATEGORIES[index])) for index in reversed(used)
    ]
    axes.legend(
        handles=handles,
        title="at the peak",
        loc="upper left",
        bbox_to_anchor=(1.01, 1.0),
        frameon=False,
        fontsize=8.5,
        title_fontproperties={"size": 9, "weight": "bold"},
        alignment="left",
        labelspacing=0.8,
        borderaxespad=0,
    )


def _columns(timeline: Sequence[Moment]) -> tuple[list[float], list[Moment]]:
    """Where columns begin, the end of the last one, and what each shows: the highest where there are many."""
    number = len(timeline)
    if number <= _COLUMNS:
        return [float(place) for place in range(number + 1)], list(timeline)
    chosen = highest([moment.nbytes for moment in timeline], _COLUMNS)
    places = [number * column / _COLUMNS for column in range(_COLUMNS + 1)]
    return places, [timeline[index] for index in chosen]


def _unit(nbytes: int) -> tuple[int, str]:
    power = max(0, min(4, (nbytes.bit_length() - 1) // 10))
    return 1024**power, ("B", "KiB", "MiB", "GiB", "TiB")[power]


def _held_text(memory: Memory, category: str) -> str:
    nbytes = memory.by_category.get(category, 0)
    if not nbytes:
        return f"{words(category)}\nnothing"
    return f"{words(category)}\n{size(nbytes)}, {share(nbytes, memory.peak_nbytes)}"


def _frame(axes: Axes, memory: Memory, unit: int, name: str) -> None:
    lowest = min(moment.nbytes for moment in memory.timeline) / unit
    peak = memory.peak_nbytes / unit
    lifted = peak > lowest > peak / _LIFTED
    floor = lowest - 0.15 * (peak - lowest) if lifted else 0.0
    axes.set_ylim(floor, floor + ((peak - floor) or 1.0) * _HEADROOM)
    start = f", from {size(round(floor * unit))} up" if lifted else ""
    axes.set_ylabel(f"{name} held{start}", fontsize=9, color=_BLACK)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=7, steps=[1, 2, 2.5, 5, 10]))
    axes.tick_params(labelsize=8, length=3)
    axes.set_xticks([])
    for side in ("top", "right", "bottom"):
        axes.spines[side].set_visible(False)


def _mark(axes: Axes, memory: Memory, unit: int) -> None:
    if memory.at is None or memory.peak is None:
        return
    across, height = memory.at + 0.5, memory.peak_nbytes / unit
    axes.plot([across], [height], marker="o", markersize=5, color=_BLACK, zorder=5, clip_on=False)
    left = memory.at < 0.5 * len(memory.timeline)
    style: dict[str, Any] = {"ha": "left" if left else "right", "va": "bottom", "color": _BLACK}
    figure, *details = f"peak {size(memory.peak_nbytes)}", _plain(where_text(memory.peak))
    for text, up, weight in ((figure, 17, "bold"), (shortened(details[0], 84), 5, "normal")):
        axes.annotate(
            text,
            (across, height),
            xytext=(7 if left else -7, up),
            textcoords="offset points",
            fontsize=8.5,
            fontweight=weight,
            zorder=5,
            **style,
            **_PLAIN_TEXT,
        )


def _phase_strip(axes: Axes, memory: Memory) -> None:
    _strip(axes, phases(memory.timeline), _PHASE_COLORS.__getitem__, lambda name: [name, name[:1]])
    again = [
        part for part in stretches(moment.phase for moment in memory.timeline) if part.name == "recompute"
    ]
    if sum(part.after - part.first for part in again) < _POINT * len(memory.timeline):
        return
    axes.broken_barh([(part.first, part.after - part.first) for part in again], (0, 0.22), color=_RECOMPUTE)
    style: dict[str, Any] = {"fontsize": 8.5, "color": _GREY, "va": "center"}
    axes.text(1.01, 0.5, "dark line: forward again", transform=axes.transAxes, **style)


def _module_strip(axes: Axes, memory: Memory) -> None:
    least = 2 * _POINT * len(memory.timeline)
    parts = _joined(stretches(_bands([moment.module for moment in memory.timeline])), least)
    order = list(dict.fromkeys(part.name for part in parts if part.name))
    shades = matplotlib.colormaps["cividis"]
    place = {name: 0.1 + 0.85 * index / max(1, len(order) - 1) for index, name in enumerate(order)}

    def color(name: str) -> Any:
        return shades(place[name]) if name else _LIGHT

    def labels(name: str) -> list[str]:
        steps = _plain(name).split(".")
        return [".".join(steps[first:]) for first in range(len(steps))]

    _strip(axes, parts, color, labels)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=10, integer=True))
    axes.tick_params(labelsize=8, length=3)
    axes.set_xlabel("kernels, in the order in which they run", fontsize=9, color=_BLACK)
    axes.text(1.01, 0.5, "module", transform=axes.transAxes, fontsize=8.5, color=_GREY, va="center")


def _bands(paths: Sequence[str]) -> list[str]:
    """The module that each path is shown as: of the top level, or deeper where one takes much of the run."""
    taken = Counter(path for path in paths if path)
    opened: set[str] = set()
    while True:
        counts: Counter[str] = Counter()
        for path, number in taken.items():
            counts[_band(path, opened)] += number
        broad = [
            name
            for name, number in counts.items()
            if number > _BROAD * len(paths)
            and name not in opened
            and any(path.startswith(f"{name}.") for path in taken)
        ]
        if not broad or len(counts) > _MOST_BANDS:
            break
        opened.update(broad)
    shown = {path: _band(path, opened) for path in taken}
    return [shown.get(path, "") for path in paths]


def _joined(parts: Sequence[Stretch], least: float) -> list[Stretch]:
    """The stretches without those of no module that lie within one, or could not be seen anyway."""
    kept: list[Stretch] = []
    for part, after in zip(parts, [*parts[1:], None], strict=True):
        length = part.after - part.first
        within = kept and after and kept[-1].name == after.name and length <= kept[-1].after - kept[-1].first
        passing = not part.name and (within or length < least)
        if kept and (passing or part.name == kept[-1].name):
            kept[-1] = kept[-1]._replace(after=part.after)
        else:
            kept.append(part)
    return kept


def _band(path: str, opened: set[str]) -> str:
    name, *rest = path.split(".")
    for step in rest:
        if name not in opened:
            break
        name = f"{name}.{step}"
    return name


def _strip(
    axes: Axes, parts: Sequence[Stretch], color: Callable[[str], Any], labels: Callable[[str], list[str]]
) -> None:
    """Stretches side by side, each with the longest of its labels that it has room for."""
    number = parts[-1].after
    points = 1 / _POINT / number
    bars = [(part.first, part.after - part.first) for part in parts]
    fills = [color(part.name) for part in parts]
    axes.broken_barh(bars, (0, 1), facecolors=fills, linewidth=0)
    edges = [
        right.first
        for left, right in pairwise(parts)
        if points * min(left.after - left.first, right.after - right.first) >= _EDGED
    ]
    axes.vlines(edges, 0, 1, color="white", linewidth=0.7)
    axes.set_ylim(0, 1)
    axes.set_xlim(0, number)
    axes.set_yticks([])
    axes.set_xticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)
    for part, fill in zip(parts, fills, strict=True):
        letters = points * (part.after - part.first) / (8 * _LETTER) - 0.3
        text = next((label for label in labels(part.name) if len(label) <= letters), "")
        if text:
            ink = "white" if _dark(fill) else _BLACK
            middle = (part.first + part.after) / 2
            axes.text(middle, 0.52, text, fontsize=8, color=ink, ha="center", va="center", **_PLAIN_TEXT)


def _dark(color: Any) -> bool:
    red, green, blue, _ = matplotlib.colors.to_rgba(color)
    return 0.3 * red + 0.59 * green + 0.11 * blue < 0.5


def _plain(text: str) -> str:
    """Only characters that every font has."""
    return told(text).encode("ascii", "backslashreplace").decode()
