"""`dump_model_info` as documented: `python tests/test_model_info.py` runs this file alone."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import modelglass as mg
from modelglass import LayerInfo, ModelInfo, dump_model_info


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def dumped(model: Any, **options: Any) -> tuple[ModelInfo, str]:
    """The answer, and what was printed."""
    out = io.StringIO()
    with redirect_stdout(out):
        info = dump_model_info(model, **{"plot_distributions": False, **options})
    return info, out.getvalue()


def wide() -> nn.Module:
    return nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256))


def normed() -> nn.Module:
    return nn.Sequential(nn.Linear(256, 512), nn.LayerNorm(512), nn.GELU(), nn.Linear(512, 256))


class ThreeParts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear1, self.linear2, self.embed = nn.Linear(10, 20), nn.Linear(20, 5), nn.Embedding(100, 10)


@pytest.mark.parametrize(
    ("build", "params", "tensors", "nbytes"),
    [
        (wide, 262_912, 4, 1_051_648),
        (normed, 263_936, 6, 1_055_744),
        (ThreeParts, 1_325, 5, 5_300),
        (
            lambda: nn.Sequential(nn.Linear(128, 256), nn.Linear(256, 64), nn.Linear(64, 10)),
            50_122,
            6,
            200_488,
        ),
        (lambda: nn.Sequential(nn.Embedding(1000, 128), nn.Linear(128, 10)), 129_290, 3, 517_160),
    ],
)
def test_totals(build: Callable[[], nn.Module], params: int, tensors: int, nbytes: int) -> None:
    info, text = dumped(build())
    assert (info.total_params, info.trainable_params, info.non_trainable_params) == (params, params, 0)
    assert (info.num_layers, len(info.layers)) == (tensors, tensors)
    assert info.total_memory_mb == nbytes / 2**20
    assert sum(layer.num_params for layer in info.layers) == params
    assert sum(layer.memory_mb for layer in info.layers) == pytest.approx(nbytes / 2**20)
    assert f"Total parameters:      {params:,}" in text


def test_frozen_parts_are_apart() -> None:
    model = ThreeParts()
    model.linear1.requires_grad_(False)
    info, text = dumped(model)
    assert (info.trainable_params, info.non_trainable_params) == (1_105, 220)
    marks = [line.split()[-1] for line in text.splitlines() if line.startswith("linear1.")][:2]
    assert marks == ["✗", "✗"]
    assert "✓" in next(line for line in text.splitlines() if line.startswith("embed."))


def test_only_the_middle_is_frozen() -> None:
    model = nn.Sequential(nn.Linear(128, 256), nn.Linear(256, 128), nn.Linear(128, 64))
    model[1].requires_grad_(False)
    info, _ = dumped(model)
    assert (info.trainable_params, info.non_trainable_params) == (33_024 + 8_256, 32_896)


def test_the_sections_and_their_lines() -> None:
    _, text = dumped(wide())
    lines = text.splitlines()
    assert [line for line in lines if line.isupper()] == ["SUMMARY", "LAYER DETAILS", "WEIGHT STATISTICS"]
    assert "  Total memory:          1.00 MB" in lines
    assert "  Total layers:          4" in lines
    details = lines[lines.index("LAYER DETAILS") + 1 :]
    assert details[0].split() == ["Layer", "Name", "Shape", "Params", "Memory", "Grad"]
    assert details[1].split() == ["0.weight", "(512,", "256)", "131,072", "0.50", "MB", "✓"]
    assert details[2].split() == ["0.bias", "(512,)", "512", "2.00", "KB", "✓"]
    statistics = lines[lines.index("WEIGHT STATISTICS") + 1 :]
    assert statistics[0].split() == ["Layer", "Mean", "Std", "Min", "Max"]
    assert len(statistics[1].split()) == 5


def test_statistics_are_torch_s_own() -> None:
    model = wide()
    info, _ = dumped(model)
    for layer, weight in zip(info.layers, model.parameters(), strict=True):
        truth = weight.detach().double()
        assert layer.mean == pytest.approx(truth.mean().item(), rel=1e-9)
        assert layer.std == pytest.approx(truth.std().item(), rel=1e-9)
        assert (layer.min, layer.max) == (truth.min().item(), truth.max().item())
        assert (layer.shape, layer.dtype) == (tuple(weight.shape), "float32")


def test_constant_weights() -> None:
    layer = nn.Linear(4, 3)
    nn.init.constant_(layer.weight, 1.0)
    nn.init.constant_(layer.bias, 0.5)
    info, _ = dumped(layer)
    assert [(entry.mean, entry.std) for entry in info.layers] == [(1.0, 0.0), (0.5, 0.0)]


def test_shared_weights_count_once() -> None:
    model = nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 10, bias=False))
    model[1].weight = model[0].weight
    info, _ = dumped(model)
    assert (info.total_params, info.num_layers) == (40, 1)


def test_sizes_people_can_read() -> None:
    sizes = {512: "0.50 KB", 2048: "2.00 KB", 2**19: "0.50 MB", 2**20: "1.00 MB", 3 * 2**30: "3.00 GB"}
    for nbytes, text in sizes.items():
        assert LayerInfo("w", (1,), 1, nbytes / 2**20).memory == text
    assert LayerInfo("w", (0,), 0, 0.0).memory == "0.00 MB"


class Odd(nn.Module):
    """Parameters on which the usual figures fail."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Parameter(torch.tensor([3.0]))
        self.empty = nn.Parameter(torch.empty(0, 4))
        self.whole = nn.Parameter(torch.arange(6), requires_grad=False)
        self.complex = nn.Parameter(torch.randn(3, dtype=torch.complex64))
        self.meta = nn.Parameter(torch.empty(2, 2, device="meta"))
        self.small = nn.Parameter(torch.ones(8, dtype=torch.bfloat16))
        self.lazy = nn.LazyLinear(3)


