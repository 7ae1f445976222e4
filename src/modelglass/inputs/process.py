"""A search in a copy of this process, which ends with its time whatever the model's code does."""

from __future__ import annotations

import os
import pickle
import select
import signal
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from typing import IO
from warnings import catch_warnings, simplefilter

from modelglass.forking import can_fork
from modelglass.inputs.effects import Effects
from modelglass.inputs.search import Found, Search

_GRACE = 1.0  # seconds that a copy may take beyond its time, for the trial that is going on


def search_within(seconds: float, make: Callable[[bool], Search], *, can_copy: bool) -> Found:
    """What a search finds. Its trials run in a copy of this process where there can be one.

    `make` learns whether it is in a copy, which has nothing to tidy up.
    """
    if not can_copy or not can_fork():
        return make(False).found()
    reading, writing = os.pipe()
    with catch_warnings():
        simplefilter("ignore", DeprecationWarning)  # other threads are left behind, and not missed
        child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            _serve(os.fdopen(writing, "wb"), make)
        finally:
            os._exit(1)
    os.close(writing)
    try:
        return _awaited(reading, time.monotonic() + seconds + _GRACE)
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _serve(answers: IO[bytes], make: Callable[[bool], Search]) -> None:
    """Search, and send the best trial whenever there is a better one, then the end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever is interrupted ends this copy
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nowhere, number)
    with open(nowhere, "w") as silent, redirect_stdout(silent), redirect_stderr(silent):
        search = make(True)
        effects = Effects()
        search.effect = lambda: effects.seen
        search.on_trial = lambda found: _send(answers, found)
        with redirect_stdout(effects):
            _send(answers, search.found())


def _send(answers: IO[bytes], found: Found) -> None:
    data = pickle.dumps(found)
    answers.write(len(data).to_bytes(8, "little") + data)
    answers.flush()


def _awaited(reading: int, until: float) -> Found:
    """The last that a copy has sent when it ends, or when its time is over."""
    received = bytearray()
    while (left := until - time.monotonic()) > 0 and select.select([reading], [], [], left)[0]:
        piece = os.read(reading, 1 << 16)
        if not piece:
            break
        received += piece
    return _last(bytes(received))


def _last(received: bytes) -> Found:
    found = Found(call=None, trial=None, trials=0, seconds_over=True)
    while len(received) >= 8:
        size = int.from_bytes(received[:8], "little")
        if len(received) < 8 + size:
            break
        found, received = pickle.loads(received[8 : 8 + size]), received[8 + size :]
    return found
