"""Files that `torch.cuda.memory._dump_snapshot` writes: what an allocator did, as it happened."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from modelglass.errors import CorruptFileError
from modelglass.formats.snapshots.unpickling import ACTIONS
from modelglass.report.snapshot import RecordedBlock, RecordedEvent, RecordedSegment, Recording

# In a process of its own; modules of the current folder do not come before installed ones there.
_COMMAND = (sys.executable, "-P", "-m", "modelglass.formats.snapshots.unpickling")
_MEMORY_FACTOR = 16  # bytes that unpickling a byte may take
_MEMORY_FREE = 512 << 20
_NAMES = {letter: action for action, letter in ACTIONS.items()}
_MARKS = (b"segments", b"device_traces")  # the first key of a snapshot is one of them
_HEAD = 64


def is_snapshot(head: bytes) -> bool:
    """Whether a file that begins so is a snapshot."""
    return head.startswith((b"\x80", b"}", b"(d")) and any(mark in head[:_HEAD] for mark in _MARKS)


def read(path: Path, memory_nbytes: int | None = None) -> tuple[Recording, ...]:
    """What was recorded on each device. Nothing in the file is run; its reader may take so much memory."""
    most = memory_nbytes or path.stat().st_size * _MEMORY_FACTOR + _MEMORY_FREE
    done = subprocess.run((*_COMMAND, str(path.absolute()), str(most)), capture_output=True, check=False)
    ended: dict[str, Any] = {"error": f"the process that unpickles it ended ({done.returncode})"}
    content = json.loads(done.stdout) if done.returncode == 0 and done.stdout else ended
    if "error" in content:
        raise CorruptFileError(
            f"this is not a recording of memory that can be read: {content['error']}",
            file=str(path),
            code="snapshot",
            hint="pass a file that torch.cuda.memory._dump_snapshot wrote",
        )
    places = tuple(tuple(each) for each in content["places"])
    return tuple(_recording(each, places) for each in content["devices"])


def _recording(device: dict[str, Any], places: tuple[tuple[str, ...], ...]) -> Recording:
    streams: dict[int, int] = {}  # pointers, by the number that stands for them

    def number(stream: int) -> int:
        return streams.setdefault(stream, len(streams))

    segments = tuple(
        RecordedSegment(address, nbytes, number(stream), small, expandable, _blocks(held))
        for address, nbytes, stream, small, expandable, held in device["segments"]
    )
    columns = device["events"]
    streams_of_events = map(number, columns["stream"])
    rest = (columns["address"], columns["nbytes"], streams_of_events, columns["place"])
    actions = (_NAMES.get(letter, "?") for letter in columns["action"])
    events = tuple(map(RecordedEvent._make, zip(actions, *rest, strict=True)))
    return Recording(device["device"], segments, events, places)


def _blocks(held: list[list[Any]]) -> tuple[RecordedBlock, ...]:
    return tuple(map(RecordedBlock._make, held))
