"""Putting back what was changed for a while, also when an interruption comes in the middle of it.

Ctrl-C, a handler of signals, an error in memory or another thread's exception can arrive between any two
lines. What is to be put back is therefore written down before it is changed, each undo sets an earlier state
and may run twice, and an interruption that comes while things are put back is kept until all of it is done.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import starmap
from typing import Any, Protocol, TypeVar

Result = TypeVar("Result")

ATTEMPTS = 50  # of an undo that fails, which may have been interrupted, or lacked memory for a moment
_MISSING = object()


class Lock(Protocol):
    """What one thread holds at a time."""

    def acquire(self) -> bool: ...
    def release(self) -> None: ...


class UndoLog:
    """What has to be put back, in the order in which it was changed."""

    def __init__(self) -> None:
        self._undos: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []

    def record(self, undo: Callable[..., Any], *args: Any) -> None:
        """Call this in the end, and before the change that it undoes is made. It may be called twice."""
        self._undos.append((undo, args))

    def replace(self, holder: Any, name: str, value: Any) -> None:
        """Give an attribute another value until the end."""
        self.record(_restore_attribute, holder, name, vars(holder).get(name, _MISSING))
        setattr(holder, name, value)

    def hold(self, lock: Lock) -> None:
        """Take a lock until the end."""
        taken: list[bool] = []
        # Each is one call of Python's own, which nothing can interrupt once it has begun.
        release = starmap(lock.release, ((),))
        self.record(lambda: next(release, None) if taken else None)
        taken.extend(starmap(lock.acquire, ((),)))

    def enter(self, manager: AbstractContextManager[Any]) -> None:
        """Stay inside a context manager until the end. What it changes should be recorded before as well."""
        inside: list[Any] = []
        self.record(_leave, manager, inside)
        inside.append(manager.__enter__())

    def undo_all(self) -> None:
        """Undo everything, newest first; the first trouble is raised when nothing is left to do.

        Called once more after an interruption, it goes on where it was.
        """
        undos = self._undos
        trouble: BaseException | None = None
        attempts = 0
        while undos:
            try:
                attempts += 1
                if attempts <= ATTEMPTS:
                    undo, args = undos[-1]
                    undo(*args)
                undos.pop()
                attempts = 0
            except BaseException as error:  # noqa: BLE001 - whatever comes waits until all is done
                forget_frames(error)
                trouble = trouble or error
        if trouble is not None:
            raise trouble


def run_and_undo(body: Callable[[UndoLog], Result]) -> Result:
    """What a function gives, after all that it has recorded was undone."""
    log = UndoLog()
    try:
        try:
            try:
                return body(log)
            except BaseException as error:
                forget_frames(error)
                raise
            finally:
                log.undo_all()
        finally:
            log.undo_all()  # an interruption may have kept the other one from its end
    except Exception as error:
        raise_interruption(error)  # what it tore apart may fail when it is undone
        raise


@contextmanager
def undoing() -> Iterator[UndoLog]:
    """A log of which everything is undone at the end of a `with` block."""
    log = UndoLog()
    try:
        try:
            yield log
        finally:
            log.undo_all()
    finally:
        log.undo_all()  # as above


def forget_frames(error: BaseException | None) -> None:
    """Let go of what the frames that an error passed through hold: guards, generators, stand-ins.

    The innermost lets go first, as it would have if nothing had gone wrong: guards set back what they found.
    """
    for each in _chain(error):
        for frame, _ in reversed(list(traceback.walk_tb(each.__traceback__))):
            with suppress(RuntimeError):  # a frame that runs
                frame.clear()


def drop_tracebacks(error: BaseException | None) -> None:
    """Let go of the frames themselves, and of those that called them."""
    for each in _chain(error):
        each.__traceback__ = None


def raise_interruption(error: BaseException) -> None:
    """Raise the interruption behind an error, if any: code that was torn apart fails in its own way."""
    for each in _chain(error):
        if not isinstance(each, (Exception, SystemExit, GeneratorExit)):
            raise each


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _restore_attribute(holder: Any, name: str, value: Any) -> None:
    if value is not _MISSING:
        setattr(holder, name, value)
    elif name in vars(holder):
        delattr(holder, name)


def _leave(manager: AbstractContextManager[Any], inside: list[Any]) -> None:
    if inside:
        inside.clear()
        manager.__exit__(None, None, None)
