"""What torch keeps for the thread that runs: modes, keys of the dispatcher, hooks of autograd.

A `with` block that an interruption ends between two lines may leave them half changed, so they are read
before a run and set afterwards, whoever pushed or popped what in between.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import _ops
from torch.utils import _device, _python_dispatch

from modelglass.undo import UndoLog

_FLAGS = tuple(name for name in vars(_python_dispatch) if name.startswith("_is_in_"))
_TELL = getattr(_python_dispatch, "set_is_in_mode_without_ignore_compile_internals", None)
_SWITCHES = (
    (
        torch._C._dispatch_tls_local_include_set,
        torch._C._dispatch_tls_is_dispatch_key_included,
        torch._C._dispatch_tls_set_dispatch_key_included,
    ),
    (
        torch._C._dispatch_tls_local_exclude_set,
        torch._C._dispatch_tls_is_dispatch_key_excluded,
        torch._C._dispatch_tls_set_dispatch_key_excluded,
    ),
)
# All that are no backend's, some of which have no name.
_KEYS = tuple(map(torch._C.DispatchKey, range(1, torch._C.DispatchKey.PythonDispatcher.value + 1)))


def keep_thread_state(log: UndoLog) -> None:
    """Have what torch keeps for this thread set back in the end."""
    _keep_keys(log)
    _keep_stack(log, _dispatch_modes, _pop_dispatch_mode, _push_dispatch_mode)
    _keep_stack(
        log, _function_modes, torch._C._pop_torch_function_stack, torch._C._push_on_torch_function_stack
    )
    _keep_pre_dispatch(log)
    log.record(_restore_default_device, _default_device(), _device.CURRENT_DEVICE)
    log.record(_restore_flags, {name: getattr(_python_dispatch, name) for name in _FLAGS})
    log.record(torch._C._set_only_lift_cpu_tensors, torch._C._only_lift_cpu_tensors())
    log.record(_restore_saving, torch._C._autograd._top_saved_tensors_default_hooks(True))
    frames = sys.modules.get("torch._dynamo.eval_frame")
    if frames is not None and hasattr(frames, "_set_stance"):
        log.record(frames._set_stance, frames._stance)


def _keep_keys(log: UndoLog) -> None:
    """Which keys of the dispatcher are switched on and off."""
    log.record(torch._C._set_meta_in_tls_dispatch_include, torch._C._meta_in_tls_dispatch_include())
    for read, is_on, write in _SWITCHES:
        before = [(key, is_on(key)) for key in _KEYS]
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


def _dispatch_modes() -> list[Any]:
    at = torch._C._get_dispatch_stack_at
    return [at(index) for index in range(torch._C._len_torch_dispatch_stack())]


def _pop_dispatch_mode() -> None:
    torch._C._pop_torch_dispatch_stack(None)


def _push_dispatch_mode(mode: Any) -> None:
    if getattr(mode, "_mode_key", None) is not None:
        torch._C._set_dispatch_mode(mode)
    else:
        torch._C._push_on_torch_dispatch_stack(mode)


def _function_modes() -> list[Any]:
    at = torch._C._get_function_stack_at
    return [at(index) for index in range(torch._C._len_torch_function_stack())]


def _keep_pre_dispatch(log: UndoLog) -> None:
    """The modes of the level at which operators are seen."""
    state = _ops.mode_stack_state_for_pre_dispatch()
    for name, value in vars(state).items():
        if isinstance(value, list):
            log.record(partial(value.__setitem__, slice(None)), list(value))
        else:
            log.record(setattr, state, name, value)


def _restore_flags(before: dict[str, bool]) -> None:
    for name, value in before.items():
        setattr(_python_dispatch, name, value)
    if _TELL is not None:
        _TELL(before["_is_in_any_mode_without_ignore_compile_internals"])


def _restore_saving(before: Any) -> None:
    """Hooks on what autograd saves; those of the run are on top."""
    read = torch._C._autograd._top_saved_tensors_default_hooks
    while (top := read(True)) is not None and top != before:
        torch._C._autograd._pop_saved_tensors_default_hooks()


def _default_device() -> Any:
    """The context that `torch.set_default_device` installed, or None."""
    return getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)


def _restore_default_device(context: Any, device: Any) -> None:
    if _default_device() is not context:
        torch._GLOBAL_DEVICE_CONTEXT.device_context = context
    _device.CURRENT_DEVICE = device
