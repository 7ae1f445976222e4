"""Keeping signals waiting where an exception would do damage.

Ctrl-C is an exception that Python's handler raises between any two lines. Inside a dispatch, torch's own code
in C++ may wait for an answer that cannot fail: an exception there ends the process. In what undoes a run it
would leave the rest undone, and in a finalizer it is lost. While signals are held, a handler of Python's that
would run at such a moment runs at the next safe one instead.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # what `signal` wraps in Python
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable
from copy import copy
from itertools import starmap
from types import CodeType, FrameType
from typing import Any, TypeVar

from modelglass.undo import UndoLog

Function = TypeVar("Function", bound=Callable[..., Any])

waiting: list[tuple[Callable[..., Any], int]] = []  # handlers for the next safe moment, each with its signal

# What C++ asks, in classes and modes of torch's, of ours and of the user's; what runs when an object goes.
_NAMES = frozenset({"__torch_dispatch__", "__del__"})
_uninterrupted: set[CodeType] = {UndoLog.undo_all.__code__}


def uninterrupted(function: Function) -> Function:
    """A function during which held signals wait."""
    _uninterrupted.add(function.__code__)  # type: ignore[attr-defined]
    return function


def hold_signals(log: UndoLog) -> None:
    """Have handlers of signals run at safe moments only, until the log is undone and right after."""
    if threading.current_thread() is not threading.main_thread():
        return  # handlers run in the main thread alone
    raised: list[BaseException] = []
    found = [(number, signal.getsignal(number)) for number in signal.valid_signals()]
    before = [(number, handler) for number, handler in found if callable(handler)]
    held = [(number, _Held(handler, raised)) for number, handler in before]
    log.record(_raise_the_rest, raised, sys.exc_info()[1])
    log.record(_set_handlers, before)
    _set_handlers(held)


def _set_handlers(handlers: Iterable[tuple[int, Callable[..., Any]]]) -> None:
    """All at once: nothing of this is Python's own code, between the lines of which a signal might arrive."""
    deque(starmap(_signal.signal, handlers), maxlen=0)


def run_waiting() -> None:
    """Run the handlers that wait. This is a safe moment: whatever they raise may pass."""
    if threading.current_thread() is not threading.main_thread():
        return
    for _ in range(len(waiting)):  # a run around this one may have it wait again
        handler, number = waiting.pop(0)
        handler(number, sys._getframe())


def _raise_the_rest(raised: list[BaseException], outer: BaseException | None) -> None:
    """Run what waits, and raise what got lost: Python ignores errors in finalizers and callbacks."""
    run_waiting()
    lost, raised[:] = raised[:], []
    if lost and sys.exc_info()[1] is outer:  # else the run ends with an error already
        raise lost[0]


class _Held:
    """A handler that waits where it would do damage, and notes what it raises."""

    def __init__(self, handler: Callable[..., Any], raised: list[BaseException]) -> None:
        self._handler = handler
        self._raised = raised

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if _may_not_raise(frame):
            waiting.append((self._run, number))
        else:
            self._run(number, frame)

    def _run(self, number: int, frame: FrameType | None) -> None:
        try:
            self._handler(number, frame)
        except BaseException as error:
            self._raised.append(copy(error))  # without the frames that it passes through
            raise


@uninterrupted
def _may_not_raise(frame: FrameType | None) -> bool:
    while frame is not None:
        code = frame.f_code
        if code in _uninterrupted or code.co_name in _NAMES:
            return True
        frame = frame.f_back
    return False
