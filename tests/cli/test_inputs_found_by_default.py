"""Commands find inputs by themselves, say so in every output, and can be told not to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from modelglass.cli.main import main

pytestmark = pytest.mark.slow  # each search may take its time on a busy machine

MODELS = """
import torch
from torch import nn

def net():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))

class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.e = nn.Linear(16, 32), nn.Embedding(50, 32)

    def forward(self, x, ids):
        return self.a(x) + self.e(ids)

def wrong():
    return nn.Sequential(nn.Linear(8, 16), nn.Linear(32, 4))
"""
LINE = "inputs found by trying: input 1x3x224x224 float32; B, H, W are free; 4 trials"
BUDGET = ("--input-budget", "60")


@pytest.fixture
def code(tmp_path: Path) -> str:
    file = tmp_path / "code.py"
    file.write_text(MODELS)
    return str(file)


def run(capsys: Any, *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    said = capsys.readouterr()
    return int(ended.value.code or 0), said.out, said.err


@pytest.mark.parametrize(
    "command", [("inspect",), ("flow",), ("memory",), ("unique",), ("fit", "--device-memory", "1GiB")]
)
@pytest.mark.parametrize("format_", ["text", "markdown", "json", "csv"])
def test_every_output_says_that_inputs_were_found(
    command: tuple[str, ...], format_: str, code: str, capsys: Any
) -> None:
    name, *more = command
    status, out, err = run(capsys, name, f"{code}::net", *more, "--format", format_, *BUDGET)
    assert status == 0
    assert LINE in " ".join((err if format_ == "csv" else out).split())


def test_drawings_leave_the_line_to_stderr(code: str, capsys: Any) -> None:
    _, out, err = run(capsys, "flow", f"{code}::net", "--format", "dot", *BUDGET)
    assert out.startswith("digraph")
    assert LINE in err


def test_info_has_the_line_among_its_notes(code: str, capsys: Any) -> None:
    _, out, _ = run(capsys, "info", f"{code}::net", *BUDGET)
    assert LINE in [note["text"] for note in json.loads(out)["notes"]]


@pytest.mark.parametrize("command", ["inspect", "unique", "info"])
def test_no_run_gives_the_structure_alone(command: str, code: str, capsys: Any) -> None:
    status, out, err = run(capsys, command, f"{code}::net", "--no-run")
    assert status == 0
    assert "Conv2d" in out
    assert "inputs found" not in out + err


def test_inputs_that_are_given_stay_and_the_rest_is_found(code: str, capsys: Any) -> None:
    _, out, _ = run(capsys, f"{code}::Two", "--input", "x=3x7x16", *BUDGET)
    assert "inputs found by trying: x 3x7x16 float32, ids 3x7 int64" in out


def test_inputs_that_are_all_given_are_taken_as_they_are(code: str, capsys: Any) -> None:
    _, out, _ = run(capsys, f"{code}::Two", "--input", "3x7x16", "--input", "ids=3x7:int64")
    assert "3x7x32" in out
    assert "inputs found" not in out


def test_show_inputs_prints_options_and_python(code: str, capsys: Any) -> None:
    _, out, _ = run(capsys, f"{code}::Two", "--show-inputs", *BUDGET)
    line, options, python = out.splitlines()
    assert line.startswith("inputs found by trying: x 1x128x16 float32, ids 1x128 int64")
    assert options == "--input x=1x128x16 --input ids=1x128:int64"
    assert python.startswith("inputs = {'x': torch.zeros((1, 128, 16), dtype=torch.float32)")


@pytest.mark.parametrize("command", ["inspect", "unique", "info"])
def test_where_none_are_found_the_structure_is_shown_with_the_reason(
    command: str, code: str, capsys: Any
) -> None:
    status, out, _ = run(capsys, command, f"{code}::wrong", *BUDGET)
    assert status == 0
    assert "1: 16 features met 32" in " ".join(out.split())


@pytest.mark.parametrize(
    "asked",
    [("flow",), ("memory",), ("unique", "--ops"), ("inspect", "--train"), ("inspect", "--run", "real")],
)
def test_where_a_run_was_asked_for_none_found_is_an_error(
    asked: tuple[str, ...], code: str, capsys: Any
) -> None:
    status, _, err = run(capsys, asked[0], f"{code}::wrong", *asked[1:], *BUDGET)
    assert status == 3
    assert "1: 16 features met 32" in err
    assert "--input input=" in err
