"""Contestants that take turns, each in a process of its own, so that none can slow down or stop another."""

from __future__ import annotations

import importlib
import multiprocessing
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from errors_said import said
from side_by_side import forget_peak, peak_mib

PREPARING_SECONDS = 600  # imports and building, on a machine that has other things to do
SLOW_SECONDS, SLOW_ROUNDS = 5, 3  # whoever takes so long has fewer turns

Call = Callable[[], Any]
Prepare = tuple[Any, ...]  # a module, a function that gives back the call, and its arguments: plain values
Figures = dict[str, Any]


class Turn(NamedTuple):
    """What one call took, by how much it raised the peak of its process, and what it gave back."""

    seconds: float
    added_mib: float
    answer: Any


class FailedError(Exception):
    """A contestant that cannot go on, and how it failed."""


class Contestant:
    """A process that prepares a call once, and makes it whenever it is told to."""

    def __init__(self, prepare: Prepare) -> None:
        # One of multiprocessing's own processes would not do: torchlens refuses to work in those.
        self._pipe, theirs = multiprocessing.Pipe()
        command = [sys.executable, __file__, str(theirs.fileno())]
        nothing = subprocess.DEVNULL  # whatever a tool prints is not wanted
        self._process = subprocess.Popen(
            command, pass_fds=[theirs.fileno()], stdin=nothing, stdout=nothing, stderr=nothing
        )
        theirs.close()
        self._pipe.send(prepare)

    def ready(self) -> None:
        """Wait until it is prepared."""
        self._answer(PREPARING_SECONDS)

    def turn(self, seconds: float) -> Turn:
        """One call, which may take so long."""
        self._pipe.send("go")
        return Turn(*self._answer(seconds))

    def end(self) -> None:
        """Stop it, wherever it is."""
        self._process.kill()
        self._process.wait()
        self._pipe.close()

    def _answer(self, seconds: float) -> Any:
        if not self._pipe.poll(seconds):
            raise FailedError(f"takes more than {seconds:g} s")
        try:
            failed, answer = self._pipe.recv()
        except EOFError:
            raise FailedError(f"crashes: {_ended(self._process.wait())}") from None
        if failed:
            raise FailedError(f"crashes: {answer}")
        return answer


def race(prepares: Mapping[str, Prepare], rounds: int, limit: float) -> dict[str, Figures]:
    """Seconds, added memory and answer of each, or how it failed.

    The first call is not timed; its memory counts, for it is when a tool loads what it needs. Seconds are the
    median of the calls after it.
    """
    found: dict[str, Figures] = {}
    running = {name: Contestant(prepare) for name, prepare in prepares.items()}
    try:
        first = _still(running, found, lambda contestant: (contestant.ready(), contestant.turn(limit))[1])
        times: dict[str, list[float]] = {name: [] for name in first}
        for number in range(rounds):
            turns = {
                name: each
                for name, each in running.items()
                if name not in found and (number < SLOW_ROUNDS or first[name].seconds < SLOW_SECONDS)
            }
            for name, turn in _still(turns, found, lambda contestant: contestant.turn(limit)).items():
                times[name].append(turn.seconds)
    finally:
        for each in running.values():
            each.end()
    figures = {name: _figures(first[name], times[name]) for name in first if name not in found}
    return {name: figures.get(name) or found[name] for name in prepares}


def failure(prepare: Prepare, limit: float) -> str | None:
    """How a contestant's first call fails, if it does."""
    contestant = Contestant(prepare)
    try:
        contestant.ready()
        contestant.turn(limit)
    except FailedError as error:
        return str(error)
    finally:
        contestant.end()
    return None


def _still(
    running: Mapping[str, Contestant], found: dict[str, Figures], ask: Callable[[Contestant], Turn]
) -> dict[str, Turn]:
    """The turns of those that have not failed; how the others failed is noted."""
    turns = {}
    for name, contestant in running.items():
        try:
            turns[name] = ask(contestant)
        except FailedError as error:
            found[name] = {"failed": str(error)}
            contestant.end()
            print(f"  {name} {error}", file=sys.stderr)
    return turns


def _figures(first: Turn, seconds: list[float]) -> Figures:
    return {
        "seconds": round(statistics.median(seconds), 6),
        "added_mib": round(max(0.0, first.added_mib), 1),
        "answer": first.answer,
    }


def _serve(pipe: Connection) -> None:
    """What a contestant's process does, until nobody asks any more."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a user who stops the run stops it without tracebacks
    try:
        module, function, *args = pipe.recv()
        call = getattr(importlib.import_module(module), function)(*args)
        pipe.send((False, None))
        while pipe.recv():
            pipe.send((False, _timed(call)))
    except EOFError:
        return
    except BaseException as error:  # noqa: BLE001 (whatever a tool raises is its result)
        pipe.send((True, said(error)))


def _timed(call: Call) -> tuple[float, float, Any]:
    before = forget_peak()
    began = time.perf_counter()
    answer = call()
    return time.perf_counter() - began, peak_mib() - before, answer


def _ended(code: int) -> str:
    if code < 0:
        return f"ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


if __name__ == "__main__":
    _serve(Connection(int(sys.argv[1])))
