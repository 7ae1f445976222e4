"""What a run holds in memory, moment by moment, as a picture without a style of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby

from modelglass.page.sections.memory import words
from modelglass.page.units import size
from modelglass.renderers._escape import html
from modelglass.renderers._sparkline import highest, phases
from modelglass.report.memory import CATEGORIES, Memory, Moment

WIDTH, HEIGHT = 1000, 260
_LEFT, _TOP, _BOTTOM = 72, 26, 24  # the room for labels
_CELLS = 460  # moments that are drawn: of several that fall together, the highest
_MARKS = 4  # lines across


def timeline(memory: Memory) -> str:
    """Categories on top of each other, phases below, the peak marked."""
    moments = [memory.timeline[index] for index in _drawn(memory)]
    peak = max((moment.nbytes for moment in memory.timeline), default=0) or 1
    label = html(f"memory over {len(memory.timeline):,} kernels, at most {size(peak)}")
    parts = [*_lines(peak), *_areas(moments, peak), *_phases(memory), *_mark(memory, peak)]
    head = f'class="timeline" data-left="{_LEFT}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
    return f'<svg {head} aria-label="{label}">{"".join(parts)}</svg>{_legend(moments)}'


def _drawn(memory: Memory) -> Sequence[int]:
    heights = [moment.nbytes for moment in memory.timeline]
    return range(len(heights)) if len(heights) <= _CELLS else highest(heights, _CELLS)


def _x(part: float) -> float:
    return _LEFT + (WIDTH - _LEFT) * part


def _y(nbytes: float, peak: int) -> float:
    return HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * nbytes / peak


def _lines(peak: int) -> Iterator[str]:
    for step in range(_MARKS + 1):
        nbytes = peak * step // _MARKS
        y = _y(nbytes, peak)
        yield f'<path class="grid" d="M{_LEFT} {y:.1f}H{WIDTH}"/>'
        yield f'<text class="axis" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{size(nbytes)}</text>'


def _areas(moments: Sequence[Moment], peak: int) -> Iterator[str]:
    """Each category above the ones before it; the steps between moments are upright."""
    tops = [list(accumulate(moment.held, initial=0)) for moment in moments]
    for index, category in enumerate(CATEGORIES):
        if any(moment.held[index] for moment in moments):
            upper = _stairs([top[index + 1] for top in tops], peak)
            lower = _stairs([top[index] for top in tops], peak)[::-1]
            points = " ".join(f"{x:.0f},{y:.1f}" for x, y in [*upper, *lower])
            title = f"<title>{words(category)}</title>"
            yield f'<polygon class="c-{category}" points="{points}">{title}</polygon>'


def _stairs(heights: Sequence[int], peak: int) -> list[tuple[float, float]]:
    """The outline of heights, each as wide as any other; equal neighbours are one step."""
    number, first = len(heights), 0
    points = []
    for nbytes, group in groupby(heights):
        after = first + sum(1 for _ in group)
        points += [(_x(first / number), _y(nbytes, peak)), (_x(after / number), _y(nbytes, peak))]
        first = after
    return points


def _phases(memory: Memory) -> Iterator[str]:
    number = len(memory.timeline)
    for name, first, after in phases(memory.timeline):
        x, width = _x(first / number), (WIDTH - _LEFT) * (after - first) / number
        yield f'<path class="grid" d="M{x:.1f} {_TOP}V{HEIGHT - 4}"/>'
        if width > 7 * len(name):
            yield f'<text class="axis" x="{x + 5:.1f}" y="{HEIGHT - 7}">{name}</text>'


def _mark(memory: Memory, peak: int) -> Iterator[str]:
    if memory.at is None:
        return
    part = (memory.at + 0.5) / len(memory.timeline)
    x, y = _x(part), _y(memory.timeline[memory.at].nbytes, peak)
    side = "end" if part > 0.5 else "start"
    yield f'<path class="mark" d="M{x:.1f} {y:.1f}l-5 -8h10z"/>'
    yield (
        f'<text class="peak" x="{x + (-9 if part > 0.5 else 9):.1f}" y="{y - 4:.1f}" text-anchor="{side}">'
        f"peak {size(memory.peak_nbytes)}</text>"
    )


def _legend(moments: Sequence[Moment]) -> str:
    used = [
        category for index, category in enumerate(CATEGORIES) if any(moment.held[index] for moment in moments)
    ]
    return f'<ul class="legend">{"".join(map(_legend_item, used))}</ul>'


def _legend_item(category: str) -> str:
    sample = f'<rect class="c-{category}" width="10" height="10"/>'
    return f'<li><svg viewBox="0 0 10 10" aria-hidden="true">{sample}</svg>{words(category)}</li>'
