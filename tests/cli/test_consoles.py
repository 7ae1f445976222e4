"""Consoles whose encoding lacks what is drawn get ASCII in its place, and columns stay columns."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

import modelglass as mg
from modelglass.cli.main import main
from modelglass.cli.start import main as start
from modelglass.compat.dump_model_info import dump_model_info
from modelglass.console import AS_ASCII

ENCODINGS = ("ascii", "cp1252", "cp437", "cp949")
CODE = "import torch\ndef build(): return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU())\n"
COMMANDS = {
    "inspect": "code.py::build --input 2x3",
    "memory": "memory code.py::build --input 2x3 --train",
    "flow": "flow code.py::build --input 2x3",
    "stats": "stats weights.safetensors",
    "a missing file": "no-such-…-file.pt",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "code.py").write_text(CODE)
    save_file({"a.weight": np.ones((4, 4), np.float32)}, tmp_path / "weights.safetensors")
    return tmp_path


@contextmanager
def console(encoding: str) -> Iterator[io.TextIOWrapper]:
    """Standard output and errors of that encoding, which refuse what it lacks."""
    made = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="strict", newline="")
    with redirect_stdout(made), redirect_stderr(made):
        yield made
        made.flush()


def written(console: io.TextIOWrapper) -> str:
    assert isinstance(console.buffer, io.BytesIO)
    return console.buffer.getvalue().decode(console.encoding)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("line", COMMANDS.values(), ids=COMMANDS)
def test_every_command_writes(line: str, encoding: str, folder: Path) -> None:
    with console(encoding) as made, pytest.raises(SystemExit):
        main(line.split())
    text = written(made)
    assert text
    assert "Traceback" not in text
    assert "?" not in text


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_the_quick_listing_writes(encoding: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["modelglass", "./weights.safetensors"])
    keep = SimpleNamespace(disable=lambda: None, freeze=lambda: None)  # this process does not end with it
    monkeypatch.setattr("modelglass.cli.start.gc", keep)
    with console(encoding) as made, pytest.raises(SystemExit):
        start()
    assert "16" in written(made)
    assert "?" not in written(made)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_show_and_dump_model_info_write(encoding: str, folder: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4))
    with console(encoding) as made:
        mg.show(mg.inspect(model, torch.zeros(2, 3)))
        dump_model_info(model)
    assert made.errors == "strict"  # the stream is as it was
    assert "Linear" in written(made)


def test_the_columns_of_a_table_stay() -> None:
    text = mg.render(mg.inspect(torch.nn.Sequential(torch.nn.Linear(3, 4)), torch.zeros(2, 3)), width=80)
    table = text[: text.index("\n\n")]
    shown = table.encode("ascii", AS_ASCII).decode()
    assert [len(line) for line in shown.splitlines()] == [len(line) for line in table.splitlines()]
    assert "` 0" in shown


def test_what_is_not_drawn_is_a_question_mark_as_wide() -> None:
    assert "a層é".encode("ascii", AS_ASCII) == b"a???"
    assert "\udcff≥ 3…".encode("utf-8", AS_ASCII) == "?≥ 3…".encode()
