"""`model-inspector` as a person meets it: exit codes, languages, files."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from modelglass.cli.model_inspector import main

NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        print("building")
        self.inside = nn.Linear(4, width)
        self.outside = nn.Linear(width, 2)

    def forward(self, x):
        print("running")
        return self.outside(self.inside(x).relu())

def build(config):
    return Net(config.get("width", 8))

def batch():
    return torch.ones(2, 4)
"""
Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "config.yaml").write_text("model:\n  _target_: net.Net\n  width: 8\n")
    net = nn.ModuleDict({"inside": nn.Linear(4, 8), "outside": nn.Linear(8, 2)})
    state = net.state_dict()
    torch.save({"model": state, "epoch": 5}, tmp_path / "fits.pt")
    torch.save({"model": {k: t for k, t in state.items() if k != "inside.bias"}}, tmp_path / "lacks.pt")
    torch.save({"model": {**state, "inside.weight": torch.zeros(9, 4)}}, tmp_path / "reshaped.pt")
    monkeypatch.chdir(tmp_path)
    for name in ("LC_ALL", "LC_MESSAGES", "LANG", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def run(*args: str, capsys: Capture) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(list(args))
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out, err


HEADINGS = ("Model Summary", "Model Flow", "Memory Estimate")


@pytest.mark.slow
def test_sections_come_in_the_documented_order(capsys: Capture) -> None:
    code, out, _ = run("--trust", "--config", "config.yaml", "--inputs", "net.py::batch", capsys=capsys)
    assert code == 0
    titles = ["Model Summary", "Model Type", "Configuration", "Parameter Statistics", "by Module Type"]
    titles += ["Model Flow", "Memory Estimate", "Model Memory", "Batch Memory (batch_size=512)", "Total Est"]
    places = [out.index(title) for title in titles]
    assert places == sorted(places)
    assert "building" not in out
    assert "running" not in out


def test_figures_that_add_up_as_they_are_printed(capsys: Capture) -> None:
    _, out, _ = run("--trust", "--config", "config.yaml", "--inputs", "net.py::batch", capsys=capsys)
    rows = {name: int(n.replace(",", "")) for name, n in re.findall(r"^ +(.+?): .* ([\d,]+) B\b", out, re.M)}
    assert rows["Parameters"] + rows["Gradients"] + rows["Optimizer States"] == rows["Total Model"]
    assert rows["x"] + rows["Activations"] == rows["Total Batch"]
    assert rows["Model"] + rows["Batch"] == rows["Model + Batch"]
    shares = [float(line.split("(")[1].split("%")[0]) for line in out.splitlines() if "%)" in line]
    assert sum(shares[:-1]) == pytest.approx(100)
    assert shares[-1] == 100


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["--trust", "--config", "config.yaml", "--checkpoint", "fits.pt"], 0),
        (["--trust", "--config", "config.yaml"], 0),
        (["--checkpoint", "fits.pt"], 0),
        (["--checkpoint", "fits.pt", "--builder", "net.py::build", "--input", "2x4"], 0),
        (["--trust", "--config", "config.yaml", "--checkpoint", "lacks.pt"], 1),
        ([], 2),
        (["--trust", "--config", "config.yaml", "--batch-size", "0"], 2),
        (["--trust", "--config", "config.yaml", "--lang", "fr"], 2),
        (["--trust", "--config", "config.yaml", "--input", "2x"], 2),
        (["--trust", "--config", "config.yaml", "--inputs", "net.py::batch", "--input", "2x4"], 2),
        (["--checkpoint", "fits.pt", "--input", "2x4"], 2),
        (["--trust", "--config", "config.yaml", "--checkpoint", "reshaped.pt"], 3),
        (["--trust", "--config", "config.yaml", "--input", "2x5"], 3),
        (["--config", "nothing.yaml"], 3),
        (["--checkpoint", "fit.pt"], 3),
        (["--trust", "--config", "config.yaml", "--model-key", "training"], 3),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_exit_codes(args: list[str], code: int, capsys: Capture) -> None:
    found, out, err = run(*args, capsys=capsys)
    assert found == code, err
    assert "Traceback" not in err
    if code > 1:
        assert err.strip()
    else:
        assert all(heading in out for heading in HEADINGS)


def test_the_nearest_names_are_offered(capsys: Capture) -> None:
    _, _, err = run("--checkpoint", "fit.pt", capsys=capsys)
    assert "did you mean fits.pt" in err


