"""The values of a model's arrays as numpy arrays, one array at a time and a piece at a time.

MLX computes an array when its values are first wanted, and keeps them in it. So that reading does not fill
the memory with a model that nobody had computed, an array that waits is computed in a copy of its graph,
which is dropped after the last piece. That cannot be done where the graph cannot be copied (arrays that wait
to be loaded from a file) or leads back to large arrays: there the model's own array is computed and stays.
Only the thread that made an array can compute it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import RLock
from typing import Any

import mlx.core as mx
from mlx import nn

from modelglass.errors import TargetError
from modelglass.frameworks.describing import joined
from modelglass.frameworks.mlx.describe import dtype_name
from modelglass.frameworks.mlx.packing import packed_slots
from modelglass.frameworks.mlx.structure import walk_names
from modelglass.report.values import Values

COPIED_CONSTANTS = 1 << 20  # bytes of other arrays that a copied graph may hold


def values(native: nn.Module) -> Mapping[str, Values | str]:
    """How to read each array by name."""
    sources: dict[int, _Source] = {}
    found: dict[str, Values | str] = {}
    for path, module in walk_names(native):
        for slot, packing, _ in packed_slots(module):
            source = sources.setdefault(id(slot.array), _Source(slot.array))
            found[joined(path, slot.name)] = Values(
                dtype=dtype_name(slot.array.dtype),
                shape=tuple(slot.array.shape),
                read=source.read,
                described="values" if packing is None else "stored",
                held=source.held,
            )
    return found


class _Source:
    """An array, and its words in memory while somebody reads them."""

    def __init__(self, array: mx.array) -> None:
        self._array = array
        self._words: Any = None
        self._readers = 0
        self._lock = RLock()

    @contextmanager
    def held(self) -> Iterator[None]:
        with self._lock:
            if self._words is None:
                self._words = _words(self._array)
            self._readers += 1
        try:
            yield
        finally:
            with self._lock:
                self._readers -= 1
                if not self._readers:
                    self._words = None

    def read(self, start: int, stop: int) -> Any:
        with self.held():
            words = self._words
        if words.flags["C_CONTIGUOUS"]:
            return words.reshape(-1)[start:stop]
        return words.flat[start:stop]  # copies these elements and no others


def _words(array: mx.array) -> Any:
    """The array's memory as numpy sees it; computed if it has to be."""
    import numpy as np

    ready = _ready(array)
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


def _ready(array: mx.array) -> mx.array:
    """The array, if it is computed or cannot be copied; else the same, to be computed from a copied graph."""
    try:
        if _is_computed_or_large(array):
            return array
        with TemporaryDirectory(prefix="modelglass-") as folder:
            path = str(Path(folder) / "array.mlxfn")
            mx.export_function(path, lambda: [array])
            again: Any = mx.import_function(path)
            fresh: mx.array = again()[0]
            return fresh
    except ValueError:  # a primitive that cannot be written down
        return array


def _is_computed_or_large(array: mx.array) -> bool:
    """Whether nothing waits to be done, or it would be done with more than a copy should hold."""
    steps: list[dict[str, Any]] = []
    mx.export_function(steps.append, lambda: [array])
    if not any(step["type"] == "primitive" for step in steps):
        return True
    held: list[mx.array] = [array for step in steps for _, array in step.get("constants", ())]
    return sum(constant.nbytes for constant in held) > COPIED_CONSTANTS
