"""`modelglass compare` as a person meets it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import command_line

Capture = pytest.CaptureFixture[str]

TORCH = """
import torch
from torch import nn

def build():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 1))

def batch():
    return torch.zeros(1, 3, 8, 8)

def broken():
    raise RuntimeError("no such weights")
"""
MLX = """
from mlx import nn

def build():
    print("building the port")
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 1))

def wrong():
    return nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.ReLU(), nn.Conv2d(8, 4, 1))
"""


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "original.py").write_text(TORCH)
    (tmp_path / "port.py").write_text(MLX)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def compared(capsys: Capture, *more: str, b: str = "port.py::build") -> tuple[int, str, str]:
    return command_line.run("compare", "original.py::build", b, *more, capsys=capsys)


def test_a_right_port_is_the_same(models: Path, capsys: Capture) -> None:
    code, out, err = compared(capsys)
    assert code == 0
    assert out.startswith("same: 4 of 4 tensors of a line up with 4 of 4 of b\n")
    assert "building the port" in err


def test_a_wrong_port_is_different(models: Path, capsys: Capture) -> None:
    code, out, _ = compared(capsys, b="port.py::wrong")
    assert code == 1
    assert out.startswith("different: 1 difference; 3 of 4 tensors")
    assert "bias: b has no bias" in out


def test_both_run_each_with_inputs_of_its_own(models: Path, capsys: Capture) -> None:
    code, out, _ = compared(capsys, "--input-a", "1x3x8x8", "--input-b", "1x8x8x3", "--all")
    assert code == 0
    assert out.count("8,928") == 2  # multiply-accumulates: 216 and 32 at each of 36 places
    code, out, _ = compared(
        capsys, "--inputs-a", "original.py::batch", "--input-b", "1x8x8x3", "--format", "json"
    )
    assert code == 0
    found = json.loads(out)
    assert found["a"]["macs"] == found["b"]["macs"] == 36 * (216 + 32)


def test_the_result_goes_to_a_file(models: Path, capsys: Capture) -> None:
    code, out, _ = compared(capsys, "--format", "markdown", "-o", "compared.md", b="port.py::wrong")
    assert (code, out) == (1, "")
    assert (models / "compared.md").read_text().startswith("### different: 1 difference")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--input", "1x3x8x8", "--input-a", "1x3x8x8"), "cannot be combined with one for a only"),
        (("--input-b", "1x3", "--inputs-b", "x.py::f"), "--inputs-b and --input-b cannot be combined"),
        (("--input", "1x3", "--inputs", "x.py::f"), "--inputs and --input cannot be combined"),
        (("--format", "svg"), "svg"),
    ],
    ids=["both and one", "two ways for one", "two ways for both", "format"],
)
def test_wrong_usage(models: Path, capsys: Capture, arguments: tuple[str, ...], message: str) -> None:
    code, out, err = compared(capsys, *arguments)
    assert (code, out) == (2, "")
    assert message in err


def test_what_cannot_be_built_read_or_run_is_told(models: Path, capsys: Capture) -> None:
    code, out, err = compared(capsys, b="original.py::broken")
    assert (code, out) == (3, "")
    assert "no such weights" in err
    code, out, err = compared(capsys, b="nothing.safetensors")
    assert (code, out) == (3, "")
    assert "there is no file 'nothing.safetensors'" in err
    code, out, err = compared(capsys, "--input", "1x3x8x8")  # channels first, which the port does not take
    assert (code, out) == (3, "")
    assert "Traceback" not in err


def test_it_is_listed_and_explained(capsys: Capture) -> None:
    _, out, _ = command_line.run("--help", capsys=capsys)
    assert "compare" in out
    _, out, _ = command_line.run("compare", "--help", capsys=capsys)
    assert "modelglass compare model.py::build port.py::build" in out
    assert "1  different" in out
