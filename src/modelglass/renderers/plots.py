"""Weight distributions as a picture: a grid of histograms, drawn from the counts in the report.

Figures are made directly, without pyplot, so that no backend, setting or open figure of the user is touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from math import ceil, sqrt
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf, PdfPages
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from modelglass.errors import UsageError
from modelglass.page.sections.statistics import Row, chosen
from modelglass.page.units import shape_text
from modelglass.renderers._escape import told
from modelglass.report import FINDINGS, Histogram, Report, Severity
from modelglass.report.stats import described_shape

PANELS = 40  # more than these on one sheet cannot be read
_PANEL = 3.3, 2.05  # inches
_HEAD = 0.9  # inches above the panels
_LONGEST_NAME = 42  # characters above a panel
_SPIKY = 0.5  # one bin with more than this share hides the others, unless heights are logarithmic
_CANVASES = {"png": FigureCanvasAgg, "svg": FigureCanvasSVG, "pdf": FigureCanvasPdf}
_NO_DATE: dict[str, dict[str, Any]] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
_GREY, _BLACK = "#555555", "#111111"
_PLAIN_TEXT: dict[str, Any] = {"parse_math": False, "usetex": False}  # names are no formulas
_LOG_FLOOR = 0.5  # below the height of a single value
_FEW = 1000  # values that 64 bins would scatter
_COLORS: dict[Severity | None, str] = {
    None: "#3b6ea5",
    "info": "#3b6ea5",
    "warning": "#d98324",
    "error": "#c0392b",
}


def render(report: Report, *, format: str = "png", panels: int = PANELS) -> bytes:
    """The picture. A PDF has as many pages as it takes; the others show the most telling tensors."""
    rows = [
        row for row in chosen(report) if row.tensor.kind != "buffer" and row.stats and row.stats.histogram
    ]
    if not rows:
        raise UsageError(
            "there is nothing to plot: no parameter has values",
            hint="inspect a model with weights, with stats=True",
        )
    found = _severities(report)
    content = BytesIO()
    if format == "pdf" and len(rows) > panels:
        sheets = [rows[i : i + panels] for i in range(0, len(rows), panels)]
        with PdfPages(content, metadata=_NO_DATE["pdf"]) as pages:
            for number, sheet in enumerate(sheets, start=1):
                caption = f"page {number} of {len(sheets)}, {len(rows)} tensors in the order of the model"
                pages.savefig(_sheet(report, sheet, caption, found, "pdf"))
    else:
        shown = _most_telling(rows, found, panels)
        caption = f"{len(rows)} tensors"
        if len(shown) < len(rows):
            caption = (
                f"{len(shown)} of {len(rows)} tensors: those with errors or warnings, then those with the "
                "longest tails; a PDF shows all"
            )
        figure = _sheet(report, shown, caption, found, format)
        figure.savefig(content, format=format, metadata=_NO_DATE[format])
    return content.getvalue()


def known_format(name: str) -> str:
    """The name, checked to be that of a format."""
    if name not in _CANVASES:
        raise UsageError(f"there are no plots as {name!r}", hint="choose .png, .svg or .pdf")
    return name


def _severities(report: Report) -> dict[str, Severity]:
    """The worst that was found about each tensor."""
    order: tuple[Severity, ...] = ("info", "warning", "error")
    notes = sorted((n for n in report.notes if n.code in FINDINGS), key=lambda n: order.index(n.severity))
    return {name: note.severity for note in notes for name in note.where}


def _most_telling(rows: list[Row], found: dict[str, Severity], number: int) -> list[Row]:
    """So many rows, in their order: first those with errors and warnings, then the longest tails."""

    def rank(row: Row) -> tuple[int, float, int]:
        severity = {"error": 2, "warning": 1}.get(found.get(row.tensor.name, "info"), 0)
        reach = row.stats.reach if row.stats is not None else None
        return severity, reach or 0.0, row.tensor.numel or 0

    best = sorted(rows, key=rank, reverse=True)[:number]
    kept = {row.tensor.name for row in best}
    return [row for row in rows if row.tensor.name in kept]


def _sheet(
    report: Report, rows: Sequence[Row], caption: str, found: dict[str, Severity], format: str
) -> Figure:
    columns = min(5, ceil(sqrt(len(rows))))
    lines = ceil(len(rows) / columns)
    width, height = max(columns * _PANEL[0], 5.0), lines * _PANEL[1] + _HEAD
    figure = Figure(figsize=(width, height), dpi=110, facecolor="white")
    figure.set_layout_engine("none")  # whatever the user's settings say
    _CANVASES[format](figure)
    name = _plain(report.model.name)
    figure.text(
        0.3 / width, 1 - 0.26 / height, name, fontsize=13, fontweight="bold", color=_BLACK, **_PLAIN_TEXT
    )
    worst = {found.get(row.tensor.name) for row in rows}
    if worst & {"warning", "error"}:
        caption += "; orange: a warning, red: NaN or infinite"
    figure.text(0.3 / width, 1 - 0.48 / height, caption, fontsize=8.5, color=_GREY, **_PLAIN_TEXT)
    grid = figure.add_gridspec(
        lines,
        columns,
        left=0.3 / width,
        right=1 - 0.2 / width,
        bottom=0.3 / height,
        top=1 - (_HEAD + 0.2) / height,
        wspace=0.12,
        hspace=0.7,
    )
    for index, row in enumerate(rows):
        axes = figure.add_subplot(grid[index // columns, index % columns])
        _panel(axes, row, _COLORS[found.get(row.tensor.name)])
    return figure


def _panel(axes: Axes, row: Row, color: str) -> None:
    """One tensor: its name, what it is, its distribution."""
    tensor, stats = row.tensor, row.stats
    if stats is None or stats.histogram is None:
        raise ValueError(f"{tensor.name} has nothing to draw")
    kind = _DESCRIBED[stats.described]
    std = "–" if stats.std is None else f"{stats.std:.3g}"
    _write(axes, 0, 1.2, _shortened(_plain(tensor.name)), size=7.5, fontweight="bold")
    _write(axes, 0, 1.05, f"{shape_text(described_shape(tensor, stats))} {tensor.dtype}{kind}", color=_GREY)
    _write(axes, 1, 1.05, f"mean {stats.mean:.3g}  std {std}", ha="right")
    if stats.nan or stats.inf:
        _write(axes, 1, 1.2, f"{stats.nan:,} NaN, {stats.inf:,} Inf", color=_COLORS["error"], ha="right")
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    # Colours are said wherever the user's style would set them.
    axes.set_facecolor("white")
    axes.grid(visible=False)
    axes.spines["bottom"].set_color(_BLACK)
    axes.tick_params(labelsize=6, length=2, color=_BLACK, labelcolor=_BLACK)
    if stats.histogram.low == stats.histogram.high:
        axes.set_xticks([])
        _write(axes, 0.5, 0.4, f"all {stats.histogram.low:g}", size=8, ha="center")
    else:
        _bars(axes, stats.histogram, color, spread=stats.finite > _FEW)
    axes.set_yticks([], minor=True)
    axes.set_yticks([])


def _bars(axes: Axes, histogram: Histogram, color: str, *, spread: bool) -> None:
    """The histogram, its bins put together by fours where there are too few values to fill them."""
    step = 1 if spread or len(histogram.counts) < 8 else 4
    counts = [sum(histogram.counts[i : i + step]) for i in range(0, len(histogram.counts), step)]
    # Bins are equally wide, so their numbers will do as places: no range is too large or too small to draw.
    spiky = max(counts) > _SPIKY * sum(counts)
    # On a logarithmic scale nothing is infinitely far down, where not every viewer cuts it off.
    floor = _LOG_FLOOR if spiky else 0.0
    axes.stairs([max(number, floor) for number in counts], baseline=floor, fill=True, color=color)
    axes.set_xlim(0, len(counts))
    axes.set_xticks([0, len(counts)])
    for label, tick in zip(("left", "right"), axes.set_xticklabels(_ends(histogram)), strict=True):
        tick.set(horizontalalignment=label, usetex=False)  # neighbours would touch
    if histogram.low < 0 < histogram.high:
        zero = 1 / (1 - histogram.high / histogram.low)
        axes.axvline(zero * len(counts), color="white", linewidth=0.6)
    if spiky:
        axes.set_yscale("log")
        axes.set_ylim(floor, 2 * max(counts))
        _write(axes, 0.99, 0.86, "log heights", color=_GREY, ha="right")


def _ends(histogram: Histogram) -> list[str]:
    return [f"{histogram.low:.3g}", f"{histogram.high:.3g}"]


def _write(
    axes: Axes, x: float, y: float, text: str, *, size: float = 6.5, color: str = _BLACK, **style: Any
) -> None:
    style |= {"color": color, "fontsize": size}
    axes.text(x, y, text, transform=axes.transAxes, va="bottom", **_PLAIN_TEXT, **style)


_DESCRIBED = {
    "values": "",
    "stored": ", stored values",
    "magnitudes": ", magnitudes",
    "dequantized": ", dequantized",
}


def _plain(text: str) -> str:
    """Only characters that every font has."""
    return told(text).encode("ascii", "backslashreplace").decode()


def _shortened(name: str) -> str:
    """The name with its middle left out when it is too long: both ends tell more."""
    if len(name) <= _LONGEST_NAME:
        return name
    half = (_LONGEST_NAME - 1) // 2
    return f"{name[:half]}...{name[-half:]}"
