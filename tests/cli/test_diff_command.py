"""`modelglass diff` as a person meets it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import build_weights
import command_line
import modelglass as mg

Capture = pytest.CaptureFixture[str]
Q = "model.layers.1.self_attn.q_proj.weight"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    weights = build_weights.decoder()
    build_weights.saved(weights, tmp_path / "a.safetensors")
    weights[Q][:] = 0
    build_weights.saved(weights, tmp_path / "zeroed.safetensors")
    return tmp_path


def diff(capsys: Capture, *args: str) -> tuple[int, str, str]:
    return command_line.run("diff", "a.safetensors", *args, capsys=capsys)


def test_the_verdict_comes_first_and_decides_the_exit_code(files: Path, capsys: Capture) -> None:
    code, out, _ = diff(capsys, "a.safetensors")
    assert (code, out.splitlines()[0]) == (0, "identical: every bit of b is that of a")
    code, out, _ = diff(capsys, "zeroed.safetensors")
    assert code == 1
    assert out.startswith(f"derived: b follows from a: zeroed ({Q})\n")
    assert diff(capsys, "zeroed.safetensors", "--fail-on", "unrelated")[0] == 0
    assert diff(capsys, "zeroed.safetensors", "--fail-on", "nothing")[0] == 2


@pytest.mark.parametrize("format", ["text", "json", "markdown", "csv", "html"])
def test_every_format_names_what_changed(files: Path, capsys: Capture, format: str) -> None:
    code, out, _ = diff(capsys, "zeroed.safetensors", "--format", format)
    assert code == 1
    assert "zeroed" in out or "q_proj" in out


def test_json_reads_back(files: Path, capsys: Capture) -> None:
    diff(capsys, "zeroed.safetensors", "--format", "json", "-o", "found.json")
    document = json.loads((files / "found.json").read_text())
    assert document["verdict"] == "derived"
    assert document["relation"] is None
    assert document["operations"][0]["kind"] == "zeroed"
    changed = [each for each in document["tensors"] if not each["equal"]]
    assert [(each["a"], each["b"], each["changed"]) for each in changed] == [(Q, Q, 64 * 64)]
    assert mg.load(files / "found.json") == mg.diff("a.safetensors", "zeroed.safetensors")


def test_a_truncated_file_is_named(files: Path, capsys: Capture) -> None:
    data = (files / "a.safetensors").read_bytes()
    (files / "cut.safetensors").write_bytes(data[:-5000])
    code, _, err = diff(capsys, "cut.safetensors")
    assert code == 3
    assert "cut.safetensors" in err


def test_a_large_difference_of_one_element_is_shown_with_its_place(files: Path, capsys: Capture) -> None:
    weights = build_weights.decoder()
    weights[Q][3, 5] += np.float32(9)
    build_weights.saved(weights, files / "one.safetensors")
    _, out, _ = diff(capsys, "one.safetensors", "--width", "120")
    assert "3,5" in out
