"""Whether a step fits into a device, and what would make it fit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from modelglass.page import Block, Cell, Column, Facts, Heading, RowTone, Table, ending
from modelglass.page.units import exactly, size
from modelglass.page.what_if import coverage_text, sure_text, what_if_text

if TYPE_CHECKING:
    from modelglass.report.fit import Fit, Option

_COLUMNS = (
    Column("change", "change", least=24, cut="wrapped"),
    Column("peak_nbytes", "peak", number=True),
    Column("left_nbytes", "left", number=True),
    Column("fits", "fits"),
    Column("method", "figure"),
)
_ESTIMATES = (
    "An estimate leaves out buffers of communication between devices and what kernels take for themselves."
)


def blocks(fit: Fit) -> Iterator[Block]:
    """The answer, its figures, and what would make it fit."""
    yield Heading(_answer(fit), tone="strong" if fit.fits else "alarm")
    yield Facts(list(_facts(fit)))
    if fit.options:
        tones: list[RowTone] = ["strong" if option.fits else "quiet" for option in fit.options]
        yield Table(_COLUMNS, [_row(fit, option) for option in fit.options], _title(fit), tones=tones)
    yield from ending(_remarks(fit), fit.notes)


def everything(fit: Fit) -> Table:
    """What the step takes as it is, and with each change."""
    figure = "at least" if fit.is_lower_bound else fit.method
    as_it_is = _figures("as it is", fit, fit.peak_nbytes, figure)
    return Table(_COLUMNS, [as_it_is, *(_row(fit, option) for option in fit.options)])


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


def _row(fit: Fit, option: Option) -> tuple[Cell | str, ...]:
    change = what_if_text(option.what_if)
    if option.peak_nbytes is None:
        unknown = Cell("–", None)
        return change, unknown, unknown, "cannot run", unknown
    figure = "at least" if fit.is_lower_bound and option.method == "exact" else option.method
    return _figures(change, fit, option.peak_nbytes, figure)


def _figures(change: str, fit: Fit, peak: int, figure: str) -> tuple[Cell | str, ...]:
    left = fit.device_nbytes - peak
    margin = size(left) if left >= 0 else f"−{size(-left)}"
    return change, Cell(size(peak), peak), Cell(margin, left), "yes" if left >= 0 else "no", figure


def _remarks(fit: Fit) -> Iterator[str]:
    for option in fit.options:
        if option.problem is not None:
            yield f"{what_if_text(option.what_if)} cannot run: {option.problem}"
        for coverage in option.coverage:
            yield f"{what_if_text(option.what_if)}: {coverage_text(coverage)}"
    if any(option.method == "estimate" and option.peak_nbytes is not None for option in fit.options):
        yield _ESTIMATES
