"""The values of a model's arrays as numpy arrays, one array at a time and a piece at a time.

MLX computes an array when its values are first wanted, and keeps them in it. So that reading does not fill
the memory with a model that nobody had computed, an array that waits is computed in a copy of its graph,
which is dropped after the last piece. That cannot be done where the graph cannot be copied (arrays that wait
to be loaded from a file, or to be quantized as nvfp4 or mxfp8) or leads back to large arrays: there the
model's own array is computed and stays.
Only the thread that made an array can compute it.

A packed weight is offered as the numbers it stands for. They are computed from words in memory, by numpy: MLX
would start a thread, and keep it, for every one of ours that computes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import RLock
from typing import Any

import mlx.core as mx
from mlx import nn

from modelglass.errors import TargetError
from modelglass.frameworks.mlx.describe import dtype_name
from modelglass.frameworks.mlx.structure.modules import make_unused, walk_names
from modelglass.frameworks.mlx.structure.packing import find_packed_slots
from modelglass.frameworks.shared.describe import join_path
from modelglass.quantized import dequantized
from modelglass.report.values import Values

COPIED_CONSTANTS = 1 << 20  # bytes of other arrays that a copied graph may hold


def values(native: nn.Module) -> Mapping[str, Values | str]:
    """How to read each array by name."""
    sources = _Sources()
    found: dict[str, Values | str] = {}
    taken: set[str] = set()
    for path, module in walk_names(native):
        for slot, packing, _, beside in find_packed_slots(module):
            stored = sources.offer(slot.array, tuple(beside.values()))
            if packing is not None:
                sides = {role: sources.offer(array) for role, array in beside.items()}
                stored = dequantized(packing, stored, sides) or replace(stored, described="stored")
            found[make_unused(join_path(path, slot.name), taken)] = stored
    return found


class _Sources:
    """Where each array is read. One that several names or weights share is read in one place."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[_Source, int]] = {}

    def offer(self, array: mx.array, beside: Sequence[mx.array] = ()) -> Values:
        """The elements of an array; those beside it are computed together with it."""
        if id(array) not in self._known:
            arrays = (array, *beside)
            source = _Source(arrays)
            for index, each in enumerate(arrays):
                self._known.setdefault(id(each), (source, index))
        source, index = self._known[id(array)]
        return Values(
            dtype=dtype_name(array.dtype),
            shape=tuple(array.shape),
            read=partial(source.read, index),
            held=source.loaded,
        )


class _Source:
    """Arrays that are computed together, and their words in memory while somebody reads them."""

    def __init__(self, arrays: Sequence[mx.array]) -> None:
        self._arrays = arrays
        self._words: list[Any] | None = None
        self._readers = 0
        self._lock = RLock()

    @contextmanager
    def loaded(self) -> Iterator[None]:
        with self._lock:
            if self._words is None:
                self._words = [_view_memory(array) for array in _compute_waiting(self._arrays)]
            self._readers += 1
        try:
            yield
        finally:
            with self._lock:
                self._readers -= 1
                if not self._readers:
                    self._words = None

    def read(self, index: int, start: int, stop: int) -> Any:
        with self.loaded():
            words = (self._words or ())[index]
        if words.flags["C_CONTIGUOUS"]:
            return words.reshape(-1)[start:stop]
        return words.flat[start:stop]  # copies these elements and no others


def _view_memory(ready: mx.array) -> Any:
    """The array's memory as numpy sees it; computed if it has to be."""
    import numpy as np

    if ready.dtype == mx.bfloat16:
        ready = ready.view(mx.uint16)  # numpy has no such type; these are the same bits
    try:
        words = np.array(ready, copy=False)
    except RuntimeError as error:  # what waits to be loaded may be gone, and memory may not suffice
        raise TargetError(
            f"MLX cannot compute an array of the model: {error}",
            hint="evaluate the model (mx.eval(model.parameters())) in the thread that made it",
        ) from error
    words.flags.writeable = False
    return words


def _compute_waiting(arrays: Sequence[mx.array]) -> list[mx.array]:
    """The arrays; those that wait to be computed from a copied graph, if they can be copied."""
    copies: dict[int, mx.array] = {}
    try:
        waiting = {id(array): array for array in arrays if _waits_for_little(array)}
        if waiting:
            copies = dict(zip(waiting, _copy_graph(list(waiting.values())), strict=True))
    except ValueError:  # a primitive that cannot be written down
        pass
    return [copies.get(id(array), array) for array in arrays]


def _copy_graph(arrays: list[mx.array]) -> list[mx.array]:
    with TemporaryDirectory(prefix="modelglass-") as folder:
        path = str(Path(folder) / "arrays.mlxfn")
        mx.export_function(path, lambda: arrays)
        again: Any = mx.import_function(path)
        return list(again())


def _waits_for_little(array: mx.array) -> bool:
    """Whether something waits to be done, and with no more than a copy should hold."""
    steps: list[dict[str, Any]] = []
    mx.export_function(steps.append, lambda: [array])
    if not any(step["type"] == "primitive" for step in steps):
        return False
    held: list[mx.array] = [array for step in steps for _, array in step.get("constants", ())]
    return sum(constant.nbytes for constant in held) <= COPIED_CONSTANTS
