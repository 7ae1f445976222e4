"""What torch keeps for the thread that runs: modes, keys of the dispatcher, hooks of autograd.

A `with` block that an interruption ends between two lines may leave them half changed, so they are read
before a run and set afterwards, whoever pushed or popped what in between.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from modelglass.frameworks.torch import privates
from modelglass.undo import UndoLog


def keep_thread_state(log: UndoLog) -> None:
    """Have what torch keeps for this thread set back in the end."""
    _keep_keys(log)
    _keep_stack(log, privates.dispatch_modes, privates.pop_dispatch_mode, privates.push_dispatch_mode)
    _keep_stack(log, privates.function_modes, privates.pop_function_mode, privates.push_function_mode)
    _keep_pre_dispatch(log)
    log.record(privates.set_default_device, *privates.default_device())
    log.record(privates.set_mode_flags, privates.mode_flags())
    for read, write in privates.thread_settings:
        log.record(write, read())
    log.record(_restore_saving, privates.top_saving_hooks(True))
    stance = privates.stance_of_compiler()
    if stance is not None:
        log.record(*stance)


def _keep_keys(log: UndoLog) -> None:
    """Which keys of the dispatcher are switched on and off."""
    for read, is_on, write in privates.switches:
        before = [(key, is_on(key)) for key in privates.dispatch_keys]
        log.record(_restore_keys, is_on, write, before, read, repr(read()))


def _restore_keys(
    is_on: Callable[[Any], bool],
    write: Callable[[Any, bool], Any],
    before: list[tuple[Any, bool]],
    read: Callable[[], Any],
    text: str,
) -> None:
    if repr(read()) == text:
        return
    for key, was_on in before:
        if is_on(key) != was_on:
            write(key, was_on)


def _keep_stack(
    log: UndoLog, read: Callable[[], list[Any]], pop: Callable[[], Any], push: Callable[[Any], Any]
) -> None:
    log.record(_restore_stack, read(), read, pop, push)


def _restore_stack(
    before: list[Any], read: Callable[[], list[Any]], pop: Callable[[], Any], push: Callable[[Any], Any]
) -> None:
    if list(map(id, read())) == list(map(id, before)):
        return
    while read():
        pop()
    for mode in before:
        push(mode)


def _keep_pre_dispatch(log: UndoLog) -> None:
    """The modes of the level at which operators are seen."""
    state, attributes = privates.pre_dispatch_modes()
    for name, value in attributes.items():
        if isinstance(value, list):
            log.record(partial(value.__setitem__, slice(None)), list(value))
        else:
            log.record(setattr, state, name, value)


def _restore_saving(before: Any) -> None:
    """Hooks on what autograd saves; those of the run are on top."""
    while (top := privates.top_saving_hooks(True)) is not None and top != before:
        privates.pop_saving_hooks()
