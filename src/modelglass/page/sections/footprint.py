"""What the files of a model take in memory, and what of it fits into a device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from modelglass.page import Block, Cell, Column, Facts, Heading, Notes, Table
from modelglass.page.units import exactly, known, size

if TYPE_CHECKING:
    from modelglass.report.footprint import Footprint, FootprintAt, FootprintPart

_CONTEXT = Column("context", "context", number=True)
_NEEDS = (Column("cache_nbytes", "cache", number=True), Column("nbytes", "weights and cache", number=True))
_FITS = (Column("left_nbytes", "left", number=True), Column("fits", "fits"))
_DIVIDED = (
    Column("layers", "layers on the device", number=True),
    Column("device_nbytes", "device", number=True),
    Column("host_nbytes", "host", number=True),
)
_PARTS = (Column("part", "part", least=16, cut="wrapped"), Column("part_nbytes", "weights", number=True))
_WHERE = (Column("where", "where"),)


def blocks(footprint: Footprint) -> Iterator[Block]:
    """The answer, its figures, and each length and part."""
    yield Heading(_answer(footprint), tone="alarm" if footprint.fits is False else "strong")
    yield Facts(list(_facts(footprint)))
    if len(footprint.contexts) > 1:
        yield lengths(footprint)
    if footprint.parts:
        yield _parts(footprint)
    if footprint.notes:
        yield Notes(footprint.notes)


def lengths(footprint: Footprint) -> Table:
    """A row for each length of the context."""
    columns = [_CONTEXT, *_NEEDS]
    if footprint.device_nbytes is not None:
        columns += [*_FITS, *(_DIVIDED if footprint.layers is not None else ())]
    rows = [list(_row(footprint, at)) for at in footprint.contexts]
    return Table(tuple(columns), [tuple(row[: len(columns)]) for row in rows])


def _row(footprint: Footprint, at: FootprintAt) -> Iterator[Cell | str]:
    yield _cell(at.context, known)
    yield _cell(at.cache_nbytes, size)
    yield Cell(size(at.nbytes), at.nbytes)
    if footprint.device_nbytes is None:
        return
    left = footprint.device_nbytes - at.nbytes
    yield Cell(size(left) if left >= 0 else f"−{size(-left)}", left)
    yield "yes" if at.fits else "no"
    yield Cell(f"{known(at.layers)} of {known(footprint.layers)}", at.layers)
    yield _cell(at.device_nbytes, size)
    yield _cell(at.host_nbytes, size)


def _cell(value: int | None, write: Callable[[int], str]) -> Cell:
    return Cell("–", None) if value is None else Cell(write(value), value)


def _parts(footprint: Footprint) -> Table:
    placed = any(part.device_nbytes is not None for part in footprint.parts)
    rows = [tuple(_part_row(part))[: 3 if placed else 2] for part in footprint.parts]
    return Table((*_PARTS, *(_WHERE if placed else ())), rows)


def _part_row(part: FootprintPart) -> Iterator[Cell | str]:
    yield part.name
    yield Cell(size(part.nbytes), part.nbytes)
    yield "on the device" if part.device_nbytes else "on the host"


def _answer(footprint: Footprint) -> str:
    at = footprint.contexts[0]
    what = "weights" if at.cache_nbytes is None else f"weights and the cache of {at.context:,} tokens"
    takes = f"{what} take {size(at.nbytes)}"
    if footprint.device_nbytes is None:
        return f"{footprint.name} ({footprint.source}): {takes}"
    room = f"the device has {size(footprint.device_nbytes)}"
    if at.fits or at.layers is None:
        return f"{'fits' if at.fits else 'does not fit'}: {takes}, {room}"
    return f"does not fit: {takes}, {room}; {at.layers} of {footprint.layers} layers fit"


def _facts(footprint: Footprint) -> Iterator[tuple[str, str]]:
    at = footprint.contexts[0]
    yield "weights", f"{exactly(footprint.weight_nbytes)}, as stored"
    if at.cache_nbytes is not None:
        yield "KV cache", f"{exactly(at.cache_nbytes)} for {at.context:,} tokens in {footprint.cache_dtype}"
    if footprint.device_nbytes is not None and footprint.margin_nbytes is not None:
        yield "device", exactly(footprint.device_nbytes)
        left = footprint.margin_nbytes
        yield "margin", f"{exactly(left)} left" if left >= 0 else f"{exactly(-left)} missing"
    if at.layers is not None and at.device_nbytes is not None and at.host_nbytes is not None:
        yield "on the device", f"{exactly(at.device_nbytes)}: {_placed(footprint, at)}"
        yield "on the host", exactly(at.host_nbytes)
        experts = " --cpu-moe" if footprint.experts_on_host else ""
        yield "llama.cpp", f"--n-gpu-layers {at.layers + bool(at.output)}{experts}"
    if footprint.largest_context is not None:
        end = ", the most it was made for" if footprint.largest_context == footprint.context_length else ""
        yield "longest context", f"{footprint.largest_context:,} tokens fit{end}"
    if footprint.layers is None and footprint.parts:
        largest = max(footprint.parts, key=lambda part: part.nbytes)
        yield "one at a time", f"at most {exactly(largest.nbytes)}: {largest.name}"
    if footprint.excludes:
        yield "excludes", ", ".join(_excluded(footprint))


def _placed(footprint: Footprint, at: FootprintAt) -> str:
    layers = f"{at.layers} of {footprint.layers} layers"
    return f"{layers} and the output layer" if at.output else layers


def _excluded(footprint: Footprint) -> Iterator[str]:
    scores = footprint.scores_nbytes
    for place, what in enumerate(footprint.excludes):
        usual = f" (usually a little more than {size(scores)})" if scores and not place else ""
        yield f"{what}{usual}"
