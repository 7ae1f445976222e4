"""Contestants of a benchmark take turns, and one that crashes, dies or hangs does so alone."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from itertools import count

import pytest
import turns

HERE = "test_turns"


def answering(value: int) -> Callable[[], int]:
    return lambda: value


def raising(value: object) -> Callable[[], None]:
    def call() -> None:
        raise KeyError(f"an object at {id(value):#x}")

    return call


def raising_later() -> Callable[[], None]:
    calls = count()

    def call() -> None:
        if next(calls) == 2:
            raise ValueError("no more")

    return call


def unprepared() -> Callable[[], None]:
    raise ImportError("no such package")


def dying() -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), signal.SIGSEGV)


def hanging() -> Callable[[], None]:
    return lambda: time.sleep(600)


def taking_memory() -> Callable[[], int]:
    return lambda: len(b"x" * 200_000_000)


@pytest.fixture(autouse=True)
def _found_by_contestants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.path.dirname(__file__))


@pytest.mark.slow
def test_each_gives_its_seconds_memory_and_answer() -> None:
    found = turns.race({"seven": (HERE, "answering", 7), "memory": (HERE, "taking_memory")}, 2, 60)
    assert found["seven"]["answer"] == 7
    assert found["seven"]["seconds"] > 0
    assert found["seven"]["added_mib"] < 50
    assert 150 < found["memory"]["added_mib"] < 400


@pytest.mark.slow
def test_who_fails_fails_alone() -> None:
    prepares = {
        "raises": (HERE, "raising", 1),
        "raises later": (HERE, "raising_later"),
        "unprepared": (HERE, "unprepared"),
        "dies": (HERE, "dying"),
        "hangs": (HERE, "hanging"),
        "goes on": (HERE, "answering", 1),
    }
    found = turns.race(prepares, 3, 3)
    assert list(found) == list(prepares)
    assert {name: figures.get("failed") for name, figures in found.items()} == {
        "raises": "crashes: KeyError: 'an object at …'",
        "raises later": "crashes: ValueError: no more",
        "unprepared": "crashes: ImportError: no such package",
        "dies": "crashes: ended by SIGSEGV",
        "hangs": "takes more than 3 s",
        "goes on": None,
    }


@pytest.mark.slow
def test_one_call_can_be_tried() -> None:
    assert turns.failure((HERE, "answering", 1), 60) is None
    assert turns.failure((HERE, "unprepared"), 60) == "crashes: ImportError: no such package"