def test_odd_parameters_do_not_raise_or_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        info, text = dumped(Odd())
    layers = {layer.name: layer for layer in info.layers}
    assert (layers["one"].mean, layers["one"].std) == (3.0, None)
    assert layers["empty"].mean is None
    assert (layers["whole"].mean, layers["whole"].min, layers["whole"].max) == (2.5, 0, 5)
    assert layers["complex"].mean is not None
    assert layers["meta"].mean is None
    assert layers["meta"].num_params == 4
    assert layers["small"].memory_mb == 16 / 2**20
    assert layers["lazy.weight"].shape is None
    assert info.problems == []
    rows = text.splitlines()[text.splitlines().index("WEIGHT STATISTICS") + 2 :][: len(layers)]
    assert [row.split()[0] for row in rows] == list(layers)
    assert not any("nan" in row.lower() for row in rows)


def test_a_model_without_any_memory() -> None:
    with torch.device("meta"):
        model = nn.Sequential(*(nn.Linear(2**16, 2**16) for _ in range(8)))
    info, text = dumped(model)
    assert info.total_params == 8 * (2**32 + 2**16)
    assert "128.00 GB" in text
    assert all(layer.mean is None for layer in info.layers)


def test_an_empty_model() -> None:
    info, text = dumped(nn.Sequential())
    assert (info.total_params, info.num_layers, info.layers) == (0, 0, [])
    assert "SUMMARY" in text


