"""`modelglass fit` as a person meets it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

import command_line
from modelglass import api
from modelglass.errors import ForwardError, UsageError
from modelglass.report import Fit, WhatIf
from modelglass.report.sizes import parse_nbytes

Capture = pytest.CaptureFixture[str]
Run = Callable[..., tuple[int, str, str]]
INPUT = ("--input", "2x16:int64")

MODEL = """
import torch
from torch import nn

def build():
    return nn.Sequential(nn.Embedding(10, 8), *(nn.Sequential(nn.Linear(8, 8), nn.GELU()) for _ in range(3)))

def batch():
    print("making a batch")
    return torch.zeros(4, 16, dtype=torch.int64)

def broken():
    return nn.Linear(3, 3)
"""


class Fitter:
    """Stands for the search: remembers how it was called, answers what it is told."""

    def __init__(self) -> None:
        self.fits = True
        self.error: Exception | None = None
        self.given: dict[str, Any] = {}

    def __call__(self, target: str, inputs: Any, *, progress: Any, **more: Any) -> Fit:
        self.given = {"target": target, "inputs": inputs, **more}
        click.echo("noise")
        progress("fake run 1: as given")
        if self.error is not None:
            raise self.error
        return Fit(
            device_nbytes=more["device_memory"],
            train=more["train"],
            optimizer=more["optimizer"],
            calibrated=more["calibrate"],
            fits=self.fits,
            peak_nbytes=1_000,
            method="exact",
            batch_size=None,
            largest_batch=None,
            largest_batch_peak_nbytes=None,
            next_batch_peak_nbytes=None,
            runs=1,
        )


@pytest.fixture
def fitter(monkeypatch: pytest.MonkeyPatch) -> Fitter:
    made = Fitter()
    monkeypatch.setattr(api, "fit", made)
    return made


@pytest.fixture
def run(capsys: Capture) -> Run:
    return lambda *args: command_line.run("fit", *args, capsys=capsys)


SIZES = {
    "24GiB": 24 * 2**30,
    "24 GiB": 24 * 2**30,
    "24gib": 24 * 2**30,
    "24GB": 24 * 10**9,
    "512MiB": 512 * 2**20,
    "512MB": 512 * 10**6,
    "1.5GiB": 3 * 2**29,
    "0.3KiB": 307,
    "2TiB": 2 * 2**40,
    "1000": 1000,
    "1000B": 1000,
}


@pytest.mark.parametrize(("text", "nbytes"), SIZES.items())
def test_sizes(text: str, nbytes: int) -> None:
    assert parse_nbytes(text) == nbytes


NO_SIZES = [
    "",
    "24G",
    "24g",
    "GiB",
    "-1GiB",
    "1e9",
    "24 GiB left",
    "24Gibi",
    "1,5GiB",
    "٣GiB",
    "0",
    "0.1",
    "inf",
    "nan",
]


@pytest.mark.parametrize("text", NO_SIZES)
def test_anything_else_is_wrong_usage(text: str, run: Run, fitter: Fitter) -> None:
    with pytest.raises(UsageError):
        parse_nbytes(text)
    code, out, err = run("m.py::build", *INPUT, f"--device-memory={text}")
    assert (code, out) == (2, "")
    assert "hint:" in err
    assert not fitter.given


def test_what_is_asked_reaches_the_search(run: Run, fitter: Fitter) -> None:
    code, out, err = run("m.py::build", *INPUT, "--device-memory", "24GiB")
    assert code == 0
    assert out.startswith("fits: a forward pass takes 1000 B")
    assert err == "noise\n"
    assert fitter.given == {
        "target": "m.py::build",
        "inputs": api.Automatic(given=api.parse_specs(["2x16:int64"])),
        "device_memory": 24 * 2**30,
        "train": False,
        "optimizer": None,
        "calibrate": False,
        "builder": None,
        "model_key": None,
        "trust": False,
        "what_if": None,
        "options": True,
    }
    more = ("--train", "--calibrate", "--no-options")
    run("m.py::build", "--inputs", "m.py::batch", "--device-memory=9", *more)
    assert fitter.given["inputs"] == "m.py::batch"
    assert (fitter.given["train"], fitter.given["optimizer"]) == (True, "adamw")
    assert (fitter.given["calibrate"], fitter.given["options"]) == (True, False)
    more = ("--train", "--optimizer", "o.py::make", "--weights", "bf16")
    run("m.py::build", *INPUT, "--device-memory=9", *more)
    assert fitter.given["optimizer"] == "o.py::make"
    assert fitter.given["what_if"] == WhatIf(weights="bfloat16")
    run("m.py::build", *INPUT, "--device-memory=9", "--train", "--optimizer", "none")
    assert fitter.given["optimizer"] is None


def test_what_does_not_fit_exits_with_1(run: Run, fitter: Fitter) -> None:
    fitter.fits = False
    code, out, _ = run("m.py::build", *INPUT, "--device-memory", "999")
    assert code == 1
    assert out.startswith("does not fit: ")


def test_what_cannot_run_exits_with_3(run: Run, fitter: Fitter) -> None:
    fitter.error = ForwardError("(root) raised", hint="check the inputs")
    code, out, err = run("m.py::build", *INPUT, "--device-memory", "999")
    assert (code, out) == (3, "")
    assert "error: (root) raised" in err


WRONG = {
    "no memory": (["m.py::build", *INPUT], "--device-memory"),
    "an optimizer without training": (
        ["m.py::build", *INPUT, "--device-memory=9", "--optimizer=sgd"],
        "add --train",
    ),
    "both kinds of inputs": (
        ["m.py::build", *INPUT, "--inputs=m.py::b", "--device-memory=9"],
        "cannot be combined",
    ),
    "no such type": (["m.py::build", *INPUT, "--device-memory=9", "--weights=int3"], "int3"),
}


@pytest.mark.parametrize(("args", "message"), WRONG.values(), ids=WRONG)
def test_wrong_usage(args: list[str], message: str, run: Run, fitter: Fitter) -> None:
    code, out, err = run(*args)
    assert (code, out) == (2, "")
    assert message in err


def test_formats_and_files(run: Run, fitter: Fitter, tmp_path: Path) -> None:
    _, out, _ = run("m.py::build", *INPUT, "--device-memory=9000", "--format=json")
    assert json.loads(out)["format"] == "modelglass-fit"
    _, out, _ = run("m.py::build", *INPUT, "--device-memory=9000", "--format=markdown")
    assert out.startswith("### fits: ")
    target = tmp_path / "fit.txt"
    code, out, _ = run("m.py::build", *INPUT, "--device-memory=9000", "-o", str(target))
    assert (code, out) == (0, "")
    assert target.read_text().startswith("fits: ")


@pytest.mark.slow
def test_a_real_search_from_beginning_to_end(run: Run, tmp_path: Path) -> None:
    """The largest batch, and one more, by running each of them alone."""
    (tmp_path / "m.py").write_text(MODEL)
    model, batch = f"{tmp_path}/m.py::build", f"{tmp_path}/m.py::batch"
    code, out, err = run(model, "--inputs", batch, "--device-memory=100KiB", "--train", "--format=json")
    document = json.loads(out)
    assert code == 0
    assert "making a batch" in err
    assert (document["batch_size"], document["seq_len"]) == (4, 16)
    largest = document["largest_batch"]
    for size, peak in (
        (largest, document["largest_batch_peak_nbytes"]),
        (largest + 1, document["next_batch_peak_nbytes"]),
    ):
        memory = api.inspect(
            model, api.parse_specs([f"{size}x16:int64"]), train=True, optimizer="adamw"
        ).memory
        assert memory is not None
        assert memory.needed_nbytes == peak
    assert document["largest_batch_peak_nbytes"] <= 100 * 1024 < document["next_batch_peak_nbytes"]


@pytest.mark.slow
def test_a_real_search_that_finds_other_ways(run: Run, tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(MODEL)
    model, batch = f"{tmp_path}/m.py::build", f"{tmp_path}/m.py::batch"
    code, out, _ = run(model, "--inputs", batch, "--device-memory=20KiB", "--train", "--format=json")
    document = json.loads(out)
    assert code == 1
    changes = [option["what_if"] for option in document["options"] if option["fits"]]
    assert any(change["accumulate"] == 4 for change in changes)
    for option in document["options"]:
        if option["fits"] and option["method"] == "exact":
            what_if = WhatIf(**{**option["what_if"], "recompute": tuple(option["what_if"]["recompute"])})
            memory = api.inspect(model, batch, train=True, optimizer="adamw", what_if=what_if).memory
            assert memory is not None
            assert memory.needed_nbytes == option["peak_nbytes"]


def test_a_model_that_fails_is_told_as_any_other_failure(run: Run, tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(MODEL)
    code, out, err = run(f"{tmp_path}/m.py::broken", "--input=2x4", "--device-memory=1MiB")
    assert (code, out) == (3, "")
    assert "error: " in err
