"""Arrays between the opcodes of a pickle, as joblib writes them: values follow what stands for them.

Python's own unpickler knows nothing of them and takes the values for opcodes: such a file has two readings.
"""

from __future__ import annotations

import re
from math import prod
from typing import Any

from modelglass.formats.pickles.machine import Machine
from modelglass.formats.pickles.objects import Pairs, Thing, as_text

WRAPPERS = frozenset(
    (
        "joblib.numpy_pickle.NumpyArrayWrapper",
        "sklearn.externals.joblib.numpy_pickle.NumpyArrayWrapper",
    )
)
_ITEM = re.compile(r"[<>|=]?([a-zA-Z?])([0-9]*)")
_OBJECT = "O"
_MOST_FIELDS = 1000


def has_arrays(machine: Machine) -> bool:
    """Whether a stream that was run has such arrays."""
    return any(use.calls and use.path in WRAPPERS for use in machine.uses)


def pass_over(machine: Machine, built: Thing) -> None:
    """Pass over the values that follow a wrapper whose state was set; objects are a pickle, which is run."""
    state = built.state
    if built.path not in WRAPPERS or type(state) is not Pairs:
        return
    feed = machine.feed
    if feed.frame_end is not None:
        if feed.offset < feed.frame_end:
            raise feed.corrupt("an array begins inside of a frame", code="pickle.frame")
        feed.frame_end = None
    item, shape = _item(state.get("dtype")), state.get("shape")
    if item is None or type(shape) is not tuple or not all(type(size) is int and size >= 0 for size in shape):
        raise feed.corrupt("an array whose size is not known", code="pickle.array")
    if item == 0:
        _run_objects(machine)
        return
    if state.get("numpy_array_alignment_bytes") is not None:
        feed.skip(feed.take(1, "an array's padding")[0], "an array's padding")
    feed.skip(prod(shape) * item, "an array's values")


def _run_objects(outer: Machine) -> None:
    """An array of objects is a pickle of its own, in the middle of the other."""
    inner = Machine(outer.feed.source, outer.limits, offset=outer.feed.offset)
    inner.uses, inner.oddities, inner.refusals = outer.uses, outer.oddities, outer.refusals
    inner.run()
    outer.feed.skip(inner.feed.offset - outer.feed.offset, "an array's objects")


def _item(dtype: Any) -> int | None:
    """Bytes of one element by the call that makes its type; 0 for objects, None when it is not known."""
    if not isinstance(dtype, Thing) or not dtype.args or not isinstance(dtype.args[0], (str, bytes)):
        return None
    found = _ITEM.fullmatch(as_text(dtype.args[0]))
    if found is None:
        return None
    kind, digits = found[1], found[2]
    if kind == _OBJECT or (kind == "V" and _holds_objects(dtype)):
        return 0
    size = int(digits) if 0 < len(digits) < 10 else 1 if kind in "?b" else None
    return None if size is None else size * 4 if kind == "U" else size


def _holds_objects(dtype: Thing) -> bool:
    """Whether a field of a structured type is an object."""
    waiting: list[Any] = [dtype.state]
    for _ in range(_MOST_FIELDS):
        if not waiting:
            return False
        value = waiting.pop()
        if isinstance(value, (tuple, list)):
            waiting += value[:_MOST_FIELDS]
        elif isinstance(value, Pairs):
            waiting += value.flat[:_MOST_FIELDS]
        elif isinstance(value, Thing):
            if (
                value.args
                and isinstance(value.args[0], (str, bytes))
                and _OBJECT in as_text(value.args[0])[:2]
            ):
                return True
            waiting.append(value.state)
    return True
