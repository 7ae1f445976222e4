"""While a model is built and run that nobody vouches for, the process changes nothing outside of itself.

It is proven to be of a model class; yet a constructor or a run may do anything with the texts it gets.
This is the second wall: Python itself reports what the code is about to do, and some of it is refused.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from modelglass.errors import UntrustedError
from modelglass.user_code import folders_of_packages

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_EVENTS = {
    "start a program": "os.system os.exec os.posix_spawn os.spawn os.startfile os.startfile/2 os.fork "
    "os.forkpty pty.spawn subprocess.Popen",
    "stop a program": "os.kill os.killpg signal.pthread_kill",
    "connect to another machine": "socket.connect socket.bind socket.sendto socket.sendmsg "
    "socket.getaddrinfo socket.gethostbyname socket.gethostbyaddr socket.getnameinfo",
    "change files": "os.remove os.rename os.rmdir os.mkdir os.link os.symlink os.truncate os.chmod os.chown "
    "os.chflags os.utime os.setxattr os.removexattr sqlite3.connect",
    "load a pickle": "pickle.find_class",
    "load a library": "ctypes.dlopen",
}
_REFUSED = {event: act for act, events in _EVENTS.items() for event in events.split()}
_WATCHED = frozenset({*_REFUSED, "open", "exec", "import"})
_IMPORT = "<frozen importlib._bootstrap>"  # the file of what imports modules
_MOST_SHOWN = 200  # characters


class _Guard(NamedTuple):
    """What is allowed to one thread."""

    imports: int  # that were under way when it began
    installed: tuple[str, ...]  # folders, of which code may be run


_guarded: dict[int, _Guard] = {}  # by thread
_parents: WeakKeyDictionary[threading.Thread, int] = (
    WeakKeyDictionary()
)  # of threads that guarded ones started


@contextmanager
def guarded() -> Iterator[None]:
    """Inside, this thread starts nothing, connects to nothing, writes no file and loads no pickle.

    Importing is let do what it does, as some packages keep caches; but code of files that are not installed
    does not run, however it is found. Threads that this one starts by Python's own class have the same rules.
    """
    _listen()
    thread = threading.get_ident()
    before = _guarded.get(thread)
    _guarded[thread] = _Guard(_imports(), _installed())
    try:
        with _threads_followed():
            yield
    finally:
        del _guarded[thread]
        if before is not None:
            _guarded[thread] = before


@contextmanager
def lifted() -> Iterator[None]:
    """Inside, this thread may do everything again: code runs that the user named."""
    thread = threading.get_ident()
    before = _guarded.pop(thread, None)
    try:
        yield
    finally:
        if before is not None:
            _guarded[thread] = before


@cache
def _listen() -> None:
    """Hear of what Python is about to do. Such a listener cannot be taken away; outside it lets all pass."""
    sys.addaudithook(_refuse)


def _refuse(event: str, args: tuple[Any, ...]) -> None:
    guard = _guard_here() if _guarded and event in _WATCHED else None
    if guard is None:
        return
    stranger = _code_of(event, args)
    if stranger is not None and _is_strange(stranger, guard.installed):
        raise _refusal("run code of a file that is not installed", event, stranger)
    act = "write a file" if event == "open" and _writes(*args[:3]) else _REFUSED.get(event)
    if act is not None and _imports() == guard.imports:
        raise _refusal(act, event, args[0])


def _refusal(act: str, event: str, about: Any) -> UntrustedError:
    return UntrustedError(
        f"it would {act} ({event} {str(about)[:_MOST_SHOWN]!r})",
        hint="if you trust the file and what it names: --trust (trust=True in Python)",
    )


def _guard_here() -> _Guard | None:
    """What is allowed to this thread: its own, or what the one that started it has."""
    thread = threading.get_ident()
    owner = _owner(thread)
    guard = _guarded.get(owner)
    return guard if guard is None or owner == thread else guard._replace(imports=0)


def _owner(thread: int) -> int:
    """The thread that began it all."""
    if thread in _guarded or not _parents:
        return thread
    return next((parent for each, parent in list(_parents.items()) if each.ident == thread), thread)


_following = threading.RLock()
_inside: list[Any] = []  # Python's own way to start a thread, for each that is inside


@contextmanager
def _threads_followed() -> Iterator[None]:
    """Inside, threads that guarded ones start are known."""
    with _following:
        _inside.append(_inside[0] if _inside else threading.Thread.start)
        if len(_inside) == 1:
            threading.Thread.start = _follow  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        with _following:
            if len(_inside) == 1:
                threading.Thread.start = _inside[0]  # type: ignore[method-assign]
            _inside.pop()


def _follow(thread: threading.Thread) -> None:
    """Start a thread, and remember whose it is."""
    if _guard_here() is not None:
        _parents[thread] = _owner(threading.get_ident())
    start = next(iter(_inside), threading.Thread.start)
    start(thread)


def _code_of(event: str, args: tuple[Any, ...]) -> str | None:
    """The file of the code that is about to run, or of the compiled module that is about to be loaded."""
    if event == "exec":
        return getattr(args[0], "co_filename", None)
    return args[1] if event == "import" and isinstance(args[1], str) else None


def _is_strange(file: str, installed: tuple[str, ...]) -> bool:
    """Whether this is a file outside of all folders; what is made of texts has none, as <string>."""
    if file.startswith((*installed, "<")):
        return False
    return os.path.exists(file) and not os.path.realpath(file).startswith(installed)


def _installed() -> tuple[str, ...]:
    """Folders of what is installed, and of what may be imported besides, each as it is and as links lead."""
    named = {str(each) for each in (*folders_of_packages(), *filter(None, sys.path))}
    return tuple({os.path.join(each, "") for path in named for each in (path, os.path.realpath(path))})


def _writes(path: Any, mode: str | None, flags: int) -> bool:
    return bool(flags & _WRITES) and path != os.devnull


def _imports() -> int:
    """How many imports are under way in this thread."""
    frame, found = sys._getframe(), 0
    while frame.f_back is not None:
        frame = frame.f_back
        found += frame.f_code.co_filename == _IMPORT
    return found
