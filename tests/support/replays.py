"""Recordings of real GPU runs, and the simulated allocator given the same requests."""

from __future__ import annotations

import gzip
import json
import pickle
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from modelglass.analyses.memory.allocator import Block, CachingAllocator, Segment
from modelglass.analyses.memory.replay import restore
from modelglass.formats.snapshots.unpickling import ACTIONS
from modelglass.report.allocator import AllocatorSettings
from modelglass.report.snapshot import RecordedBlock, RecordedEvent, RecordedSegment, Recording

RECORDINGS = sorted((Path(__file__).parents[1] / "recordings").glob("*.json.gz"))
UNIT = 512  # bytes that addresses are counted in
_NAMES = {letter: action for action, letter in ACTIONS.items()}


class Replayed(NamedTuple):
    """What the simulator came to, beside the recording."""

    allocator: CachingAllocator
    start: tuple[int, int]  # allocated and reserved
    equal: int  # addresses
    of: int


def load(path: Path) -> dict[str, Any]:
    with gzip.open(path, "rt") as file:
        return json.load(file)


def name_of(path: Path) -> str:
    return path.name.removesuffix(".json.gz")


def replay(recording: dict[str, Any]) -> Replayed:
    """Ask the simulator for what was asked of the real one; only new segments get their real address."""
    places: list[int] = []
    allocator = CachingAllocator(AllocatorSettings(), place=lambda nbytes: places.pop() if places else 0)
    restore(allocator, initial(recording))
    start = allocator.allocated, allocator.reserved
    equal = of = 0
    for action, address, nbytes, stream in events(recording):
        if action == "S":
            places.append(address)
        elif action == "a":
            block = allocator.allocate(address, nbytes, stream)
            of += 1
            equal += block is not None and block.address == address
        elif action == "f":
            allocator.free(address)
        elif action == "F" and address in allocator.segments:
            allocator.drop(allocator.segments[address])
    return Replayed(allocator, start, equal, of)


def events(recording: dict[str, Any]) -> list[tuple[str, int, int, int]]:
    """Action, address, bytes and stream of each."""
    columns = recording["events"]
    stream = columns["stream"]
    streams = stream if isinstance(stream, list) else [stream] * len(columns["action"])
    addresses = (max(address, 0) * UNIT for address in columns["address"])  # refusals have none
    return list(zip(columns["action"], addresses, columns["size"], streams, strict=True))


def initial(recording: dict[str, Any]) -> tuple[RecordedSegment, ...]:
    """What was there before the first event."""
    return tuple(
        RecordedSegment(address * UNIT, nbytes, stream, bool(small), False, tuple(map(_block, held)))
        for address, nbytes, stream, small, held in recording["initial"]
    )


def _block(held: list[int]) -> RecordedBlock:
    address, nbytes, requested = held
    return RecordedBlock(address * UNIT, nbytes or None, requested)


def file_content(recording: dict[str, Any], frames: list[dict[str, Any]] | None = None) -> bytes:
    """The recording as `torch.cuda.memory._dump_snapshot` writes one."""
    device = Recording(0, (), tuple(_event(*each) for each in events(recording)))
    allocator = replay(recording).allocator
    content = {
        "segments": [_segment(each, frames or []) for each in allocator.segments.values()],
        "device_traces": [[_trace(each, frames or []) for each in device.events]],
        "allocator_settings": {},
    }
    return pickle.dumps(content)


def _event(action: str, address: int, nbytes: int, stream: int) -> RecordedEvent:
    return RecordedEvent(_NAMES[action], address, nbytes, stream)


def _trace(event: RecordedEvent, frames: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "action": event.action,
        "addr": event.address,
        "size": event.nbytes,
        "stream": event.stream,
        "time_us": 0,
        "frames": frames,
    }


def _segment(segment: Segment, frames: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "device": 0,
        "address": segment.address,
        "total_size": segment.nbytes,
        "stream": segment.pool.stream,
        "segment_type": "small" if segment.pool.small else "large",
        "blocks": [
            {
                "address": block.address,
                "size": block.nbytes,
                "requested_size": block.requested or 0,
                "state": "inactive" if block.requested is None else "active_allocated",
                "frames": frames,
            }
            for block in segment.blocks()
        ],
    }


def recording_of(recording: dict[str, Any]) -> Recording:
    """The recording as a reader of snapshots gives it."""
    segments = tuple(
        RecordedSegment(
            each.address, each.nbytes, each.pool.stream, each.pool.small, held=tuple(_held(each.blocks()))
        )
        for each in replay(recording).allocator.segments.values()
    )
    return Recording(0, segments, tuple(_event(*each) for each in events(recording)))


def _held(blocks: Iterable[Block]) -> Iterator[RecordedBlock]:
    for block in blocks:
        if block.requested is not None:
            yield RecordedBlock(block.address, block.nbytes, block.requested)
