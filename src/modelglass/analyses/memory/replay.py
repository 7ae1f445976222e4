"""A recording of an allocator, followed event by event: how much was taken, and what was held at the peak.

Events say what was asked for, and where it came to lie; how large blocks are follows by its rules.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from modelglass.analyses.memory.allocator import SMALL_SEGMENT, Block, CachingAllocator, Segment
from modelglass.report.allocator import AllocatorSettings
from modelglass.report.report import Note
from modelglass.report.snapshot import (
    DeviceSnapshot,
    HeldMemory,
    MemorySnapshot,
    RecordedBlock,
    RecordedEvent,
    RecordedSegment,
    Recording,
    SnapshotMoment,
)

_BEFORE: Final = "before the recording began"
_WITHOUT_STACK: Final = "code that was not recorded"
_UNSEEN: Final = -1  # the place of what was made before the first event
_MOST_MOMENTS: Final = 400
_MOST_HELD: Final = 1_000
_EXPANDABLE: Final = Note(
    code="expandable-segments",
    severity="info",
    text="expandable segments: reserved memory follows the pages that were mapped",
)
_INSTALLED: Final = ("/site-packages/", "/dist-packages/", "/torch/")


class Replay:
    """The allocator of one device, as it was at the beginning of a recording and after each event."""

    def __init__(self, recording: Recording) -> None:
        expandable = any(segment.expandable for segment in recording.segments)
        self._recording = recording
        self._allocator = CachingAllocator(AllocatorSettings(expandable_segments=expandable))
        self._places: dict[int, int | None] = {}  # of what is held, by address
        self._starts: list[int] | None = None  # of segments, sorted
        self.unknown = 0  # events about memory that was never there
        restore(self._allocator, beginning(recording))

    @property
    def now(self) -> tuple[int, int]:
        """Allocated and reserved bytes."""
        return self._allocator.allocated, self._allocator.reserved

    @property
    def segments(self) -> Iterable[Segment]:
        return self._allocator.segments.values()

    def follow(self, event: RecordedEvent) -> None:
        """Do what the event says."""
        if event.action == "alloc":
            self._take(event)
        elif event.action == "free_completed":
            self._allocator.free(event.address)
            self._places.pop(event.address, None)
        elif event.action in ("segment_alloc", "segment_map"):
            self._reserve(event)
        elif event.action in ("segment_free", "segment_unmap"):
            self._drop(event.address)

    def held(self) -> tuple[HeldMemory, ...]:
        """What is held now, by the place in the code that made it, the largest first."""
        nbytes: Counter[int | None] = Counter()
        count: Counter[int | None] = Counter()
        for segment in self.segments:
            for block in segment.blocks():
                if block.requested is not None:
                    place = self._places.get(block.address, _UNSEEN)
                    nbytes[place] += block.nbytes
                    count[place] += 1
        return tuple(
            HeldMemory(self._place_text(place), self._stack(place), size, count[place])
            for place, size in nbytes.most_common(_MOST_HELD)
        )

    def _stack(self, place: int | None) -> tuple[str, ...]:
        return () if place is None or place == _UNSEEN else self._recording.places[place]

    def _place_text(self, place: int | None) -> str:
        if place == _UNSEEN:
            return _BEFORE
        return innermost_line(self._stack(place)) or _WITHOUT_STACK

    def _take(self, event: RecordedEvent) -> None:
        block = self._free_block_at(event.address)
        if block is None:
            self.unknown += 1
        elif block.address == event.address:
            self._allocator.take(event.address, block, event.nbytes)
            self._places[event.address] = event.place
        else:  # not where the rules would have put it: another one was left out of the recording
            nbytes = min(self._allocator.round(event.nbytes), block.address + block.nbytes - event.address)
            self._allocator.hold_at(event.address, block, event.address, nbytes, event.nbytes)
            self._places[event.address] = event.place

    def _reserve(self, event: RecordedEvent) -> None:
        starts = self._sorted_starts()
        at = bisect_right(starts, event.address)
        last = self._allocator.segments[starts[at - 1]] if at else None
        after = starts[at] if at < len(starts) else event.address + event.nbytes
        if (last and last.address + last.nbytes > event.address) or after < event.address + event.nbytes:
            self.unknown += 1
            return
        self._starts = None
        pool = self._allocator.pool(event.stream, small=event.nbytes == SMALL_SEGMENT)
        self._allocator.reserve(pool, event.address, event.nbytes, expandable=event.action == "segment_map")

    def _sorted_starts(self) -> list[int]:
        self._starts = self._starts or sorted(self._allocator.segments)
        return self._starts

    def _drop(self, address: int) -> None:
        segment = self._allocator.segments.get(address)
        if segment is None or any(block.requested is not None for block in segment.blocks()):
            self.unknown += 1
            return
        self._starts = None
        self._allocator.drop(segment)

    def _free_block_at(self, address: int) -> Block | None:
        """The free block that has this address."""
        starts = self._sorted_starts()
        at = bisect_right(starts, address) - 1
        segment = self._allocator.segments[starts[at]] if at >= 0 else None
        if segment is None or address >= segment.address + segment.nbytes:
            return None
        found = segment.pool.free_at(address)
        if found is not None:
            return found
        for block in segment.blocks():
            if block.address <= address < block.address + block.nbytes:
                return block if block.requested is None else None
        return None


def beginning(recording: Recording) -> tuple[RecordedSegment, ...]:
    """What was there before the first event: the end, with each event taken back."""
    segments = {segment.address: segment for segment in recording.segments}
    held = {block.address: block for segment in recording.segments for block in segment.held}
    for event in reversed(recording.events):
        if event.action == "alloc":
            held.pop(event.address, None)
        elif event.action == "free_completed":
            held[event.address] = RecordedBlock(event.address, None, event.nbytes)
        elif event.action in ("segment_alloc", "segment_map"):
            segments.pop(event.address, None)
        elif event.action in ("segment_free", "segment_unmap"):
            small = event.nbytes == SMALL_SEGMENT
            segments[event.address] = RecordedSegment(event.address, event.nbytes, event.stream, small)
    starts = sorted(segments)
    inside: dict[int, list[RecordedBlock]] = {start: [] for start in starts}
    for address in sorted(held):
        at = bisect_right(starts, address) - 1
        if at >= 0 and address < starts[at] + segments[starts[at]].nbytes:
            inside[starts[at]].append(held[address]._replace(place=None))
    return tuple(segments[start]._replace(held=tuple(inside[start])) for start in starts)


def restore(allocator: CachingAllocator, segments: Iterable[RecordedSegment]) -> None:
    """Give an empty allocator these segments, and what was held in them; what overlaps is left out."""
    reached = 0
    for segment in segments:
        if segment.address < reached:
            continue
        reached = segment.address + segment.nbytes
        pool = allocator.pool(segment.stream, small=segment.small)
        rest = allocator.reserve(pool, segment.address, segment.nbytes, expandable=segment.expandable)
        ends = [block.address for block in segment.held[1:]] + [segment.address + segment.nbytes]
        for block, end in zip(segment.held, ends, strict=False):
            if rest.requested is not None or block.address < rest.address:
                continue
            room = end - block.address
            nbytes = block.nbytes or allocator.block_nbytes(rest.segment, block.requested_nbytes, room)
            allocator.hold_at(block.address, rest, block.address, nbytes, block.requested_nbytes)
            *_, rest = rest.segment.blocks()
    allocator.peak_allocated, allocator.peak_reserved = allocator.allocated, allocator.reserved


def memory_snapshot(source: str, recordings: Iterable[Recording]) -> MemorySnapshot:
    """What a file of recordings shows, without devices on which nothing happened."""
    used = [each for each in recordings if each.segments or each.events]
    replays = [device_snapshot(each) for each in used]
    notes = [note for each in replays for note in _notes(each)]
    if any(segment.expandable for each in used for segment in each.segments):
        notes.append(_EXPANDABLE)
    return MemorySnapshot(source, tuple(replays), tuple(notes))


def device_snapshot(recording: Recording) -> DeviceSnapshot:
    """What a recording shows; the second time through it stops at the peak."""
    at_end, history = _followed(recording)
    peak = max(history, key=lambda moment: moment.allocated_nbytes)
    at_peak = Replay(recording)
    for event in recording.events[: peak.event]:
        at_peak.follow(event)
    segments = list(at_peak.segments)
    free = [block.nbytes for each in segments for block in each.blocks() if block.requested is None]
    return DeviceSnapshot(
        device=recording.device,
        events=len(recording.events),
        start=history[0],
        peak=peak,
        end=history[-1],
        peak_reserved_nbytes=max(moment.reserved_nbytes for moment in history),
        largest_free_nbytes=max(free, default=0),
        peak_segments=len(segments),
        unexplained=at_end.unknown,
        out_of_memory=tuple(each.nbytes for each in recording.events if each.action == "oom"),
        held_at_peak=at_peak.held(),
        moments=_thinned(history),
    )


def innermost_line(stack: Sequence[str]) -> str:
    """The innermost line of Python that is not in an installed package, else the innermost; none of none."""
    python = [line for line in stack if ".py:" in line]
    own = [line for line in python if not any(folder in line for folder in _INSTALLED)]
    return (own or python or [*stack, ""])[0]


def _notes(snapshot: DeviceSnapshot) -> Iterator[Note]:
    """What a reader must know about the figures of one device."""
    name = f"device {snapshot.device}"
    if snapshot.events == 0:
        text = f"{name}: events were not recorded, so only what was held when the snapshot was made is known"
        how = "torch.cuda.memory._record_memory_history(), called before the run, records them"
        yield Note(code="no-events", severity="warning", text=f"{text}: {how}")
    elif snapshot.start.allocated_nbytes:
        text = f"{name}: memory was held before the first event; which code made it was not recorded"
        yield Note(code="recording-began-late", severity="info", text=text)
    if snapshot.unexplained:
        count = f"{snapshot.unexplained:,} of {snapshot.events:,} events"
        text = f"{name}: {count} are about memory that the recording does not show; figures are estimates"
        yield Note(code="unexplained-events", severity="warning", text=text)


def _followed(recording: Recording) -> tuple[Replay, list[SnapshotMoment]]:
    replay = Replay(recording)
    history = [SnapshotMoment(0, *replay.now)]
    for number, event in enumerate(recording.events, 1):
        replay.follow(event)
        history.append(SnapshotMoment(number, *replay.now))
    return replay, history


def _thinned(history: Sequence[SnapshotMoment]) -> tuple[SnapshotMoment, ...]:
    """A few hundred moments, each the highest of those around it."""
    width = -(-len(history) // _MOST_MOMENTS)
    parts = (history[at : at + width] for at in range(0, len(history), width))
    return tuple(max(part, key=lambda moment: moment.allocated_nbytes) for part in parts)
