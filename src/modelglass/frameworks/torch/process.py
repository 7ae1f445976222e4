"""The process around an observed run: what it must find again afterwards."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from threading import RLock
from typing import Any

import torch

from modelglass.frameworks.state.python_state import (
    keep_python_state,
    keep_random_states,
    keep_warnings,
    seed_python,
)
from modelglass.frameworks.torch.observing.thread_state import keep_thread_state
from modelglass.frameworks.torch.privates import find_pre_dispatch_modes, hooks_of_all_modules
from modelglass.undo import UndoLog, undoing


def _attribute(holder: Any, name: str) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    return partial(getattr, holder, name), partial(setattr, holder, name)


# Settings of torch as pairs of how to read them and how to set them.
_SETTINGS: tuple[tuple[Callable[[], Any], Callable[[Any], Any]], ...] = (
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.get_num_threads, torch.set_num_threads),
    (torch.is_anomaly_enabled, torch.set_anomaly_enabled),
    (partial(torch.is_autocast_enabled, "cpu"), partial(torch.set_autocast_enabled, "cpu")),
    (partial(torch.get_autocast_dtype, "cpu"), partial(torch.set_autocast_dtype, "cpu")),
    (torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
    (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
    (torch.is_grad_enabled, torch.set_grad_enabled),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    (torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.enable_flash_sdp),
    (torch.backends.cuda.math_sdp_enabled, torch.backends.cuda.enable_math_sdp),
    (torch.backends.cuda.mem_efficient_sdp_enabled, torch.backends.cuda.enable_mem_efficient_sdp),
    (torch.backends.mha.get_fastpath_enabled, torch.backends.mha.set_fastpath_enabled),
    _attribute(torch.backends.mkldnn, "enabled"),
    *(_attribute(torch.backends.cudnn, name) for name in ("enabled", "benchmark", "deterministic")),
)


# What a run changes for a while in torch and in the process cannot be shared by two threads.
one_at_a_time = RLock()


def keep_process(log: UndoLog) -> None:
    """Have random states, torch's settings and Python's be in the end as they are now."""
    keep_python_state(log)
    _keep_settings(log)


@contextmanager
def untouched_process() -> Iterator[None]:
    """Random states, gradient mode, torch's settings and warnings' filters are the same afterwards."""
    with undoing() as log:
        keep_thread_state(log)
        keep_warnings(log)
        keep_random_states(log)
        _keep_settings(log)
        yield


def _keep_settings(log: UndoLog) -> None:
    log.record(torch.clear_autocast_cache)  # where the user's own autocast would find casts of our run
    for read, write in _SETTINGS:
        log.record(_restore_setting, read, write, read())
    for hooks in hooks_of_all_modules():
        log.record(_restore_hooks, hooks, dict(hooks))
    _keep_generators(log)


def _restore_hooks(hooks: dict[int, Any], before: dict[int, Any]) -> None:
    if hooks != before:
        hooks.clear()
        hooks.update(before)


@contextmanager
def seeded() -> Iterator[None]:
    """Random numbers begin at the same point each time; afterwards their states are as before."""
    with undoing() as log:
        _keep_generators(log)
        keep_random_states(log)
        torch.manual_seed(0)
        seed_python(0)
        yield


def _keep_generators(log: UndoLog) -> None:
    generators = [torch.default_generator]
    if torch.cuda.is_initialized():
        generators += torch.cuda.default_generators
    for generator in generators:
        log.record(generator.set_state, generator.get_state())


def _restore_setting(read: Callable[[], Any], write: Callable[[Any], Any], before: Any) -> None:
    if read() != before:
        write(before)


def replace_here(log: UndoLog, holder: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Put another function in a function's place until the end, for this thread; others call what was there.

    `make` is given the original.
    """
    original, here = getattr(holder, name), threading.get_ident()
    ours = make(original)

    @wraps(original)
    def chosen(*args: Any, **kwargs: Any) -> Any:
        return (ours if threading.get_ident() == here else original)(*args, **kwargs)

    log.replace(holder, name, chosen)


def use_own_modes(log: UndoLog) -> None:
    """Have modes on the PreDispatch key be this thread's alone until the end.

    torch has one place for those of all threads, and takes them out for a while to print a tensor.
    """
    home, name = find_pre_dispatch_modes()
    if home is None:
        return
    of_all, here = getattr(home, name)(), threading.get_ident()
    ours = type(of_all)()
    log.replace(home, name, lambda: ours if threading.get_ident() == here else of_all)


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
