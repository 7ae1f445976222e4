"""Silence for a second, then a word."""

from __future__ import annotations

import time

import pytest

from modelglass.cli import _progress


def test_quick_work_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    with _progress.Progress() as progress:
        progress("working")
    assert capsys.readouterr().err == ""


def test_long_work_says_what_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_progress, "FIRST_WORD", 0.0)
    monkeypatch.setattr(_progress, "IN_LOG", 0.001)
    with _progress.Progress() as progress:
        progress("reading")
        deadline = time.monotonic() + 10
        said = ""
        while "reading" not in said and time.monotonic() < deadline:
            said += capsys.readouterr().err
    assert "modelglass: reading" in said


def test_the_word_is_that_of_the_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_progress, "FIRST_WORD", 0.0)
    with _progress.Progress("model-inspector"):
        deadline = time.monotonic() + 10
        said = ""
        while not said and time.monotonic() < deadline:
            said += capsys.readouterr().err
    assert said.startswith("model-inspector: starting")
