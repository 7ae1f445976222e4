"""Errors on pages of results: one line each, the same in every run and on every machine."""

from __future__ import annotations

import tempfile
from pathlib import Path

from errors_said import ROOT, said


def test_an_error_is_one_short_line() -> None:
    assert said(RuntimeError("a\n  b")) == "RuntimeError: a b"
    assert said(MemoryError()) == "MemoryError"
    assert len(said(RuntimeError("x" * 999))) < 250


def test_addresses_are_left_out_before_it_is_shortened() -> None:
    assert said(KeyError("139936181879824")) == "KeyError: '…'"
    assert said(TypeError(f"{'x' * 180} <object at 0x7f0123456789>")).endswith("<object at …>")


def test_paths_of_this_machine_are_left_out() -> None:
    inside, temporary = ROOT / "src" / "file.py", Path(tempfile.gettempdir(), "tmp1234", "given")
    assert said(OSError(f"no '{inside}' and no '{temporary}'")) == "OSError: no '…' and no '…'"
