"""`modelglass report` and `modelglass view` as a person meets them."""

from __future__ import annotations

import json
import os
import pickle
import webbrowser
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import modelglass as mg
from command_line import run
from output_checks import check_html

SOURCE = """
import torch
from torch import nn

def build():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))

def batch():
    return torch.randn(3, 4)

class Failing(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
    def forward(self, x):
        return self.layer(x) @ torch.ones(3)
"""
INPUTS = ("--inputs", "net.py::batch")
Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "net.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)


def page_of(*arguments: str, capsys: Capture, expected: int = 0) -> str:
    code, _, err = run("report", *arguments, "-o", "page.html", capsys=capsys)
    assert code == expected, err
    text = Path("page.html").read_text(encoding="utf-8")
    check_html(text)
    return unescape(text)


def sections(page: str) -> list[str]:
    return [part.partition('"')[0] for part in page.split('<section id="section-')[1:]]


def test_a_page_has_everything_that_was_asked_for(capsys: Capture) -> None:
    asked = ("--train", "--optimizer", "sgd", "--stats", "--symbols")
    page = page_of("net.py::build", *INPUTS, *asked, capsys=capsys)
    assert sections(page) == ["notes", "layers", "flow", "memory", "weights", "distinct", "run"]
    report = mg.load("page.html")
    assert report.run.train
    assert report.stats is not None
    assert report.symbols is not None
    assert f"{report.memory.peak_nbytes:,} bytes" in page
    assert "58 parameters" in page


def test_parts_without_data_are_absent(capsys: Capture) -> None:
    assert sections(page_of("net.py::build", "--no-run", capsys=capsys)) == ["layers", "distinct", "run"]


def test_a_checkpoint_is_scanned_as_well(capsys: Capture) -> None:
    save_file({"a.weight": np.zeros((2, 2), np.float32)}, "model.safetensors")
    page = page_of("model.safetensors", "--stats", capsys=capsys)
    assert sections(page) == ["notes", "layers", "weights", "file", "scan"]
    assert "Found nothing that runs code" in page
    assert "1 finding in the weights" in page


def test_a_suspicious_file_says_so(capsys: Capture) -> None:
    Path("bad.pt").write_bytes(pickle.dumps({"a": os.system}))
    page = page_of("bad.pt", capsys=capsys)
    assert "posix.system" in page[page.index('id="section-scan"') :]
    assert "scan: 1 high" in page[: page.index('id="section-scan"')]
    assert sections(page) == ["notes", "file", "scan"]


def test_a_saved_report_and_a_page_are_targets(capsys: Capture) -> None:
    first = page_of("net.py::build", *INPUTS, capsys=capsys)
    Path("copy.html").write_text(Path("page.html").read_text(encoding="utf-8"), encoding="utf-8")
    mg.save(mg.load("page.html"), "report.json")
    assert page_of("copy.html", capsys=capsys) == first
    assert page_of("report.json", capsys=capsys) == first


def test_a_run_that_failed_has_a_page_up_to_there(capsys: Capture) -> None:
    page = page_of("net.py::Failing", "--input", "3x4", capsys=capsys, expected=3)
    assert "the run failed in (root)" in page
    assert sections(page)[:2] == ["notes", "layers"]


def test_inspect_writes_the_same_page(capsys: Capture) -> None:
    page = page_of("net.py::build", *INPUTS, capsys=capsys)
    run("inspect", "net.py::build", *INPUTS, "--format", "html", "-o", "other.html", capsys=capsys)
    assert unescape(Path("other.html").read_text(encoding="utf-8")) == page


def test_a_view_is_a_file_that_a_browser_opens(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: bool(opened.append(address)) or True)
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setenv("TMPDIR", str(Path.cwd()))
    monkeypatch.setattr("tempfile.tempdir", None)
    code, out, err = run("view", "net.py::build", capsys=capsys)
    path = Path(out.strip())
    assert (code, err.count("no browser")) == (0, 0)
    assert opened == [path.as_uri()]
    assert path.stat().st_mode & 0o077 == 0
    assert mg.load(path).counts.params == 58


def test_a_view_without_a_browser_prints_the_path(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("tempfile.tempdir", str(Path.cwd()))
    code, out, err = run("view", "net.py::build", capsys=capsys)
    assert code == 0
    assert Path(out.strip()).is_file()
    assert "no browser was found" in err


def test_a_page_that_cannot_be_written_is_a_sentence(capsys: Capture) -> None:
    code, _, err = run("report", "net.py::build", "-o", "nowhere/page.html", capsys=capsys)
    assert code == 2
    assert "there is no folder 'nowhere'" in err


def test_the_view_of_a_page_holds_what_the_report_holds(capsys: Capture) -> None:
    from modelglass.page.view import view

    page_of("net.py::build", *INPUTS, capsys=capsys)
    report = mg.load("page.html")
    modules = view(report)["modules"]
    assert modules["figures"]["params"] == [each["params"] for each in report.layers]
    assert modules["name"] == [module.name for module in report.model.modules]
    json.dumps(view(report), allow_nan=False)
