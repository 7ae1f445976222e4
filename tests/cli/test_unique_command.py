"""`modelglass unique`, `modelglass info` and `tt-model-analysis` as a person meets them."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from command_line import run
from modelglass.cli import tt_model_analysis

SOURCE = """
import torch
from torch import nn

def load_model():
    print("building")
    return nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
        nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
    )

def get_inputs():
    return torch.randn(1, 3, 224, 224)

def wrong_inputs():
    return torch.randn(1, 5, 8, 8)

def raises():
    raise OSError("no disk")
"""
TARGET = "net.py::load_model"
INPUT = ("--input", "1x3x224x224")


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "net.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)


Capture = pytest.CaptureFixture[str]


def test_tables(capsys: Capture, golden: Callable[[str, str], None]) -> None:
    code, out, _ = run("unique", TARGET, *INPUT, capsys=capsys)
    assert code == 0
    golden("unique/command.txt", out)


@pytest.mark.parametrize(
    ("flag", "present", "absent"), [("--ops", "op_000", "mod_000"), ("--modules", "mod_000", "op_000")]
)
def test_one_kind_alone(flag: str, present: str, absent: str, capsys: Capture) -> None:
    for format_ in ("text", "json", "csv", "markdown"):
        _, out, _ = run("unique", TARGET, *INPUT, flag, "--format", format_, capsys=capsys)
        out = out.replace("\\_", "_")
        assert present in out
        assert f'"id": "{absent}"' not in out
        assert f"\n{absent}" not in out


@pytest.mark.parametrize(("sort", "first"), [("count", "op_001"), ("macs", "op_003"), ("order", "op_000")])
def test_sorted_by_how_often_or_how_costly(sort: str, first: str, capsys: Capture) -> None:
    _, out, _ = run("unique", TARGET, *INPUT, "--ops", "--sort", sort, "--format", "csv", capsys=capsys)
    rows = list(csv.DictReader(io.StringIO(out)))
    assert rows[0]["id"] == first
    assert [row["count"] for row in sorted(rows, key=lambda row: row["id"])] == ["1", "2", "2", "1"]
    assert sum(int(row["total_macs"]) for row in rows) == 1_936_392_192


def test_json_has_the_documents_records(capsys: Capture) -> None:
    _, out, _ = run("unique", TARGET, *INPUT, "--format", "json", capsys=capsys)
    document = json.loads(out)
    assert (document["total_modules"], document["unique_modules"]) == (7, 5)
    assert (document["total_ops"], document["unique_ops"]) == (6, 4)
    assert {"class_name", "occurrences", "macs"} <= set(document["modules"][0])


def test_markdown(capsys: Capture, golden: Callable[[str, str], None]) -> None:
    _, out, _ = run("unique", TARGET, *INPUT, "--format", "markdown", "--top", "2", capsys=capsys)
    golden("unique/command.md", out)


@pytest.mark.parametrize("width", [40, 60, 80, 100, 140, 200])
def test_lines_fit(width: int, capsys: Capture) -> None:
    _, out, _ = run("unique", TARGET, *INPUT, "--width", str(width), capsys=capsys)
    assert max(map(len, out.splitlines())) <= width


def test_a_share_of_what_is_not_known_in_full_is_a_limit(capsys: Capture) -> None:
    Path("mystery.py").write_text(
        """
import torch
library = torch.library.Library("modelglass_cli", "FRAGMENT")
library.define("mystery(Tensor x) -> Tensor")
library.impl("mystery", lambda x: x @ x, "CompositeExplicitAutograd")
torch.library.register_fake("modelglass_cli::mystery", torch.empty_like, lib=library)

class Net(torch.nn.Linear):
    def forward(self, x):
        return torch.ops.modelglass_cli.mystery(super().forward(x))

def build():
    return Net(2, 2)
