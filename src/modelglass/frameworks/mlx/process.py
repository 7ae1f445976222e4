"""The process around an observed run: what it must find again afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any

import mlx.core as mx

from modelglass.frameworks.state.python_state import keep_python_state, keep_random_states, seed_python
from modelglass.undo import UndoLog, undoing

# What a run exchanges in a model cannot be shared by two threads.
one_at_a_time = RLock()


def keep_process(log: UndoLog) -> None:
    """Have random states, the default device and Python's settings be in the end as they are now."""
    log.record(_restore_device, mx.default_device())
    keep_python_state(log)
    _keep_key(log)


@contextmanager
def untouched_process() -> Iterator[None]:
    """Random states, the default device and warnings' filters are the same afterwards."""
    with undoing() as log:
        keep_process(log)
        yield


@contextmanager
def seeded() -> Iterator[None]:
    """Random numbers begin at the same point each time; afterwards their states are as before."""
    with undoing() as log:
        keep_random_states(log)
        _keep_key(log)
        mx.random.seed(0)
        seed_python(0)
        yield


def _keep_key(log: UndoLog) -> None:
    state: Any = mx.random.state
    log.record(_restore_key, state[0])


def _restore_key(key: Any) -> None:
    state: Any = mx.random.state
    if state[0] is not key:  # else nothing has to be evaluated
        high, low = key.tolist()
        mx.random.seed(high << 32 | low)


def _restore_device(device: Any) -> None:
    if mx.default_device() != device:
        mx.set_default_device(device)
