"""What a recording of GPU memory shows: how much was taken, when, and by which line of code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from modelglass.report.report import Note


class RecordedBlock(NamedTuple):
    """Memory that was held. `nbytes` is None where only the request is known, `place` where it was made."""

    address: int
    nbytes: int | None
    requested_nbytes: int
    place: int | None = None


class RecordedSegment(NamedTuple):
    """Memory of the device that the allocator had, and what was held in it."""

    address: int
    nbytes: int
    stream: int = 0
    small: bool = False
    expandable: bool = False
    held: tuple[RecordedBlock, ...] = ()


class RecordedEvent(NamedTuple):
    """Something that the allocator did."""

    action: str  # as torch calls it: alloc, free_completed, segment_alloc, …
    address: int
    nbytes: int
    stream: int = 0
    place: int | None = None


@dataclass(frozen=True)
class Recording:
    """One device in a snapshot: what was there at the end, and the events that led to it."""

    device: int
    segments: tuple[RecordedSegment, ...]
    events: tuple[RecordedEvent, ...]
    places: tuple[tuple[str, ...], ...] = ()  # stacks of code, the innermost line first


@dataclass(frozen=True)
class HeldMemory:
    """What one place in the code had made, of what was held at the peak."""

    place: str
    stack: tuple[str, ...]  # the innermost line first; empty: it was made before the recording began
    nbytes: int
    count: int


@dataclass(frozen=True)
class SnapshotMoment:
    """How much the allocator had given away, and had of the device, after so many events."""

    event: int
    allocated_nbytes: int
    reserved_nbytes: int


@dataclass(frozen=True)
class DeviceSnapshot:
    """What a recording shows of one device."""

    device: int
    events: int
    start: SnapshotMoment
    peak: SnapshotMoment  # of allocated memory
    end: SnapshotMoment
    peak_reserved_nbytes: int
    largest_free_nbytes: int  # at the peak, in one piece
    peak_segments: int
    unexplained: int  # events about memory that the recording does not show
    out_of_memory: tuple[int, ...]  # bytes of requests that were refused
    held_at_peak: tuple[HeldMemory, ...]  # the largest first
    moments: tuple[SnapshotMoment, ...]  # a few hundred, with all peaks of what lies between

    @property
    def free_nbytes(self) -> int:
        """What the allocator had of the device at the peak and nobody held."""
        return self.peak.reserved_nbytes - self.peak.allocated_nbytes


@dataclass(frozen=True)
class MemorySnapshot:
    """A file that `torch.cuda.memory._dump_snapshot` wrote, followed event by event."""

    source: str
    devices: tuple[DeviceSnapshot, ...]
    notes: tuple[Note, ...] = ()
