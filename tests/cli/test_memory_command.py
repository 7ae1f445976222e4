"""`modelglass memory` as a person meets it."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

import modelglass as mg
from command_line import run
from modelglass import api

SOURCE = """
import torch
from torch import nn

def build():
    print("building")
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))

def batch():
    return torch.randn(32, 64)

def wrong():
    return torch.randn(32, 5)

def stepper(params):
    return torch.optim.SGD(params, lr=0.1, momentum=0.9)
"""
TARGET = "net.py::build"
INPUT = ("--input", "32x64")
WEIGHTS = 4 * (64 * 256 + 256 + 256 * 64 + 64)
Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "net.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)


def by_json(*arguments: str, capsys: Capture) -> mg.Report:
    code, _, _ = run("memory", TARGET, *arguments, "--format", "json", "-o", "out.json", capsys=capsys)
    assert code == 0
    return mg.load("out.json")


def test_a_forward_pass_is_shown(capsys: Capture) -> None:
    code, out, err = run("memory", TARGET, *INPUT, capsys=capsys)
    assert code == 0
    assert out.startswith("Sequential (torch): one forward pass without gradients\n")
    assert f"({WEIGHTS + 4 * 32 * 64:,} bytes) of parameters, buffers and inputs" in out
    assert "building" in err


def test_a_training_step_has_gradients_and_the_state_of_adamw(capsys: Capture) -> None:
    code, out, _ = run("memory", TARGET, "--inputs", "net.py::batch", "--train", capsys=capsys)
    assert code == 0
    assert out.startswith("Sequential (torch): one training step with adamw\n")
    report = by_json(*INPUT, "--train", capsys=capsys)
    assert report.memory is not None
    assert report.memory.timeline[-1].phase == "optimizer"
    last = dict(zip(mg.report.CATEGORIES, report.memory.timeline[-1].held, strict=True))
    assert last["gradients"] == WEIGHTS
    assert last["optimizer_state"] == 2 * WEIGHTS + 4 * 4  # two moments, and a count for each of four tensors


@pytest.mark.parametrize(
    ("name", "states"),
    [("none", 0), ("sgd", 0), ("net.py::stepper", WEIGHTS)],
    ids=["none", "sgd", "factory"],
)
def test_other_optimizers(name: str, states: int, capsys: Capture) -> None:
    memory = by_json(*INPUT, "--train", "--optimizer", name, capsys=capsys).memory
    assert memory is not None
    assert memory.timeline[-1].held[mg.report.CATEGORIES.index("optimizer_state")] == states
    assert (memory.optimizer is None) == (name == "none")


def test_csv_is_the_timeline(capsys: Capture) -> None:
    code, out, _ = run("memory", TARGET, *INPUT, "--format", "csv", capsys=capsys)
    assert code == 0
    rows = list(csv.DictReader(io.StringIO(out)))
    assert {row["module"] for row in rows} == {"0", "1", "2"}
    assert {row["parameters"] for row in rows} == {str(WEIGHTS)}


def test_markdown_and_json(capsys: Capture) -> None:
    _, out, _ = run("memory", TARGET, *INPUT, "--format", "markdown", capsys=capsys)
    assert out.startswith("### Sequential (torch): one forward pass")
    _, out, _ = run("memory", TARGET, *INPUT, "--format", "json", capsys=capsys)
    assert json.loads(out)["memory"]["peak_nbytes"] > WEIGHTS


@pytest.mark.parametrize("width", [40, 80, 160])
def test_lines_fit(width: int, capsys: Capture) -> None:
    _, out, _ = run("memory", TARGET, *INPUT, "--train", "--width", str(width), capsys=capsys)
    assert max(map(len, out.splitlines())) <= width


def test_a_larger_batch_takes_more_for_what_depends_on_it(capsys: Capture) -> None:
    small, large = (by_json(*INPUT, *more, capsys=capsys).memory for more in ((), ("--batch-size", "320")))
    assert small is not None
    assert large is not None
    assert small.by_category["parameters"] == large.by_category["parameters"] == WEIGHTS
    assert large.by_category["inputs"] == 10 * small.by_category["inputs"]
    _, out, _ = run("memory", TARGET, *INPUT, "--batch-size", "320", capsys=capsys)
    assert "what if     batch 320\n" in out


def test_options_become_a_what_if(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {}

    def remembered(*args: object, **options: object) -> object:
        asked.update(options)
        return inspect(*args, train=True)

    inspect = api.inspect
    monkeypatch.setattr(api, "inspect_memory", remembered)
    changes = ["--batch-size", "8", "--seq-len", "16", "--weights", "bfloat16", "--autocast", "float16"]
    changes += ["--master-weights", "--accumulate", "4", "--recompute", "0", "--recompute", "2*"]
    changes += ["--sharding", "fsdp3", "--devices", "8", "--calibrate"]
    run("memory", TARGET, *INPUT, "--train", *changes, capsys=capsys)
    assert asked["what_if"] == api.WhatIf(
        batch_size=8,
        seq_len=16,
        weights="bfloat16",
        autocast="float16",
        master_weights=True,
        accumulate=4,
        recompute=("0", "2*"),
        sharding="fsdp3",
        devices=8,
    )
    assert (asked["train"], asked["optimizer"], asked["calibrate"]) == (True, "adamw", True)
    run("memory", TARGET, *INPUT, capsys=capsys)
    assert (asked["what_if"], asked["optimizer"], asked["calibrate"]) == (None, None, False)


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_a_plot(suffix: str, capsys: Capture) -> None:
    code, out, _ = run("memory", TARGET, *INPUT, "--train", "--plot", f"t.{suffix}", capsys=capsys)
    assert code == 0
    assert out.startswith("Sequential")
    assert Path(f"t.{suffix}").stat().st_size > 1000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*INPUT, "--optimizer", "sgd"], "add --train"),
        ([*INPUT, "--master-weights"], "add --train"),
        ([*INPUT, "--accumulate", "2"], "add --train"),
        ([*INPUT, "--recompute", "0"], "add --train"),
        ([*INPUT, "--sharding", "ddp"], "belong together"),
        ([*INPUT, "--devices", "2"], "belong together"),
        ([*INPUT, "--weights", "float7"], "float7"),
        ([*INPUT, "--batch-size", "0"], "0"),
        ([*INPUT, "--plot", "a.jpeg"], "jpeg"),
        ([*INPUT, "--plot", "no/such/folder.png"], "there is no folder"),
        ([*INPUT, "--inputs", "net.py::batch"], "cannot be combined"),
        ([*INPUT, "--train", "--optimizer", "adamm"], "adamm"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage(arguments: list[str], message: str, capsys: Capture) -> None:
    code, out, err = run("memory", TARGET, *arguments, capsys=capsys)
    assert (code, out) == (2, "")
    assert message in err


@pytest.mark.parametrize("format_", ["text", "json", "markdown", "csv"])
def test_a_failing_pass_is_told(format_: str, capsys: Capture) -> None:
    more = ["--inputs", "net.py::wrong", "--format", format_, "--plot", "t.png"]
    code, out, err = run("memory", TARGET, *more, capsys=capsys)
    assert code == 3
    assert "RuntimeError" in (out if format_ in ("text", "markdown") else err)
    assert not Path("t.png").exists()
    assert format_ != "csv" or out == ""
    if format_ == "json":
        assert json.loads(out)["run"]["failure"]["module"] == "0"


def test_help_has_examples_and_needs_no_framework() -> None:
    code = (
        "import sys\nfor name in ('numpy', 'torch', 'matplotlib'): sys.modules[name] = None\n"
        "from modelglass.cli.main import main; main(['memory', '--help'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Examples:" in done.stdout
    assert "--recompute" in done.stdout
