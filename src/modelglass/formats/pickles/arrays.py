"""Arrays between the opcodes of a pickle, as joblib writes them: values follow what stands for them.

Python's own unpickler knows nothing of them and takes the values for opcodes: such a file has two readings.
"""

from __future__ import annotations

import re
from math import prod
from typing import Any

from modelglass.formats.files_beside import is_safe_relative
from modelglass.formats.pickles.machine import Machine
from modelglass.formats.pickles.objects import Pairs, Thing, as_text

WRAPPERS = frozenset(
    (
        "joblib.numpy_pickle.NumpyArrayWrapper",
        "sklearn.externals.joblib.numpy_pickle.NumpyArrayWrapper",
    )
)
_BESIDE = "NDArrayWrapper"  # of joblib before 0.10: the values are in a file that the state names
_ITEM = re.compile(r"[<>|=]?([a-zA-Z?])([0-9]*)")
_NO_STATE = (3, "|", None, None, None, -1, -1, 0)
_HOLDS_OBJECTS = 1  # of numpy's flags


def has_arrays(machine: Machine) -> bool:
    """Whether a stream that was run has such arrays."""
    return any(use.path in WRAPPERS for use in machine.uses)


def has_others(machine: Machine) -> bool:
    """Whether some were made in another way than joblib's, so that their values were taken for opcodes."""
    return sum(use.calls for use in machine.uses if use.path in WRAPPERS) != machine.arrays


def pass_over(machine: Machine, built: Thing) -> None:
    """Pass over the values that follow a wrapper whose state was set; objects are a pickle, which is run."""
    state = built.state
    if type(state) is not Pairs:
        return
    if built.path.startswith(("joblib.", "sklearn.externals.joblib.")) and built.path.endswith(_BESIDE):
        name = as_text(state.get("filename"))
        if not name or is_safe_relative(name) is not None:
            machine.odd("pickle.outside", f"joblib reads an array from {name[:200]!r}, another place")
    if built.path not in WRAPPERS:
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
        machine.arrays += 1
        return
    if state.get("numpy_array_alignment_bytes") is not None:
        feed.skip(feed.take(1, "an array's padding")[0], "an array's padding")
    feed.skip(prod(shape) * item, "an array's values")
    machine.arrays += 1


def _run_objects(outer: Machine) -> None:
    """An array of objects is a pickle of its own, in the middle of the other."""
    inner = Machine(outer.feed.source, outer.limits, offset=outer.feed.offset)
    inner.uses, inner.oddities, inner.refusals = outer.uses, outer.oddities, outer.refusals
    inner.run()
    outer.feed.skip(inner.feed.offset - outer.feed.offset, "an array's objects")


def _item(dtype: Any) -> int | None:
    """Bytes of one element by its type; 0 for objects, None when it is not known."""
    if not isinstance(dtype, Thing):
        return None
    found = _ITEM.fullmatch(as_text(dtype.first_argument))
    state = _NO_STATE if dtype.state is None else dtype.state
    if found is None or type(state) is not tuple or not 8 <= len(state) <= 9:
        return None
    # As numpy reads it: a state may change the size of some kinds, and of each whether it holds objects.
    subarray, nbytes, flags = state[2], state[5], state[7]
    if subarray is not None or type(nbytes) is not int or type(flags) is not int:
        return None
    kind, digits = found[1], found[2]
    if flags & _HOLDS_OBJECTS or (kind == "O" and dtype.state is None):
        return 0
    if kind in "SUV" and nbytes > 0:
        return nbytes
    size = int(digits) if 0 < len(digits) < 10 else 1 if kind in "?b" else None
    return None if not size or kind == "O" else size * 4 if kind == "U" else size
