"""Everything about an MLX model and the process that an inspection must not change."""

from __future__ import annotations

import gc
import random
import sys
import threading
import warnings
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy

_DEEPEST = 8


def fingerprint(model: nn.Module, *others: Any) -> dict[str, Any]:
    """Equal before and after exactly when nothing was changed. No array of the model is evaluated.

    What is compared by identity is kept in the fingerprint, so that no id is given out twice.
    """
    found = _Found()
    return {
        "model": found.of(model),
        "others": [found.of(other) for other in others],
        "classes": [_class(cls) for cls in found.classes],
        "process": _process(),
        "mlx": _functions(),
    }


class Same:
    """An object that only itself is equal to."""

    def __init__(self, thing: Any) -> None:
        self.thing = thing

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.thing is other.thing

    def __hash__(self) -> int:
        return id(self.thing)

    def __repr__(self) -> str:
        return f"<{type(self.thing).__name__} at {id(self.thing):#x}>"


class _Found:
    """Looks at objects, each once."""

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self.classes: dict[type, None] = {}

    def of(self, value: Any, depth: int = 0) -> Any:
        """The value, and what it holds."""
        if isinstance(value, mx.array):
            return Same(value), tuple(value.shape), value.dtype
        if isinstance(value, (int, float, str, bytes, bool, type(None), mx.Dtype)):
            return value
        if id(value) in self._seen or depth > _DEEPEST:
            return Same(value)
        self._seen.add(id(value))
        if isinstance(value, nn.Module):
            self.classes.update((cls, None) for cls in type(value).__mro__ if issubclass(cls, nn.Module))
        held: list[Any] = [Same(value), type(value)]
        if isinstance(value, dict):
            held += [(key, self.of(item, depth + 1)) for key, item in value.items()]
        elif isinstance(value, (list, tuple)):
            held += [self.of(item, depth + 1) for item in value]
        elif isinstance(value, set):
            held.append(set(value))
        if isinstance(value, random.Random):
            held.append(value.getstate())
        if isinstance(value, numpy.random.Generator):
            held.append(repr(value.bit_generator.state))
        for cell in getattr(value, "__closure__", None) or ():
            held.append(self.of(cell.cell_contents, depth + 1))
        if hasattr(value, "__dict__") and not isinstance(value, type):
            held += [(key, self.of(item, depth + 1)) for key, item in vars(value).items()]
        return held


def _class(cls: type) -> tuple[Any, ...]:
    """A class with what it defines, and everybody that inherits from it."""
    own = [(name, Same(value)) for name, value in vars(cls).items()]
    return Same(cls), own, [Same(each) for each in cls.__subclasses__()], cls.__bases__


def _process() -> dict[str, Any]:
    return {
        "mlx rng": mx.random.state[0].tolist(),
        "python rng": random.getstate(),
        "numpy rng": [
            part.tolist() if hasattr(part, "tolist") else part for part in numpy.random.get_state()
        ],
        "device": mx.default_device(),
        "stream": mx.default_stream(mx.default_device()),
        "gc": gc.isenabled(),
        "filters": list(warnings.filters),
        "path": list(sys.path),
        "threads": threading.active_count(),
    }


def _functions() -> list[Any]:
    holders = (mx, mx.fast, mx.random, nn, nn.Module)
    return [{name: Same(value) for name, value in vars(holder).items()} for holder in holders]
