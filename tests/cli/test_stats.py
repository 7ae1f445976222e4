"""`modelglass stats` as a person meets it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import modelglass as mg
from command_line import run
from modelglass.cli.main import main
from modelglass.report import FINDINGS

SOURCE = """
import torch
from torch import nn

def healthy():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(20, 30), nn.Linear(30, 5))

def broken():
    model = healthy()
    with torch.no_grad():
        model[0].weight[3, 4] = float("nan")
        model[1].bias.zero_()
    return model
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "net.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)


def test_statistics_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run("stats", "net.py::healthy", capsys=capsys)
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[2:6]] == ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert "no findings" in out
    assert any(bar in out for bar in "▃▄▅▆▇█")


def test_findings_do_not_fail_unless_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("stats", "net.py::broken", capsys=capsys)[0] == 0
    code, out, err = run("stats", "net.py::broken", "--fail-on", "nan,inf", capsys=capsys)
    assert code == 1
    assert "the first at [3, 4]" in out
    assert "findings: nan" in err
    assert run("stats", "net.py::broken", "--fail-on", "zero", capsys=capsys)[0] == 1
    assert run("stats", "net.py::broken", "--fail-on", "any", capsys=capsys)[0] == 1
    assert run("stats", "net.py::broken", "--fail-on", "inf,outlier", capsys=capsys)[0] == 0
    assert run("stats", "net.py::healthy", "--fail-on", "any", capsys=capsys)[0] == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["--fail-on", "nans"],
        ["--fail-on", ","],
        ["--sort", "weight"],
        ["--columns", "weight"],
        ["--top", "0"],
        ["--filter", "nothing*"],
        ["--plot", "a.jpeg"],
        ["--plot", "no/such/folder.png"],
    ],
    ids=" ".join,
)
def test_wrong_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run("stats", "net.py::broken", *arguments, capsys=capsys)
    assert code == 2
    assert out == ""
    assert "rror" in err


def test_a_choice_of_tensors(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(
        "stats", "net.py::healthy", "--filter", "*.weight", "--sort", "std", "--top", "1", capsys=capsys
    )
    assert [line.split()[0] for line in out.splitlines()[2:3]] == ["0.weight"]
    assert "1 of 2 tensors" in out


def test_json_is_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run("stats", "net.py::broken", "--format", "json", "-o", "out.json", capsys=capsys)
    assert out == ""
    document = json.loads(Path("out.json").read_text())
    assert document["stats"]["0.weight"]["nan"] == 1
    assert mg.load("out.json").stats["0.weight"].first_nan == 3 * 20 + 4


def test_markdown(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run("stats", "net.py::broken", "--format", "markdown", capsys=capsys)
    assert out.startswith("### Sequential\n\n| name |")


def test_a_plot(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("stats", "net.py::broken", "--plot", "weights.svg", capsys=capsys)[0] == 0
    assert "0.weight" in Path("weights.svg").read_text()


def test_help_lists_the_findings(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run("stats", "--help", capsys=capsys)
    assert all(code in out for code in FINDINGS)


def test_inspect_with_statistics(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["inspect", "net.py::healthy", "--stats", "--input", "2x20"])
    out = capsys.readouterr().out
    assert "MACs" in out
    assert "distribution" in out


def test_help_needs_no_numpy() -> None:
    code = (
        "import sys\nfor name in ('numpy', 'torch', 'numba', 'matplotlib'): sys.modules[name] = None\n"
        "from modelglass.cli.main import main; main(['stats', '--help'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
