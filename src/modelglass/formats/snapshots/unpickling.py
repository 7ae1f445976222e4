"""The process that unpickles a snapshot: a file may exhaust it, and its caller survives.

A snapshot holds dicts, lists, tuples, texts and numbers; a file that names anything else is refused.
"""

from __future__ import annotations

import gc
import json
import os
import pickle
import sys
from pathlib import Path
from typing import Any

from modelglass.formats.confine import confine

ACTIONS = {
    "alloc": "a",
    "free_requested": "r",
    "free_completed": "f",
    "segment_alloc": "S",
    "segment_free": "F",
    "segment_map": "M",
    "segment_unmap": "U",
    "oom": "o",
    "snapshot": "s",
}
_MOST_FRAMES = 24  # of one stack
_MOST_TEXT = 240  # characters of one line of it
_LARGEST = 1 << 63
# What the pickle machine, or a look at what it made, raises where a file is not what it should be.
_DAMAGED = (
    pickle.UnpicklingError,
    ValueError,
    LookupError,
    TypeError,
    EOFError,
    AttributeError,
    OverflowError,
)


class _PlainData(pickle.Unpickler):
    """Refuses every name."""

    def find_class(self, module: str, name: str) -> Any:
        raise ValueError(f"it names {module}.{name}, and a snapshot holds plain data only"[:_MOST_TEXT])

    def persistent_load(self, id: object) -> Any:
        raise ValueError("it refers to something outside of it, and a snapshot holds plain data only")


class _Places:
    """Stacks of code, each once."""

    def __init__(self) -> None:
        self.stacks: list[tuple[str, ...]] = []
        self._known: dict[tuple[str, ...], int] = {}
        self._by_object: dict[int, int] = {}

    def number(self, frames: object) -> int | None:
        if not isinstance(frames, list) or not frames:
            return None
        if id(frames) not in self._by_object:
            stack = tuple(_line(each) for each in frames[:_MOST_FRAMES] if isinstance(each, dict))
            if stack not in self._known:
                self._known[stack] = len(self.stacks)
                self.stacks.append(stack)
            self._by_object[id(frames)] = self._known[stack]
        return self._by_object[id(frames)]


def _line(frame: dict[str, Any]) -> str:
    return f"{frame.get('filename')}:{frame.get('line')} {frame.get('name')}"[:_MOST_TEXT]


def _whole(content: dict[str, Any], name: str) -> int:
    value = content.get(name)
    if type(value) is not int or not 0 <= value < _LARGEST:
        raise ValueError(f"{name} is not a number of bytes: {value!r}"[:_MOST_TEXT])
    return value


def compact(snapshot: object) -> dict[str, Any]:
    """What is used of a snapshot, in columns."""
    if not isinstance(snapshot, dict) or not {"segments", "device_traces"} <= snapshot.keys():
        raise ValueError("it does not have segments and device_traces")
    places = _Places()
    segments = _listed(snapshot["segments"])
    devices = []
    for device, trace in enumerate(_listed(snapshot["device_traces"])):
        own = [_segment(each, places) for each in segments if _whole(each, "device") == device]
        devices.append({"device": device, "segments": own, "events": _events(_listed(trace), places)})
    return {"devices": devices, "places": places.stacks}


def _listed(content: object) -> list[Any]:
    if not isinstance(content, list):
        raise ValueError(f"a {type(content).__name__} is where a list belongs")
    return content


def _segment(segment: dict[str, Any], places: _Places) -> list[Any]:
    held = []
    address = _whole(segment, "address")
    for block in _listed(segment["blocks"]):
        nbytes = _whole(block, "size")
        if block["state"] == "active_allocated":
            requested = _whole(block, "requested_size") if "requested_size" in block else nbytes
            held.append(
                [block.get("address", address), nbytes, requested, places.number(block.get("frames"))]
            )
        address += nbytes
    small, expandable = segment.get("segment_type") == "small", bool(segment.get("is_expandable"))
    first, total = _whole(segment, "address"), _whole(segment, "total_size")
    return [first, total, _whole(segment, "stream"), small, expandable, held]


def _events(trace: list[dict[str, Any]], places: _Places) -> dict[str, Any]:
    columns: dict[str, Any] = {
        "action": "".join(ACTIONS.get(each["action"], "?") for each in trace),
        "address": [_whole(each, "addr") if "addr" in each else 0 for each in trace],
        "nbytes": [_whole(each, "size") for each in trace],
        "stream": [_whole(each, "stream") for each in trace],
        "place": [places.number(each.get("frames")) for each in trace],
    }
    return columns


def main() -> None:
    """Write what is in the file to standard output, as JSON: the columns, or an error."""
    path, memory_nbytes = sys.argv[1:]
    confine(int(memory_nbytes))
    gc.disable()
    try:
        with Path(path).open("rb") as file:
            answer = compact(_PlainData(file).load())
    except MemoryError:
        answer = {"error": f"reading it takes more memory than memory_nbytes = {int(memory_nbytes):,}"}
    except _DAMAGED as cause:
        answer = {"error": str(cause) or type(cause).__name__}
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        json.dump(answer, answers)


if __name__ == "__main__":
    main()
