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
from typing import Any

from modelglass.errors import UntrustedError

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_EVENTS = {
    "start a program": "os.system os.exec os.posix_spawn os.spawn os.startfile os.fork subprocess.Popen",
    "connect to another machine": "socket.connect socket.bind socket.sendto socket.getaddrinfo "
    "socket.gethostbyname socket.gethostbyaddr",
    "change files": "os.remove os.rename os.rmdir os.mkdir os.link os.symlink os.truncate os.chmod os.chown",
    "load a pickle": "pickle.find_class",
}
_REFUSED = {event: act for act, events in _EVENTS.items() for event in events.split()}
_IMPORT = "<frozen importlib._bootstrap>"  # the file of what imports modules
# The threads that have such a model, with how many imports were under way by then.
_guarded: dict[int, int] = {}


@contextmanager
def guarded() -> Iterator[None]:
    """Inside, this thread starts nothing, connects to nothing, writes no file and loads no pickle.

    Importing is let do what it does: only installed packages can be imported then, and some keep caches.
    """
    _listen()
    thread = threading.get_ident()
    before = _guarded.get(thread)
    _guarded[thread] = _imports()
    try:
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
    before = _guarded.get(threading.get_ident())
    if before is None:
        return
    act = "write a file" if event == "open" and _writes(*args[:3]) else _REFUSED.get(event)
    if act is not None and _imports() == before:
        raise UntrustedError(
            f"it would {act} ({event} {str(args[0])[:200]!r})",
            hint="if you trust the file and what it names: --trust (trust=True in Python)",
        )


def _writes(path: Any, mode: str | None, flags: int) -> bool:
    return bool(flags & _WRITES) and path != os.devnull


def _imports() -> int:
    """How many imports are under way in this thread."""
    frame, found = sys._getframe(), 0
    while frame.f_back is not None:
        frame = frame.f_back
        found += frame.f_code.co_filename == _IMPORT
    return found
