"""Every command on code that builds an MLX model, as a person meets it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

import modelglass as mg
from command_line import run
from modelglass.cli.model_inspector import main as model_inspector
from modelglass.cli.tt_model_analysis import main as tt_model_analysis
from modelglass.errors import UsageError

SOURCE = """
import mlx.core as mx
from mlx import nn

class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.layer = nn.LayerNorm(8), nn.Linear(8, 8)

    def __call__(self, x):
        return x + nn.relu(self.layer(self.norm(x)))

def build():
    mx.random.seed(0)
    return nn.Sequential(nn.Linear(4, 8), Residual(), Residual(), Residual(), nn.Linear(8, 2))

def images():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm(8), nn.ReLU())

def batch():
    return mx.zeros((2, 3, 4))
"""
TARGET = "net.py::build"
INPUTS = ("--inputs", "net.py::batch")
PARAMS = 40 + 3 * (16 + 72) + 18
MACS = 6 * (32 + 3 * 64 + 16)
Capture = pytest.CaptureFixture[str]
Golden = Callable[[str, str], None]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "net.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)


def test_inspect(capsys: Capture, golden: Golden) -> None:
    code, out, err = run("inspect", TARGET, *INPUTS, capsys=capsys)
    assert (code, err) == (0, "")
    assert f"{MACS:,}" in out
    golden("mlx/inspect.txt", out)


def test_the_structure_alone(capsys: Capture) -> None:
    code, out, _ = run("inspect", TARGET, "--no-run", capsys=capsys)
    assert code == 0
    assert f"parameters   {PARAMS}" in out
    assert "structure only" in out


def test_inputs_by_shape_and_type(capsys: Capture) -> None:
    code, out, _ = run("inspect", TARGET, "--input", "5x4:float16", capsys=capsys)
    assert code == 0
    assert "5x4 float16" in out
    code, _, err = run("inspect", TARGET, "--input", "5x4:float65", capsys=capsys)
    assert code == 2
    assert "MLX has no element type 'float65'" in err


def test_a_saved_report_reads_back_equal(capsys: Capture) -> None:
    code, out, _ = run("inspect", TARGET, *INPUTS, "--format", "json", "-o", "r.json", capsys=capsys)
    assert (code, out) == (0, "")
    report = mg.load("r.json")
    assert report.model.source == "mlx"
    assert report.cost.macs == MACS
    mg.save(report, "again.json")
    assert Path("again.json").read_text() == Path("r.json").read_text()


def test_markdown(capsys: Capture) -> None:
    code, out, _ = run("inspect", TARGET, *INPUTS, "--format", "markdown", capsys=capsys)
    assert code == 0
    assert "| run | lazy arrays, nothing evaluated |" in out


def test_a_wrong_layout_is_explained(capsys: Capture) -> None:
    code, out, _ = run("inspect", "net.py::images", "--input", "1x3x16x16", capsys=capsys)
    assert code == 3
    assert "✗ layers.0 (Conv2d) raised ValueError" in out
    assert "(1,3,16,16) and weight: (8,3,3,3)" in re.sub(r"\s+", " ", out)
    assert "it was called with 1x3x16x16 float32" in out
    assert "mx.moveaxis(x, 1, -1)" in re.sub(r"\s+", " ", out)


def test_flow(capsys: Capture, golden: Golden) -> None:
    code, out, err = run("flow", TARGET, *INPUTS, capsys=capsys)
    assert (code, err) == (0, "")
    golden("mlx/flow.txt", out)


@pytest.mark.parametrize("language", ["mermaid", "dot", "svg", "json"])
def test_flow_in_other_languages(language: str, capsys: Capture) -> None:
    code, out, _ = run("flow", TARGET, *INPUTS, "--format", language, capsys=capsys)
    assert code == 0
    assert "Residual" in out
    if language == "svg":
        ElementTree.fromstring(out)
    if language == "json":
        labels = [node["label"] for node in json.loads(out)["nodes"]]
        assert "maximum → add" in labels
        assert not any("broadcast" in label or "transpose" in label for label in labels)


def test_unique(capsys: Capture, golden: Golden) -> None:
    code, out, err = run("unique", TARGET, *INPUTS, capsys=capsys)
    assert (code, err) == (0, "")
    golden("mlx/unique.txt", out)


def test_programs_of_operators_run(capsys: Capture) -> None:
    code, _, err = run("unique", TARGET, *INPUTS, "--repro", "alone", capsys=capsys)
    assert code == 0
    assert "25 operators, one file each" in err
    programs = sorted(Path("alone").glob("op_*_AddMM.py"))
    done = subprocess.run([sys.executable, programs[0]], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("mx.addmm ")


def test_stats(capsys: Capture) -> None:
    code, out, _ = run("stats", TARGET, capsys=capsys)
    assert code == 0
    assert re.search(r"layers\.0\.weight +8x4", out)
    assert "16 tensors" in out


def test_memory(capsys: Capture) -> None:
    code, out, _ = run("memory", TARGET, *INPUTS, capsys=capsys)
    assert code == 0
    assert out.startswith("Sequential (mlx): one forward pass without gradients")
    code, out, _ = run("memory", TARGET, *INPUTS, "--train", "--optimizer", "adamw", capsys=capsys)
    assert code == 0
    assert "one training step with adamw" in out


def test_fit(capsys: Capture) -> None:
    code, out, _ = run("fit", TARGET, *INPUTS, "--memory", "1MiB", capsys=capsys)
    assert code == 0
    assert out.startswith("fits: a forward pass takes")
    assert run("fit", TARGET, *INPUTS, "--memory", "1KiB", capsys=capsys)[0] == 1


def test_info(capsys: Capture) -> None:
    code, out, _ = run("info", TARGET, *INPUTS, capsys=capsys)
    document = json.loads(out)
    assert code == 0
    assert document["framework"] == "mlx"
    assert document["input_info"] == {"shape": [2, 3, 4], "dtype": "mlx.core.float32"}
    assert document["totals"]["macs"] == MACS
    assert [layer["type"] for layer in document["layers"]][:3] == ["list", "Linear", "Residual"]


def test_documents_of_modules_and_operators(capsys: Capture) -> None:
    with pytest.raises(SystemExit) as stop:
        tt_model_analysis(["--model-path", TARGET, "--inputs-path", "net.py::batch", "--dir", "found"])
    assert not stop.value.code
    modules = json.loads(Path("found/unique_modules.json").read_text())
    ops = json.loads(Path("found/pytorch_ops.json").read_text())
    assert modules["metadata"]["total_modules"] == 13
    assert ops["metadata"]["total_macs"] == MACS
    assert "mx.addmm" in [op["op_name"] for op in ops["ops"]]
    capsys.readouterr()


def test_a_model_where_a_function_is_wanted_is_refused() -> None:
    from mlx import nn

    with pytest.raises(UsageError, match="load_fn is a Linear, not a function"):
        mg.extract_unique_modules(nn.Linear(2, 2), lambda: None)


@pytest.mark.parametrize("command", ["flow", "memory", "fit"])
def test_what_needs_a_run_finds_inputs(command: str, capsys: Capture) -> None:
    memory = ("--memory", "1GiB") if command == "fit" else ()
    code, out, _ = run(command, TARGET, *memory, "--input-budget", "60", capsys=capsys)
    assert code == 0
    assert "inputs found by trying" in out


def test_an_array_is_no_model(capsys: Capture) -> None:
    code, _, err = run("inspect", "net.py::batch", capsys=capsys)
    assert code == 3
    assert "an mlx.nn.Module" in err


@pytest.mark.slow
def test_torch_is_not_needed_and_not_spoken_of(tmp_path: Path) -> None:
    """In a process of its own, each command answers without importing torch or naming it."""
    program = (
        "import sys\n"
        "sys.modules['torch'] = None\n"
        "from modelglass.cli.main import main\n"
        "try:\n    main(sys.argv[1:])\n"
        "except SystemExit as stop:\n    sys.exit(stop.code)\n"
    )
    for command in ("inspect", "flow", "unique", "memory", "info"):
        done = subprocess.run(
            [sys.executable, "-c", program, command, TARGET, *INPUTS], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert "torch" not in done.stdout + done.stderr, command
        assert "fake" not in done.stdout, command


def test_model_inspector_leaves_out_what_mlx_does_not_have(capsys: Capture) -> None:
    Path("net.yaml").write_text("hidden: 8\n")
    Path("net.py").write_text(SOURCE + "\ndef of(settings):\n    return build()\n")
    with pytest.raises(SystemExit) as stop:
        model_inspector(["--config", "net.yaml", "--builder", "net.py::of", *INPUTS])
    out = capsys.readouterr().out
    assert not stop.value.code
    assert f"Total Parameters:     {PARAMS}" in out
    assert "(AMP, bfloat16): unknown: MLX has no autocast" in out