"""
    )
    _, out, _ = run("unique", "mystery.py::build", "--input", "2x2", "--ops", capsys=capsys)
    assert "≤ 100.0 %" in out
    assert out.count("?") >= 2


def test_without_inputs_modules_are_told_apart_by_what_they_are(capsys: Capture) -> None:
    code, out, _ = run("unique", TARGET, "--no-run", capsys=capsys)
    assert code == 0
    assert "7 modules, 5 distinct; without inputs nothing ran" in out
    assert "operators" not in out
    _, out, _ = run("unique", TARGET, "--no-run", "--format", "json", capsys=capsys)
    first = json.loads(out)["modules"][0]
    assert first["occurrences"] == ["1", "4"], "sorted by places, as the table is"


@pytest.mark.parametrize("more", [["--ops"], ["--repro", "ops"]])
def test_inputs_of_operators_are_found(more: list[str], capsys: Capture) -> None:
    code, out, _ = run("unique", TARGET, *more, capsys=capsys)
    assert code == 0
    assert "inputs found by trying" in out


@pytest.mark.slow
def test_reproducers_run_on_their_own(capsys: Capture) -> None:
    code, _, err = run("unique", TARGET, *INPUT, "--repro", "ops", capsys=capsys)
    assert code == 0
    assert "4 operators, one file each, in ops" in err
    names = sorted(path.name for path in Path("ops").iterdir())
    assert names == ["op_000_conv2d.py", "op_001_batch_norm.py", "op_002_relu.py", "op_003_conv2d.py"]
    ran = subprocess.run([sys.executable, "ops/op_003_conv2d.py"], capture_output=True, text=True, check=True)
    assert ran.stdout == "torch.conv2d 1x64x224x224 torch.float32\n"


def test_unknown_columns_are_told_before_anything_runs(capsys: Capture) -> None:
    code, _, err = run("unique", "missing.py::nothing", "--columns", "color", capsys=capsys)
    assert code == 2
    assert "color" in err


def test_info(capsys: Capture) -> None:
    code, out, _ = run("info", TARGET, *INPUT, "--name", "stack", "-o", "model_info.json", capsys=capsys)
    assert (code, out) == (0, "")
    document = json.loads(Path("model_info.json").read_text())
    assert (document["model_name"], document["parameters"]) == ("stack", 38_976)
    code, out, _ = run("info", TARGET, *INPUT, "--name", "stack", capsys=capsys)
    assert json.loads(out) == document


def analysis(*args: str, capsys: Capture) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        tt_model_analysis.main(list(args))
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out, err


BOTH = ("--model-path", TARGET, "--inputs-path", "net.py::get_inputs")


@pytest.mark.parametrize("more", [[], ["--dir", "found/here"]])
def test_the_analysis_writes_two_files_and_a_summary(more: list[str], capsys: Capture) -> None:
    code, out, _ = analysis(*BOTH, *more, capsys=capsys)
    folder = Path(more[1] if more else "Sequential")
    assert code == 0
    assert sorted(path.name for path in folder.iterdir()) == ["pytorch_ops.json", "unique_modules.json"]
    modules, ops = (
        json.loads((folder / name).read_text()) for name in ("unique_modules.json", "pytorch_ops.json")
    )
    assert modules["metadata"]["load_fn_location"] == "net.py:load_model"
    assert (modules["metadata"]["total_modules"], modules["metadata"]["unique_modules"]) == (7, 5)
    assert (ops["metadata"]["total_ops"], ops["metadata"]["unique_ops"]) == (6, 4)
    ids = {module["id"] for module in modules["modules"]}
    assert {op["source_module_id"] for op in ops["ops"]} <= ids
    assert "Sequential: 7 modules, 5 distinct" in out
    assert "6 operators executed, 4 distinct" in out
    assert str(folder / "pytorch_ops.json") in out


WRONG = {
    "no such file": ("gone.py::f", "net.py::get_inputs", 3, "there is no file 'gone.py'"),
    "no such function": ("net.py::load_modle", "net.py::get_inputs", 3, "did you mean load_model?"),
    "no function named": ("net.py", "net.py::get_inputs", 3, "net.py::load_model"),
    "model raises": ("net.py::raises", "net.py::get_inputs", 3, "raised OSError: no disk"),
    "inputs raise": (TARGET, "net.py::raises", 3, "raised OSError: no disk"),
    "inputs do not fit": (TARGET, "net.py::wrong_inputs", 3, "0 raised RuntimeError"),
    "no inputs function": (TARGET, "net.py::get_input", 3, "did you mean get_inputs?"),
}


@pytest.mark.parametrize("case", WRONG)
def test_trouble_is_told_and_nothing_is_left_behind(case: str, capsys: Capture) -> None:
    model, inputs, expected, message = WRONG[case]
    code, out, err = analysis("--model-path", model, "--inputs-path", inputs, capsys=capsys)
    assert (code, out) == (expected, "")
    assert message in err
    assert "hint:" in err
    assert "Traceback" not in err
    assert [path.name for path in Path().iterdir()] == ["net.py"]


@pytest.mark.parametrize("command", ["unique", "info"])
@pytest.mark.parametrize("case", ["no such file", "model raises", "inputs do not fit"])
def test_the_other_commands_tell_it_the_same_way(command: str, case: str, capsys: Capture) -> None:
    model, inputs, expected, message = WRONG[case]
    code, out, err = run(command, model, "--inputs", inputs, "-o", "out.json", capsys=capsys)
    assert (code, out) == (expected, "")
    assert message in err
    assert not Path("out.json").exists()


def test_one_file_that_cannot_be_written_leaves_the_other_as_it_was(capsys: Capture) -> None:
    Path("found/pytorch_ops.json").mkdir(parents=True)
    Path("found/unique_modules.json").write_text("of an earlier run")
    code, _, err = analysis(*BOTH, "--dir", "found", capsys=capsys)
    assert code == 2
    assert "pytorch_ops.json': it is a folder" in err
    assert Path("found/unique_modules.json").read_text() == "of an earlier run"
    assert len(list(Path("found").iterdir())) == 2


@pytest.mark.parametrize("output", [".", "", "missing/out.json"])
@pytest.mark.parametrize("command", ["unique", "info"])
def test_outputs_that_cannot_be_written_are_told(command: str, output: str, capsys: Capture) -> None:
    code, out, err = run(command, TARGET, "-o", output, capsys=capsys)
    assert (code, out) == (2, "")
    assert "cannot write" in err
    assert "Traceback" not in err


def test_reproducers_that_cannot_be_written_end_it(capsys: Capture) -> None:
    code, out, err = run("unique", TARGET, *INPUT, "--repro", "net.py/ops", capsys=capsys)
    assert (code, out) == (2, "")
    assert "cannot write to 'net.py/ops'" in err


@pytest.mark.parametrize(
    "args", [[], ["--model-path", TARGET], [*BOTH, "--dir", "net.py"], [*BOTH, "--what"]]
)
def test_wrong_usage(args: list[str], capsys: Capture) -> None:
    code, _, err = analysis(*args, capsys=capsys)
    assert code == 2
    assert "Usage: tt-model-analysis" in err


def test_help_shows_examples(capsys: Capture) -> None:
    assert "tt-model-analysis --model-path" in analysis("--help", capsys=capsys)[1]
    for command in ("unique", "info"):
        assert f"modelglass {command} model.py::build" in run(command, "--help", capsys=capsys)[1]


@pytest.mark.slow
def test_the_command_is_installed() -> None:
    command = Path(sys.executable).parent / "tt-model-analysis"
    ran = subprocess.run([command, *BOTH], capture_output=True, text=True, check=True)
    assert "Sequential/unique_modules.json" in ran.stdout
    assert "building" in ran.stderr, "what the user's code prints does not mix with the result"


def test_a_file_that_does_not_name_its_modules(tmp_path: Path, capsys: Capture) -> None:
    torch.save({"0.weight": torch.zeros(2, 2)}, tmp_path / "weights.pt")
    code, out, err = run("unique", str(tmp_path / "weights.pt"), capsys=capsys)
    assert (code, out) == (3, "")
    assert "has no module types" in err
    torch.save(torch.nn.Sequential(torch.nn.Linear(2, 2)), tmp_path / "module.pt")
    code, out, err = run("unique", str(tmp_path / "module.pt"), capsys=capsys)
    assert code == 0
    assert "Linear" in out


@pytest.mark.parametrize("args", [["unique", "net.py::explode", "--repro", "net.py/ops"]])
def test_a_folder_that_cannot_be_made_ends_it_before_the_model_is_built(
    args: list[str], capsys: Capture
) -> None:
    code, _, err = run(*args, capsys=capsys)
    assert code == 2
    assert "'net.py/ops'" in err
    assert "is not a folder" in err


def test_operators_of_a_saved_report_are_shown(capsys: Capture) -> None:
    assert run("inspect", TARGET, *INPUT, "--format", "json", "-o", "report.json", capsys=capsys)[0] == 0
    code, out, _ = run("unique", "report.json", "--ops", capsys=capsys)
    assert code == 0
    assert out == run("unique", TARGET, *INPUT, "--ops", capsys=capsys)[1]
