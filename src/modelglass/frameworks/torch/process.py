"""The process around an observed run: what it must find again afterwards."""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import RLock
from typing import Any

import torch

# Settings of torch as pairs of how to read them and how to set them.
_SETTINGS: tuple[tuple[Callable[[], Any], Callable[[Any], Any]], ...] = (
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.get_num_threads, torch.set_num_threads),
    (torch.is_anomaly_enabled, torch.set_anomaly_enabled),
    (partial(torch.is_autocast_enabled, "cpu"), partial(torch.set_autocast_enabled, "cpu")),
    (partial(torch.get_autocast_dtype, "cpu"), partial(torch.set_autocast_dtype, "cpu")),
    (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
    (torch.is_grad_enabled, torch.set_grad_enabled),
)


# What a run changes for a while in torch and in the process cannot be shared by two threads.
one_at_a_time = RLock()


@contextmanager
def untouched_process() -> Iterator[None]:
    """Random states, gradient mode and torch's settings are the same afterwards."""
    with warnings.catch_warnings():  # their filters, too
        yield from _restoring()


def _restoring() -> Iterator[None]:
    settings = [(read, write, read()) for read, write in _SETTINGS]
    states = list(_random_states())
    device = _default_device()
    try:
        yield
    finally:
        for read, write, before in settings:
            if read() != before:
                write(before)
        for restore in states:
            restore()
        if _default_device() is not device:
            torch.set_default_device(None if device is None else device.device)


@contextmanager
def seeded() -> Iterator[None]:
    """Random numbers begin at the same point each time; afterwards their states are as before."""
    states = list(_random_states())
    torch.manual_seed(0)
    random.seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)
    try:
        yield
    finally:
        for restore in states:
            restore()


def _random_states() -> Iterator[partial[Any]]:
    generators = [torch.default_generator]
    if torch.cuda.is_initialized():
        generators += torch.cuda.default_generators
    for generator in generators:
        yield partial(generator.set_state, generator.get_state())
    yield partial(random.setstate, random.getstate())
    numpy = sys.modules.get("numpy")  # nobody's numpy state changes if nobody loaded it
    if numpy is not None:
        yield partial(numpy.random.set_state, numpy.random.get_state())


def _default_device() -> Any:
    """The context that `torch.set_default_device` installed, or None."""
    return getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)


@contextmanager
def during(holder: object, **state: Any) -> Iterator[None]:
    """Attributes of an object have these values inside, and those they had before afterwards."""
    before = {name: getattr(holder, name) for name in state}
    for name, value in state.items():
        setattr(holder, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(holder, name, value)