def test_a_mismatch_of_shapes_says_which_and_what_to_do(capsys: Capture) -> None:
    _, out, err = run("--trust", "--config", "config.yaml", "--checkpoint", "reshaped.pt", capsys=capsys)
    assert "inside.weight: model 8x4, checkpoint 9x4" in out
    assert "shape mismatch" in err
    assert "hint: " in err


def test_a_failed_pass_shows_the_summary_and_the_shapes_that_met(capsys: Capture) -> None:
    _, out, err = run("--trust", "--config", "config.yaml", "--input", "2x5", capsys=capsys)
    assert "Total Parameters:     58" in out
    assert "inside raised" in err
    assert "2x5" in err


@pytest.mark.parametrize(
    ("variables", "word"),
    [
        ({"LANG": "ko_KR.UTF-8"}, "모델 요약"),
        ({"LANG": "ko_KR.UTF-8", "LC_MESSAGES": "en_US.UTF-8"}, "Model Summary"),
        ({"LC_ALL": "ko", "LANG": "de_DE"}, "모델 요약"),
        ({"LC_ALL": "", "LANG": "kok_IN"}, "Model Summary"),
        ({}, "Model Summary"),
    ],
    ids=["lang", "messages", "all", "konkani", "none"],
)
def test_the_language_is_that_of_the_locale(
    variables: dict[str, str], word: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    _, out, _ = run("--checkpoint", "fits.pt", capsys=capsys)
    assert word in out


def test_the_language_can_be_chosen(capsys: Capture) -> None:
    _, out, _ = run(
        "--trust", "--config", "config.yaml", "--inputs", "net.py::batch", "--lang", "ko", capsys=capsys
    )
    for word in ("모델 요약", "설정 정보", "파라미터 통계", "모듈 타입별", "데이터 플로우", "메모리 추정"):
        assert word in out


@pytest.mark.slow
def test_verbose_shows_every_module(capsys: Capture) -> None:
    _, short, _ = run("--trust", "--config", "config.yaml", "--input", "3x4", capsys=capsys)
    _, long, _ = run("--trust", "--config", "config.yaml", "--input", "3x4", "--verbose", capsys=capsys)
    assert "Modules (3)" not in short
    assert "Modules (3)" in long
    assert [line.split() for line in long.splitlines() if line.startswith(("inside ", "outside "))] == [
        ["inside", "Linear", "40", "40", "3x8"],
        ["outside", "Linear", "18", "18", "3x2"],
    ]


@pytest.mark.slow
def test_the_optimizer_is_a_choice(capsys: Capture) -> None:
    state = {}
    for name in ("adamw", "sgd", "none"):
        args = ("--trust", "--config", "config.yaml", "--input", "2x4", "--optimizer", name)
        _, out, _ = run(*args, capsys=capsys)
        line = next(line for line in out.splitlines() if "Optimizer States" in line)
        state[name] = int(line.split(" B")[0].split()[-1].replace(",", ""))
    assert state == {"adamw": 2 * 58 * 4 + 4 * 4, "sgd": 0, "none": 0}


def test_output_to_a_file(folder: Path, capsys: Capture) -> None:
    code, out, _ = run("--checkpoint", "fits.pt", "--lang", "ko", "-o", "model.txt", capsys=capsys)
    assert (code, out) == (0, "")
    assert "모델 요약" in (folder / "model.txt").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("locale", ["C", "POSIX", "en_US.ISO-8859-1"])
def test_redirected_output_is_utf8_whatever_the_locale(locale: str) -> None:
    command = "from modelglass.cli.model_inspector import main; main()"
    variables = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
    done = subprocess.run(
        [sys.executable, "-c", command, "--checkpoint", "fits.pt", "--lang", "ko"],
        capture_output=True,
        env={**variables, "LC_ALL": locale, "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    text = done.stdout.decode("utf-8")
    assert "모델 요약" in text
    assert "\x1b" not in text


@pytest.mark.slow
def test_a_stream_that_cannot_encode_still_gets_its_figures() -> None:
    command = "from modelglass.cli.model_inspector import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", command, "--checkpoint", "fits.pt"],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert b"Total Parameters:     58" in done.stdout


def test_names_from_a_file_cannot_command_the_terminal(folder: Path, capsys: Capture) -> None:
    torch.save({"model": {"a\x1b[2J.weight": torch.zeros(2, 2)}, "epoch": "\x1b[31m"}, folder / "evil.pt")
    _, out, err = run(
        "--trust", "--config", "config.yaml", "--checkpoint", "evil.pt", "--verbose", capsys=capsys
    )
    assert "\x1b" not in out + err
    _, out, err = run("--checkpoint", "evil.pt", "--verbose", capsys=capsys)
    assert "\x1b" not in out + err
