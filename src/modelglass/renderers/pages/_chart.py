"""What a run holds in memory, moment by moment, as a picture without a style of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby
from typing import NamedTuple

from modelglass.page.sections.memory import words
from modelglass.page.units import size
from modelglass.renderers._escape import html
from modelglass.renderers._sparkline import Stretch, highest, phases
from modelglass.report.memory import CATEGORIES, Memory, Moment

WIDTH, HEIGHT = 1000, 260
_LEFT, _TOP, _BOTTOM = 88, 26, 24  # the room for labels
_CELLS = 460  # moments that are drawn: of several that fall together, the highest
_MARKS = 4  # lines across
_STEPPING = "optimizer"  # its kernels are many, and little happens in them:
_ITS_SHARE = 1 / 3  # they take no more room than this part of what all others take


class _Span(NamedTuple):
    """A phase, and where it is drawn."""

    name: str
    first: int
    after: int
    left: float
    right: float

    def x(self, moment: float) -> float:
        return self.left + (self.right - self.left) * (moment - self.first) / (self.after - self.first)


def timeline(memory: Memory) -> str:
    """Categories on top of each other, phases below, the peak marked."""
    spans = list(_spans(phases(memory.timeline)))
    peak = max((moment.nbytes for moment in memory.timeline), default=0) or 1
    label = html(f"memory over {len(memory.timeline):,} kernels, at most {size(peak)}")
    parts = [*_lines(peak), *_areas(memory, spans, peak), *_phases(spans), *_mark(memory, spans, peak)]
    places = " ".join(f"{span.first}:{span.after}:{span.left:.1f}:{span.right:.1f}" for span in spans)
    head = f'class="timeline" data-spans="{places}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
    return f'<svg {head} aria-label="{label}">{"".join(parts)}</svg>{_legend(memory.timeline)}'


def _spans(stretches: Sequence[Stretch]) -> Iterator[_Span]:
    """The phases side by side, as wide as they have kernels."""
    kernels = [after - first for _, first, after in stretches]
    others = sum(number for number, each in zip(kernels, stretches, strict=True) if each.name != _STEPPING)
    room = [
        min(number, others * _ITS_SHARE) if each.name == _STEPPING and others else number
        for number, each in zip(kernels, stretches, strict=True)
    ]
    ends = [_LEFT + (WIDTH - _LEFT) * end / sum(room) for end in accumulate(room, initial=0)]
    for each, left, right in zip(stretches, ends, ends[1:], strict=False):
        yield _Span(each.name, each.first, each.after, left, right)


def _y(nbytes: float, peak: int) -> float:
    return HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * nbytes / peak


def _lines(peak: int) -> Iterator[str]:
    for step in range(_MARKS + 1):
        nbytes = peak * step // _MARKS
        y = _y(nbytes, peak)
        yield f'<path class="grid" d="M{_LEFT} {y:.1f}H{WIDTH}"/>'
        yield f'<text class="axis" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{size(nbytes)}</text>'


def _areas(memory: Memory, spans: Sequence[_Span], peak: int) -> Iterator[str]:
    """Each category above the ones before it; the steps between moments are upright."""
    drawn = [cell for span in spans for cell in _cells(memory, span)]
    for index, category in enumerate(CATEGORIES):
        if any(moment.held[index] for *_, moment in drawn):
            upper = _stairs([(left, right, sum(m.held[: index + 1])) for left, right, m in drawn], peak)
            lower = _stairs([(left, right, sum(m.held[:index])) for left, right, m in drawn], peak)
            points = " ".join(f"{x:.0f},{y:.1f}" for x, y in [*upper, *lower[::-1]])
            title = f"<title>{words(category)}</title>"
            yield f'<polygon class="c-{category}" points="{points}">{title}</polygon>'


def _cells(memory: Memory, span: _Span) -> Iterator[tuple[float, float, Moment]]:
    """Where the moments of a phase are drawn: one by one, or the highest of those that fall together."""
    moments = memory.timeline[span.first : span.after]
    number = min(len(moments), max(1, round(_CELLS * (span.right - span.left) / (WIDTH - _LEFT))))
    step = (span.right - span.left) / number
    for cell, place in enumerate(highest([moment.nbytes for moment in moments], number)):
        yield span.left + cell * step, span.left + (cell + 1) * step, moments[place]


def _stairs(steps: Sequence[tuple[float, float, int]], peak: int) -> list[tuple[float, float]]:
    """The outline of steps from left to right; equal neighbours are one."""
    points = []
    for nbytes, group in groupby(steps, key=lambda step: step[2]):
        equal = list(group)
        points += [(equal[0][0], _y(nbytes, peak)), (equal[-1][1], _y(nbytes, peak))]
    return points


def _phases(spans: Sequence[_Span]) -> Iterator[str]:
    for span in spans:
        yield f'<path class="grid" d="M{span.left:.1f} {_TOP}V{HEIGHT - 4}"/>'
        if span.right - span.left > 7 * len(span.name):
            yield f'<text class="axis" x="{span.left + 5:.1f}" y="{HEIGHT - 7}">{span.name}</text>'


def _mark(memory: Memory, spans: Sequence[_Span], peak: int) -> Iterator[str]:
    if memory.at is None:
        return
    x = next(span.x(memory.at + 0.5) for span in spans if memory.at < span.after)
    y = _y(memory.timeline[memory.at].nbytes, peak)
    beside, anchor = (-9, "end") if x > WIDTH / 2 else (9, "start")
    place = f'x="{x + beside:.1f}" y="{y - 4:.1f}" text-anchor="{anchor}"'
    yield f'<path class="mark" d="M{x:.1f} {y:.1f}l-5 -8h10z"/>'
    yield f'<text class="peak" {place}>peak {size(memory.peak_nbytes)}</text>'


def _legend(moments: Sequence[Moment]) -> str:
    used = [
        category for index, category in enumerate(CATEGORIES) if any(moment.held[index] for moment in moments)
    ]
    return f'<ul class="legend">{"".join(map(_legend_item, used))}</ul>'


def _legend_item(category: str) -> str:
    sample = f'<rect class="c-{category}" width="10" height="10"/>'
    return f'<li><svg viewBox="0 0 10 10" aria-hidden="true">{sample}</svg>{words(category)}</li>'
