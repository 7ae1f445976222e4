"""Files scanned in a process of their own, which a file may exhaust and the caller survives.

The process has so much memory and time for each file, cannot write to any file, and tells what it found as
JSON. When its time is nearly over it stops by itself and tells what it has; otherwise it is ended.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from _thread import interrupt_main
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from threading import Event, Timer
from types import FrameType, TracebackType
from typing import IO, NamedTuple
from warnings import catch_warnings, simplefilter

from modelglass.forking import can_fork
from modelglass.formats.confine import confine
from modelglass.formats.limits import Limits
from modelglass.formats.scan.scanned_file import ScanAnswer, look
from modelglass.report import Finding, ScannedFile, codec

# The process; modules of the current folder do not come before installed ones there.
_COMMAND = (sys.executable, "-P", "-m", "modelglass.formats.scan.isolated")
_OWN = 0.8  # of the time, after which the process stops by itself
_THREADED = ("torch", "mlx", "numpy")  # packages whose threads do not survive a fork


class Isolated:
    """The process that looks at files, started when it is first needed and again when a file ended it."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._process: _Process | None = None

    def __enter__(self) -> Isolated:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def look(self, path: Path, within: Path | None) -> ScanAnswer:
        """What is found in a file; that the process did not come to an end with it is a finding, too."""
        if self._process is None:
            self._process = _started(self._limits)
        answer, too_late = self._asked(self._process, [_hex(path), None if within is None else _hex(within)])
        if not answer.endswith(b"\n"):
            code = self._end()
            why = f"took longer than seconds = {self._limits.seconds}" if too_late else f"ended ({code})"
            return ScanAnswer(_ended(path, why))
        file, opened = json.loads(answer)
        return ScanAnswer(codec.from_json(ScannedFile, file), tuple(str(_path(each)) for each in opened))

    def _asked(self, process: _Process, order: list[str | None]) -> tuple[bytes, bool]:
        """The answer, and whether the process was ended because it took too long."""
        killed = Event()

        def kill() -> None:
            killed.set()
            process.kill()

        timer = Timer(self._limits.seconds, kill)
        timer.start()
        try:
            with suppress(OSError):  # the process is gone; systems say it in several ways
                process.orders.write(json.dumps(order).encode() + b"\n")
                process.orders.flush()
            return process.answers.readline(), killed.is_set()
        finally:
            timer.cancel()

    def _end(self) -> int:
        """End the process, which keeps nothing, and say with which code it ended."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.kill()
        for pipe in (process.orders, process.answers):
            with suppress(OSError):
                pipe.close()
        return process.wait()


class _Process(NamedTuple):
    """Another process, however it was started."""

    orders: IO[bytes]
    answers: IO[bytes]
    kill: Callable[[], None]
    wait: Callable[[], int]


def _started(limits: Limits) -> _Process:
    """A copy of this process, which is there at once; a new one where copying is not possible or not wise."""
    if can_fork() and not any(name in sys.modules for name in _THREADED):
        return _forked(limits)
    command = (*_COMMAND, json.dumps(asdict(limits)))
    pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nowhere)
    assert process.stdin is not None
    assert process.stdout is not None
    return _Process(process.stdin, process.stdout, process.kill, process.wait)


def _forked(limits: Limits) -> _Process:
    (orders, to_child), (from_child, answers) = os.pipe(), os.pipe()
    with catch_warnings():
        # A thread that shows progress is left behind, and not missed.
        simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            os.close(to_child)
            os.close(from_child)
            _serve(limits, os.fdopen(orders, "rb"), os.fdopen(answers, "wb"))
        finally:
            os._exit(1)  # whatever happened, this copy goes no further
    os.close(orders)
    os.close(answers)

    def wait() -> int:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def kill() -> None:
        os.kill(child, signal.SIGKILL)

    return _Process(os.fdopen(to_child, "wb"), os.fdopen(from_child, "rb"), kill, wait)


def _hex(path: Path | str) -> str:
    """A path as text that JSON has, whatever its bytes are."""
    return os.fsencode(path).hex()


def _path(text: str) -> Path:
    return Path(os.fsdecode(bytes.fromhex(text)))


def _ended(path: Path, why: str) -> ScannedFile:
    """A file that its reader did not come to an end with."""
    text = f"the process that read it {why}: what it found is lost, and the file is as if not looked at"
    hint = "if you trust the file, give it more: --limit seconds=N, --limit memory_nbytes=N"
    finding = Finding(code="limit", level="limit", text=text, file=str(path), details={"hint": hint})
    nbytes = path.stat().st_size if path.is_file() else None
    return ScannedFile(path=str(path), format=None, nbytes=nbytes, read_nbytes=0, findings=(finding,))


# In the process


class _TimeUpError(Exception):
    """The time for a file is nearly over."""


def main() -> None:
    """Look at files as they are asked for, in a process that was started for it."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing that a library prints gets between the answers
    _serve(Limits(**json.loads(sys.argv[1])), sys.stdin.buffer, answers)


def _serve(limits: Limits, orders: IO[bytes], answers: IO[bytes]) -> None:
    """Look at files as they are asked for, one line each, until nobody asks any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever is interrupted ends this process
    confine(limits.memory_nbytes)
    for line in orders:
        path, within = json.loads(line)
        found = _looked(_path(path), within and _path(within), limits)
        answer = [codec.to_json(found.file), [_hex(each) for each in found.opened]]
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()


def _looked(path: Path, within: Path | None, limits: Limits) -> ScanAnswer:
    with _alarm(limits.seconds * _OWN):
        return look(path, within, limits, exhausted=(_TimeUpError, MemoryError))


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Inside, an error is raised after so long."""
    if not hasattr(signal, "setitimer"):
        with _alarm_of_thread(seconds):
            yield
        return
    signal.signal(signal.SIGALRM, _ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


@contextmanager
def _alarm_of_thread(seconds: float) -> Iterator[None]:
    """The same where the system has no timers (Windows): another thread has this one run a handler."""
    signal.signal(signal.SIGTERM, _ring)
    timer = Timer(seconds, interrupt_main, (signal.SIGTERM,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _ring(number: int, frame: FrameType | None) -> None:
    raise _TimeUpError


if __name__ == "__main__":
    main()