def test_a_logger_gets_it_all_and_nothing_is_printed(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("test_model_info")
    with caplog.at_level(logging.INFO, logger=logger.name):
        _, printed = dumped(wide(), logger=logger)
    assert printed == ""
    assert {"SUMMARY", "LAYER DETAILS", "WEIGHT STATISTICS"} <= set(caplog.messages)


def test_a_logger_that_fails_is_replaced_by_printing() -> None:
    class Broken:
        def info(self, line: str) -> None:
            raise RuntimeError("disk full")

    info, printed = dumped(wide(), logger=Broken())
    assert "WEIGHT STATISTICS" in printed
    assert "disk full" in info.problems[0]


@pytest.mark.parametrize(
    "thing", [None, 3, "no/such/file.py::build", object()], ids=["none", "number", "no file", "object"]
)
def test_what_is_no_model_is_told_not_raised(thing: Any) -> None:
    info, printed = dumped(thing)
    assert (info.total_params, info.layers) == (0, [])
    assert len(info.problems) == 1
    assert printed.count("WARNING") == 1


def test_a_terminal_without_check_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", out)
    info = dump_model_info(wide(), plot_distributions=False)
    out.flush()
    assert b"0.weight" in out.buffer.getvalue()
    assert info.problems == []


def test_nobody_listening() -> None:
    out = io.StringIO()
    out.close()
    with redirect_stdout(out):
        info = dump_model_info(wide(), plot_distributions=False)
    assert info.total_params == 262_912
    assert len(info.problems) == 1
    assert "cannot print" in info.problems[0]


def test_an_output_that_breaks() -> None:
    class Broken(io.StringIO):
        def write(self, text: str) -> int:
            raise RuntimeError("gone")

    with redirect_stdout(Broken()):
        info = dump_model_info(wide(), plot_distributions=False)
    assert (info.total_params, len(info.problems)) == (262_912, 1)


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_the_plot_is_written_where_it_should_be(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"mine.{suffix}"
    info, text = dumped(wide(), plot_distributions=True, save_path=str(path))
    start = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[suffix]
    assert path.read_bytes().startswith(start)
    assert info.plot_path == str(path)
    assert str(path) in text


def test_the_plot_has_a_default_name() -> None:
    dumped(wide(), plot_distributions=True)
    assert Path("model_weight_distributions.png").stat().st_size > 10_000
    assert os.listdir() == ["model_weight_distributions.png"]


@pytest.mark.parametrize("path", ["no/such/folder/a.png", "a.jpeg", "."])
def test_a_path_that_will_not_do_is_one_warning(path: str) -> None:
    info, text = dumped(wide(), plot_distributions=True, save_path=path)
    assert (info.num_layers, info.plot_path) == (4, None)
    assert text.count("WARNING") == 1
    assert len(info.problems) == 1


def test_without_matplotlib_there_is_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "modelglass.renderers.plots", raising=False)
    monkeypatch.delattr("modelglass.renderers.plots", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    info, text = dumped(wide(), plot_distributions=True)
    assert text.count("WARNING") == 1
    assert 'pip install "modelglass[plots]"' in text
    assert info.total_params == 262_912


@pytest.mark.parametrize(
    "path", ["plain", b"bytes.png", Path("path.pdf")], ids=["no suffix", "bytes", "path"]
)
def test_paths_of_all_kinds(path: Any) -> None:
    info, _ = dumped(wide(), plot_distributions=True, save_path=path)
    assert info.problems == []
    assert info.plot_path == os.fsdecode(path)
    assert Path(info.plot_path).exists()


class Hostile:
    """Refuses to be anything."""

    def __bool__(self) -> bool:
        raise ValueError(self)

    def __str__(self) -> str:
        raise RuntimeError("no text")

    def info(self, line: str) -> None:
        raise ValueError(self)

    warning = info


@pytest.mark.parametrize("option", ["plot_distributions", "save_path", "logger"])
def test_hostile_arguments_do_not_raise(option: str) -> None:
    info, _ = dumped(wide(), **{"plot_distributions": True, "save_path": "x.png", option: Hostile()})
    assert info.total_params == 262_912
    assert len(info.problems) == 1


def test_it_shares_its_report() -> None:
    info, _ = dumped(wide())
    assert isinstance(info.report, mg.Report)
    assert info.report.counts.params == info.total_params


@pytest.mark.slow
def test_the_demo_runs_through_its_four_examples(tmp_path: Path) -> None:
    demo = Path(__file__).parents[2] / "examples" / "demo_model_info.py"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, str(demo)], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    headings = [line for line in done.stdout.splitlines() if line[1:3] == ". "]
    assert [line[0] for line in headings] == ["1", "2", "3", "4"]
    assert done.stdout.count("WEIGHT STATISTICS") == 6
    assert len(list(tmp_path.rglob("*.png"))) == 3


@pytest.mark.slow
def test_the_script_that_the_document_names_runs_from_a_clone(tmp_path: Path) -> None:
    script = Path(__file__).parents[1] / "test_model_info.py"
    environment = {**os.environ, "PYTEST_ADDOPTS": "-k test_it_shares_its_report"}
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
