"""`modelglass flow` as a person meets it."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from command_line import run
from modelglass.renderers._escape import cell_width

SOURCE = """
import torch
from torch import nn

class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.layer = nn.LayerNorm(8), nn.Linear(8, 8)

    def forward(self, x):
        print("running")
        return x + self.layer(self.norm(x))

def build():
    print("building")
    return nn.Sequential(nn.Linear(4, 8), Residual(), Residual(), Residual(), nn.Linear(8, 2))

def batch():
    return torch.zeros(2, 3, 4)
"""
TARGET = "net.py::build"
INPUTS = ("--inputs", "net.py::batch")
Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "net.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.mark.slow
def test_a_diagram_with_names_for_the_sizes_that_can_change(capsys: Capture) -> None:
    code, out, _ = run("flow", TARGET, *INPUTS, capsys=capsys)
    assert code == 0
    assert "building" not in out
    assert "× 3" in out
    assert "Residual" in out
    assert "B = 2: input.0" in out
    assert max(map(cell_width, out.splitlines())) <= 100


def test_width(capsys: Capture) -> None:
    _, out, _ = run("flow", TARGET, *INPUTS, "--width", "50", capsys=capsys)
    assert max(map(cell_width, out.splitlines())) <= 50


@pytest.mark.slow
def test_depth_says_what_is_opened(capsys: Capture) -> None:
    def nodes(depth: str) -> list[str]:
        _, out, _ = run("flow", TARGET, *INPUTS, "--depth", depth, "--format", "json", capsys=capsys)
        return [node["label"] for node in json.loads(out)["nodes"]]

    assert "norm" not in nodes("1")
    assert "norm" in nodes("2")


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("model.svg", "<svg"),
        ("model.mmd", "---\ntitle:"),
        ("model.dot", "digraph"),
        ("model.gv", "digraph"),
        ("model.json", "{"),
        ("model.txt", "Sequential"),
    ],
)
def test_the_ending_of_the_file_says_what_comes_out(name: str, start: str, capsys: Capture) -> None:
    code, out, _ = run("flow", TARGET, "--input", "2x3x4", "-o", name, capsys=capsys)
    assert (code, out) == (0, "")
    assert Path(name).read_text(encoding="utf-8").startswith(start)


def test_an_ending_of_no_format_is_refused_before_the_run(capsys: Capture) -> None:
    code, out, err = run("flow", TARGET, "--input", "2x3x4", "-o", "model.png", capsys=capsys)
    assert (code, out) == (2, "")
    assert "'.png'" in err
    assert "building" not in err
    assert not Path("model.png").exists()


def test_a_format_that_is_asked_for_outdoes_the_ending(capsys: Capture) -> None:
    run("flow", TARGET, "--input", "2x3x4", "--format", "svg", "-o", "model.txt", capsys=capsys)
    ElementTree.parse("model.txt")


def test_a_model_that_never_runs_asks_for_inputs(tmp_path: Path, capsys: Capture) -> None:
    source = (
        "import torch\nclass Never(torch.nn.Module):\n    def forward(self, x):\n        raise TypeError\n"
    )
    (tmp_path / "never.py").write_text(source)
    code, out, err = run("flow", "never.py::Never", capsys=capsys)
    assert (code, out) == (3, "")
    assert "--input" in err


def test_a_forward_pass_that_fails_is_an_error_that_names_the_module(capsys: Capture) -> None:
    code, out, err = run("flow", TARGET, "--input", "2x3x5", capsys=capsys)
    assert (code, out) == (3, "")
    assert "error: 0 raised" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("inputs", [(), ("--input", "2x4")])
def test_a_folder_without_a_configuration_is_told(inputs: tuple[str, ...], capsys: Capture) -> None:
    Path("empty").mkdir()
    code, out, err = run("flow", "empty", *inputs, capsys=capsys)
    assert (code, out) == (2 if inputs else 3, "")
    assert "a folder without config.json is read and not run" in err


def test_what_is_odd_about_the_run_is_said_below(capsys: Capture) -> None:
    _, out, _ = run("flow", TARGET, "--input", "2x3x4", capsys=capsys)
    assert "[fixed-sizes]" in out


def test_a_file_that_is_not_there(capsys: Capture) -> None:
    code, out, err = run("flow", "nothing.safetensors", capsys=capsys)
    assert (code, out) == (3, "")
    assert "there is no file" in err
