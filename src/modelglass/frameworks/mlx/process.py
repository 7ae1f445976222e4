"""The process around an observed run: what it must find again afterwards."""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any

import mlx.core as mx

# What a run exchanges in a model cannot be shared by two threads.
one_at_a_time = RLock()


@contextmanager
def untouched_process() -> Iterator[None]:
    """Random states, the default device and warnings' filters are the same afterwards."""
    device = mx.default_device()
    with warnings.catch_warnings():
        try:
            with _same_randomness():
                yield
        finally:
            if mx.default_device() != device:
                mx.set_default_device(device)


@contextmanager
def seeded() -> Iterator[None]:
    """Random numbers begin at the same point each time; afterwards their states are as before."""
    with _same_randomness():
        mx.random.seed(0)
        random.seed(0)
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed(0)
        yield


@contextmanager
def _same_randomness() -> Iterator[None]:
    state: Any = mx.random.state
    key = state[0]
    python = random.getstate()
    numpy = sys.modules.get("numpy")
    numpys = None if numpy is None else numpy.random.get_state()
    try:
        yield
    finally:
        if state[0] is not key:  # else nothing has to be evaluated
            high, low = key.tolist()
            mx.random.seed(high << 32 | low)
        random.setstate(python)
        if numpy is not None:
            numpy.random.set_state(numpys)
