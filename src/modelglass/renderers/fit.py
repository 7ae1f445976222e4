"""Whether a step fits into a device, and what would make it fit, as text, Markdown and JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from modelglass.renderers._escape import cell_width, markdown, printable
from modelglass.renderers._json import pretty
from modelglass.renderers._markdown import head, line, note_items
from modelglass.renderers._terminal import (
    BOLD,
    DIM,
    GAP,
    RED,
    Paint,
    Style,
    Table,
    note_lines,
    painter,
    wrapped,
)
from modelglass.page.units import exactly, size
from modelglass.page.what_if import coverage_text, sure_text, what_if_text
from modelglass.renderers.scan import plain

if TYPE_CHECKING:
    from modelglass.report.fit import Fit, Option

FORMAT = "modelglass-fit"
VERSION = 1

_COLUMNS = ("change", "peak", "left", "fits", "method")
_HEADS = ("change", "peak", "left", "fits", "figure")
_NUMBERS = frozenset({"peak", "left"})
_NARROWEST = 24  # cells of a change
_ESTIMATES = (
    "An estimate leaves out buffers of communication between devices and what kernels take for themselves."
)


def render(fit: Fit, *, width: int = 100, color: bool = False) -> str:
    """The answer, its figures, and a table of what would make it fit, in lines of `width` cells."""
    paint = painter(color)
    answer = "\n".join(wrapped(printable(_answer(fit)), width))
    sections = [paint(answer, BOLD if fit.fits else RED), _facts_text(fit, width, paint)]
    changes = list(fit.options)
    if changes:
        sections.append(f"{paint(_title(fit), BOLD)}\n\n{_table_text(fit, changes, width, paint)}")
    remarks = [part for text in _remarks(fit) for part in wrapped(printable(text), width)]
    if remarks:
        sections.append(paint("\n".join(remarks), DIM))
    if fit.notes:
        sections.append(note_lines(fit.notes, width, paint))
    return "\n\n".join(sections) + "\n"


def render_markdown(fit: Fit) -> str:
    """The same for a pull request."""
    lines = [f"### {markdown(_answer(fit))}", "", line(["figure", ""]), line(["---", "---"])]
    lines += [line([markdown(label), markdown(text)]) for label, text in _facts(fit)]
    changes = list(fit.options)
    if changes:
        lines += ["", f"**{_title(fit)}**", "", *head(_COLUMNS, _HEADS, _NUMBERS)]
        lines += [line(map(markdown, _row(fit, option))) for option in changes]
    for text in _remarks(fit):
        lines += ["", markdown(text)]
    if fit.notes:
        lines += ["", *note_items(fit.notes)]
    return "\n".join(lines) + "\n"


def render_json(fit: Fit) -> str:
    """Every field in exact bytes, the same text for the same answer."""
    document = {"format": FORMAT, "version": VERSION, "margin_nbytes": fit.margin_nbytes, **plain(fit)}
    return pretty(document)


def _answer(fit: Fit) -> str:
    step = "a forward pass"
    if fit.train:
        step = f"a training step with {fit.optimizer}" if fit.optimizer else "forward and backward"
    verdict = "fits" if fit.fits else "does not fit"
    takes = "takes at least" if fit.is_lower_bound else "takes"
    return f"{verdict}: {step} {takes} {size(fit.peak_nbytes)}, the device has {size(fit.device_nbytes)}"


def _facts(fit: Fit) -> Iterator[tuple[str, str]]:
    yield "peak", f"{exactly(fit.peak_nbytes)}, {'at least: ' if fit.is_lower_bound else ''}{sure_text(fit)}"
    for coverage in fit.coverage:
        yield "  covers", coverage_text(coverage)
    if fit.excludes:
        yield "  excludes", ", ".join(fit.excludes)
    yield "device", exactly(fit.device_nbytes)
    left = fit.margin_nbytes
    yield "margin", f"{exactly(left)} left" if left >= 0 else f"{exactly(-left)} missing"
    if fit.batch_size is not None:
        yield "batch size", f"{fit.batch_size:,}"
        yield "largest batch", _largest(fit, "batch_size", fit.largest_batch, fit.largest_batch_peak_nbytes)
    if fit.seq_len is not None:
        yield "sequence length", f"{fit.seq_len:,}"
        yield (
            "longest sequence",
            _largest(fit, "seq_len", fit.largest_seq_len, fit.largest_seq_len_peak_nbytes),
        )
    yield "fake runs", f"{fit.runs:,}"


def _largest(fit: Fit, name: str, largest: int | None, nbytes: int | None) -> str:
    """A size that fits with what it takes, and what is known of one more."""
    takes = f"takes {'at least ' if fit.is_lower_bound else ''}"
    found = "none fits" if largest is None or nbytes is None else f"{largest:,}, which {takes}{size(nbytes)}"
    more = f"{(largest or 0) + 1:,}"
    of_batch = name == "batch_size"
    problem = fit.batch_problem if of_batch else fit.seq_len_problem
    if problem is not None:
        return f"{'unknown' if largest is None else found}; {more} cannot run: {problem}"
    beyond = fit.next_batch_peak_nbytes if of_batch else fit.next_seq_len_peak_nbytes
    if beyond is not None:
        told = size(beyond) if size(beyond) != size(fit.device_nbytes) else exactly(beyond)
        return f"{found}; {more} would take {told}"
    if not of_batch and largest is not None and largest == fit.context_length:
        return f"{found}; the model was made for no more positions"
    if fit.limited and largest == max(fit.largest_batch or 0, fit.largest_seq_len or 0):
        return f"{found}; the search went no further"
    return f"{found}; {more} does not fit"


def _title(fit: Fit) -> str:
    fitting = sum(bool(option.fits) for option in fit.options)
    return f"what would make it fit: {fitting:,} of {len(fit.options):,} changes"


def _row(fit: Fit, option: Option) -> list[str]:
    change = what_if_text(option.what_if)
    if option.peak_nbytes is None:
        return [change, "–", "–", "cannot run", "–"]
    left = fit.device_nbytes - option.peak_nbytes
    margin = size(left) if left >= 0 else f"−{size(-left)}"
    figure = "at least" if fit.is_lower_bound and option.method == "exact" else option.method
    return [change, size(option.peak_nbytes), margin, "yes" if option.fits else "no", figure]


def _facts_text(fit: Fit, width: int, paint: Paint) -> str:
    facts = list(_facts(fit))
    label_width = max(len(label) for label, _ in facts) + GAP
    lines = []
    for label, text in facts:
        for index, part in enumerate(wrapped(printable(text), max(20, width - label_width))):
            name = "" if index else label
            lines.append(paint(name.ljust(label_width), DIM) + part.strip())
    return "\n".join(lines)


def _table_text(fit: Fit, changes: list[Option], width: int, paint: Paint) -> str:
    rows = [[printable(text) for text in _row(fit, option)] for option in changes]
    others = [max(map(cell_width, column)) + GAP for column in zip(_HEADS, *rows, strict=True)][1:]
    room = max(_NARROWEST, width - sum(others))
    lines, styles = [], []
    for row, option in zip(rows, changes, strict=True):
        first, *rest = wrapped(row[0], room)
        lines += [[first, *row[1:]], *([part, *[""] * len(others)] for part in rest)]
        styles += [_style(option)] * (1 + len(rest))
    table = Table(_COLUMNS, _HEADS, lines, numbers=_NUMBERS, flexible={"change": _NARROWEST})
    return table.text(width, styles, paint)


def _style(option: Option) -> Style:
    return lambda column: BOLD if option.fits else DIM


def _remarks(fit: Fit) -> Iterator[str]:
    for option in fit.options:
        if option.problem is not None:
            yield f"{what_if_text(option.what_if)} cannot run: {option.problem}"
        for coverage in option.coverage:
            yield f"{what_if_text(option.what_if)}: {coverage_text(coverage)}"
    if any(option.method == "estimate" and option.peak_nbytes is not None for option in fit.options):
        yield _ESTIMATES
