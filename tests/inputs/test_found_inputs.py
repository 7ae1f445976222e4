"""Inputs that are found by trying run for real, are the same each time, and leave no trace."""

from __future__ import annotations

import os
import random
import time
from typing import Any

import modules
import pytest
import torch
from torch import nn

import modelglass as mg
from modelglass.errors import InputsError, UsageError
from modelglass.frameworks.torch.inputs import trials
from modelglass.inputs import Search

pytestmark = pytest.mark.slow  # each search may take its time on a busy machine


@pytest.mark.parametrize("cls", modules.RUNNING, ids=lambda cls: cls.__name__)
def test_what_is_found_runs_for_real(cls: Any) -> None:
    model = cls().eval()
    found = mg.find_inputs(model, seconds=20)
    report = mg.inspect(model, found.inputs, run="real")
    assert report.run.failure is None
    assert found.text.startswith("inputs found by trying: ")


@pytest.mark.parametrize("cls", modules.FAILING, ids=lambda cls: cls.__name__)
def test_a_model_that_runs_with_nothing_gets_the_truth_in_time(cls: Any, capfd: Any) -> None:
    begun = time.monotonic()
    with pytest.raises(InputsError) as caught:
        mg.find_inputs(cls(), seconds=2)
    assert time.monotonic() - begun < 20
    assert len(caught.value.problem) < 1500
    assert capfd.readouterr() == ("", "")


def test_widths_that_do_not_fit_are_named() -> None:
    with pytest.raises(InputsError, match="b: 16 features met 32"):
        mg.inspect(modules.WrongWidths(), inputs="auto")


def test_sizes_are_ordinary_and_those_that_can_change_are_named() -> None:
    found = mg.find_inputs(modules.ConvNet(), seconds=60)
    assert "x 1x3x224x224 float32; B, H, W are free" in found.text
    assert found.options == ("--input x=1x3x224x224",)
    found = mg.find_inputs(modules.Digits(), seconds=60)
    assert "x 1x1x28x28 float32; B is free" in found.text


def test_structures_are_shown_as_python() -> None:
    found = mg.find_inputs(modules.FromDict(), seconds=60)
    space: dict[str, Any] = {"torch": torch}
    exec(found.python, space)
    assert modules.FromDict()(**space["inputs"]).shape == (1, 8)


def test_a_report_says_that_its_inputs_were_found() -> None:
    report = mg.inspect(modules.Denoiser(), inputs="auto")
    assert [note.code for note in report.notes] == ["inputs-found"]
    assert "inputs found by trying: x 1x4x224x224 float32, t 1 float32" in mg.render(report, "text")


def test_without_inputs_nothing_runs() -> None:
    assert mg.inspect(modules.ConvNet()).run.mode == "none"


@pytest.mark.parametrize("cls", [modules.ViT, modules.EdgeGraph, modules.FromTuple])
def test_two_searches_find_the_same(cls: Any) -> None:
    first, second = (mg.find_inputs(cls(), seconds=30) for _ in range(2))
    assert first.text == second.text


def test_a_search_ends_after_kernels_have_shared_their_work_among_threads() -> None:
    """Threads stay behind when a process is copied; a kernel that waits for them never ends."""

    class Brightness(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolve = nn.Conv2d(3, 16, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.convolve(x)
            return y.relu() if y.mean() > 0 else y

    nn.Conv2d(8, 8, 3)(torch.randn(8, 8, 64, 64))
    assert "x 1x3x224x224" in mg.find_inputs(Brightness(), seconds=30).text


def test_two_hundred_trials_in_this_process_leave_no_trace() -> None:
    model = nn.Sequential(nn.BatchNorm1d(8), nn.Dropout(), modules.WrongWidths()).train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state, python, names = torch.get_rng_state(), random.getstate(), set(vars(model))
    search = Search(trials.known_of(model), lambda call: trials.try_inputs(model, call), seconds=600)
    found = search.found()
    assert found.trials == 200
    assert found.trial is not None
    assert not found.trial.ran
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert random.getstate() == python
    assert set(vars(model)) == names
    assert model.training
    assert all(each.grad is None for each in model.parameters())


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(UsageError, match="modules of torch and MLX only"):
        mg.find_inputs(object())


class Sensors(nn.Module):
    """Channels before sensors, and a label beside them; as many sensors as positions were learned."""

    def __init__(self) -> None:
        super().__init__()
        self.signal, self.label = nn.Linear(3, 8), nn.Linear(6, 8)
        self.positions = nn.Parameter(torch.zeros(1, 100, 8))

    def forward(self, x_sig: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        x = self.signal(x_sig.transpose(1, 2))
        return x + self.positions[:, : x.shape[1]] + self.label(label)[:, None]


def test_exchanged_dimensions_and_labels_of_a_batch_are_found_at_the_models_own_length() -> None:
    found = mg.find_inputs(Sensors())
    assert found.options == ("--input x_sig=1x3x100", "--input label=1x6")


class Talking(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        print("here")  # noqa: T201
        return self.linear(x)


class Writing(nn.Module):
    def __init__(self, folder: Any) -> None:
        super().__init__()
        self.linear, self.folder = nn.Linear(8, 4), folder

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        (self.folder / f"{len(list(self.folder.iterdir()))}.txt").write_text("here")
        return self.linear(x) + self.linear(y).T.unsqueeze(0).missing


def test_what_prints_is_tried_once(capfd: Any) -> None:
    assert mg.find_inputs(Talking(), seconds=30).text.endswith("; 1 trial, as forward prints")
    assert capfd.readouterr() == ("", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="only a copy of the process is watched")
def test_what_writes_files_is_tried_once(tmp_path: Any) -> None:
    with pytest.raises(InputsError, match="in 1 trial, as forward writes files;"):
        mg.find_inputs(Writing(tmp_path), seconds=30)
    assert [each.name for each in tmp_path.iterdir()] == ["0.txt"]


class Windows(nn.Module):
    """Insists on sides that windows divide, without a word."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.patches(x)
        assert y.shape[2] % 8 == 0
        return y


def test_sides_that_a_model_insists_on_are_tried_at_once() -> None:
    assert "x 1x3x256x256 float32" in mg.find_inputs(Windows(), seconds=60).text
