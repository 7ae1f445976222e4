"""The command line as a person meets it: real processes for what only a process shows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import modelglass as mg
from command_line import run

SOURCE = """
import torch
from torch import nn

def build():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10))

def words():
    return nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 2))

class Masked(nn.Module):
    def forward(self, x, mask):
        return x * mask

def batch():
    return torch.zeros(2, 3, 8, 8)

def explode():
    raise ValueError("no weights here")

def nothing():
    return None

def leave():
    raise SystemExit(0)

def noisy():
    print("building")
    return build()
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "net.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)


def process(*args: str, **more: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "modelglass", *args]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, **more)


@pytest.mark.parametrize("command", [["inspect"], []])
def test_a_model_is_shown(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(*command, "net.py::build", "--input", "2x3x8x8", capsys=capsys)
    assert code == 0
    assert "parameters   3,114" in out
    assert "MACs         21,312" in out or "MACs" in out
    assert "\x1b" not in out
    assert "error" not in err


def test_inputs_by_code_spec_and_keyword(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("net.py::build", "--inputs", "net.py::batch", capsys=capsys)[0] == 0
    code, out, _ = run("net.py::words", "--input", "2x5", "--run", "real", capsys=capsys)
    assert code == 0
    assert "2x5 int64" in out
    code, out, _ = run("net.py::Masked", "--input", "2x3", "--input", "mask=2x3:bool", capsys=capsys)
    assert code == 0
    assert "mask: 2x3 bool" in out


def test_json_is_nothing_but_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run("net.py::build", "--input", "1x3x8x8", "--format", "json", capsys=capsys)
    assert code == 0
    assert json.loads(out)["counts"]["params"] == 3114


def test_what_the_users_code_prints_is_not_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run("net.py::noisy", "--format", "json", capsys=capsys)
    assert (code, json.loads(out)["format"]) == (0, "modelglass-report")
    assert "building" in err


def test_a_huge_input_costs_nothing_in_a_fake_run(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run("net.py::words", "--input", "1000000x1000000", capsys=capsys)
    assert code == 0
    assert "1000000x1000000x4" in out


def test_a_failure_is_told_when_the_report_goes_to_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run("net.py::build", "--input", "2x3x8x9", "-o", "r.txt", capsys=capsys)
    assert (code, out) == (3, "")
    assert "error: 3 raised RuntimeError" in err


def test_a_file_is_written_whole(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, _ = run(
        "net.py::build", "--input", "1x3x8x8", "--format", "json", "-o", "report.json", capsys=capsys
    )
    assert (code, out) == (0, "")
    assert mg.load(tmp_path / "report.json").counts.params == 3114
    assert sorted(path.name for path in tmp_path.iterdir()) == ["net.py", "report.json"]


def test_options_reach_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(
        "net.py::build", "--columns", "name,params", "--depth", "0", "--color", "always", capsys=capsys
    )
    assert "Conv2d" not in out
    assert "\x1b[" in out
    _, out, _ = run("net.py::build", "--format", "markdown", capsys=capsys)
    assert out.startswith("### Sequential")
    _, out, _ = run("net.py::build", "--input", "1x3x8x8", "--train", capsys=capsys)
    assert "backward" in out
    _, out, _ = run("net.py::build", "--run", "none", "--input", "1x3x8x8", capsys=capsys)
    assert "structure only" in out


WRONG: dict[str, tuple[list[str], int, str]] = {
    "nothing": ([], 2, "Usage"),
    "no such command": (["inspct"], 2, "did you mean inspect"),
    "no such option": (["net.py::build", "--colour"], 2, "No such option"),
    "no such column": (["net.py::build", "--columns", "name,hue"], 2, "no column 'hue'"),
    "unreadable spec": (["net.py::build", "--input", "2x3y"], 2, "does not describe an input"),
    "empty type": (["net.py::build", "--input", "2x3:"], 2, "does not describe an input"),
    "unknown type": (["net.py::build", "--input", "2x3:float99"], 2, "no element type"),
    "input twice": (["net.py::build", "--input", "x=2", "--input", "x=3"], 2, "given twice"),
    "empty columns": (["net.py::build", "--columns", ""], 2, "no column ''"),
    "odd type": (["net.py::build", "--input", "2x3:quint8", "--run", "real"], 3, "cannot make an input"),
    "inputs give nothing": (["net.py::build", "--inputs", "net.py::nothing"], 3, "returned None"),
    "builder leaves": (["net.py::leave"], 3, "SystemExit"),
    "both inputs": (["net.py::build", "--inputs", "a", "--input", "2"], 2, "cannot be combined"),
    "train without inputs": (["net.py::build", "--train", "--no-run"], 2, "needs inputs"),
    "huge for real": (["net.py::words", "--input", "99999999999999x3", "--run", "real"], 3, "cannot make"),
    "unwritable": (["net.py::build", "-o", "no/such/folder/x"], 2, "cannot write"),
    "no file": (["absent.py::build"], 3, "no file"),
    "function raises": (["net.py::explode"], 3, "no weights here"),
    "inputs raise": (["net.py::build", "--inputs", "net.py::explode"], 3, "no weights here"),
    "no model": (["net.py::batch"], 3, "not a supported model"),
    "a file that is not there": (["weights.bin"], 3, "there is no file"),
    "a file of code": (["net.py"], 3, "name a function in it"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_usage_and_bad_targets(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    args, expected, words = WRONG[case]
    code, out, err = run(*args, capsys=capsys)
    assert code == expected
    assert words in err + out
    assert "Traceback" not in err
    if code == 3:
        assert "hint:" in err


def test_debug_shows_the_traceback_wherever_it_stands(capsys: pytest.CaptureFixture[str]) -> None:
    for args in (["--debug", "net.py::explode"], ["inspect", "net.py::explode", "--debug"]):
        code, _, err = run(*args, capsys=capsys)
        assert code == 3
        assert "Traceback" in err
        assert 'raise ValueError("no weights here")' in err


def test_a_failing_forward_prints_the_report_and_exits_3(capsys: pytest.CaptureFixture[str]) -> None:
    for spec, words in (
        ("2x3x8x9", "3 (Linear) raised RuntimeError"),
        ("2x3x8x8:int64", "0 (Conv2d) raised"),
    ):
        code, out, _ = run("net.py::build", "--input", spec, capsys=capsys)
        assert code == 3
        assert "parameters   3,114" in out
        assert words in out


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version", capsys=capsys)[1].strip().endswith(mg.__version__)
    for args in (["--help"], ["inspect", "--help"], ["completion", "-h"]):
        code, out, _ = run(*args, capsys=capsys)
        assert code == 0
        assert "Examples:" in out
    assert "model-inspector --help" in run("--help", capsys=capsys)[1]


@pytest.mark.parametrize("command", ["", "inspect", "flow", "memory", "fit", "stats", "unique", "info"])
def test_help_has_an_example_with_a_configuration(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(*command.split(), "--help", capsys=capsys)
    examples = out[out.index("Examples:") :]
    assert f"modelglass {command} config.".replace("  ", " ") in examples


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run("completion", shell, capsys=capsys)
    assert code == 0
    assert "_MODELGLASS_COMPLETE" in out


@pytest.mark.slow
def test_as_a_process_result_and_progress_are_apart() -> None:
    done = process("net.py::build", "--input", "1x3x8x8", "--format", "json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["run"]["mode"] == "fake"
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_closed_pipe_is_no_error() -> None:
    command = f"{sys.executable} -m modelglass net.py::build --no-fold | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.splitlines()[-1] == "0"
    assert "Broken" not in done.stderr


@pytest.mark.slow
def test_a_terminal_without_unicode_still_gets_a_table() -> None:
    env = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = process("net.py::build", env=env)
    assert done.returncode == 0
    assert "Conv2d" in done.stdout
