"""What a recording of GPU memory shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from modelglass.page import Block, Cell, Column, Facts, Heading, Table
from modelglass.page.units import exactly, share, size
from modelglass.report import DeviceSnapshot, HeldMemory, MemorySnapshot

SHOWN_PLACES = 12
SHOWN_MOMENTS = 16
_PLACES = (
    Column("place", "made at", least=30, cut="middle", tone="accent"),
    Column("count", "×", number=True),
    Column("nbytes", "size", number=True),
    Column("share", "share", number=True),
)
_MOMENTS = (
    Column("event", "event", number=True),
    Column("allocated_nbytes", "allocated", number=True),
    Column("reserved_nbytes", "reserved", number=True),
)
_DATA = ("device", "place", "count", "nbytes", "stack")


def blocks(snapshot: MemorySnapshot, top: int | None) -> Iterator[Block]:
    """Figures, the course of it, and what was held at the peak, for each device."""
    yield Heading(f"{snapshot.source}: a recording of GPU memory", cut=True)
    for device in snapshot.devices:
        if len(snapshot.devices) > 1:
            yield Heading(f"device {device.device}", level=4)
        yield Facts(list(_facts(device)))
        if device.events:
            yield _course(device)
        yield _held(device, top or SHOWN_PLACES)


def data(snapshot: MemorySnapshot) -> Table:
    """A row for each place in the code that had made what was held at a peak."""
    columns = [Column(name, name, number=name in ("device", "count", "nbytes")) for name in _DATA]
    rows: list[Sequence[Cell | str]] = [
        [Cell(str(each), each) for each in (device.device, held.place, held.count, held.nbytes)]
        + ["; ".join(held.stack)]
        for device in snapshot.devices
        for held in device.held_at_peak
    ]
    return Table(columns, rows)


def _facts(device: DeviceSnapshot) -> Iterator[tuple[str, str]]:
    peak = device.peak
    yield (
        "peak allocated",
        f"{exactly(peak.allocated_nbytes)} after event {peak.event:,} of {device.events:,}",
    )
    yield "  reserved then", f"{size(peak.reserved_nbytes)} in {device.peak_segments:,} segments"
    if device.free_nbytes:
        yield (
            "  free then",
            f"{size(device.free_nbytes)}, at most {size(device.largest_free_nbytes)} in one piece",
        )
    yield "peak reserved", exactly(device.peak_reserved_nbytes)
    for label, moment in (("at the beginning", device.start), ("at the end", device.end)):
        yield label, f"{size(moment.allocated_nbytes)} allocated, {size(moment.reserved_nbytes)} reserved"
    if device.out_of_memory:
        requests = ", ".join(size(nbytes) for nbytes in device.out_of_memory[:4])
        yield "out of memory", f"{len(device.out_of_memory):,} times, asked for {requests}"


def _course(device: DeviceSnapshot) -> Table:
    """Moments of the recording, the highest of those around each."""
    step = -(-len(device.moments) // SHOWN_MOMENTS)
    parts = [device.moments[at : at + step] for at in range(0, len(device.moments), step)]
    shown = [max(part, key=lambda moment: moment.allocated_nbytes) for part in parts]
    rows = [
        [
            Cell(f"{moment.event:,}", moment.event),
            Cell(size(moment.allocated_nbytes), moment.allocated_nbytes),
            Cell(size(moment.reserved_nbytes), moment.reserved_nbytes),
        ]
        for moment in shown
    ]
    weights = [moment.allocated_nbytes for moment in shown]
    return Table(_MOMENTS, rows, title="over the recording", weights=weights, whole=True)


def _held(device: DeviceSnapshot, shown: int) -> Table:
    held = device.held_at_peak
    more = len(held) - shown
    return Table(
        _PLACES,
        [_row(each, device.peak.allocated_nbytes) for each in held[:shown]],
        title="held at the peak, by the code that made it",
        more=f"{more:,} more places" if more > 0 else "",
    )


def _row(held: HeldMemory, whole: int) -> list[Cell | str]:
    return [
        held.place,
        Cell(f"{held.count:,}", held.count),
        Cell(size(held.nbytes), held.nbytes),
        Cell(share(held.nbytes, whole), held.nbytes),
    ]
