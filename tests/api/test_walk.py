"""The way from a call to the adapter is short, and models are built once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch

import modelglass as mg
from modelglass.frameworks.torch import session

ROOT = str(Path(mg.__file__).parent)
MOST = 10  # functions before an adapter looks at the model


@contextmanager
def functions_called() -> Iterator[list[str]]:
    """Functions of ours in the order in which they are first called, up to the one that observes."""
    found: list[str] = []

    def note(frame: FrameType, event: str, arg: Any) -> None:
        code = frame.f_code
        if (
            event == "call"
            and code.co_filename.startswith(ROOT)
            and session.observe.__name__ not in found[-1:]
        ):
            name = code.co_qualname
            if name not in found and not name.endswith(">"):  # a loop written in brackets is not a step
                found.append(name)

    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)


def test_few_functions_are_passed_before_the_adapter_observes() -> None:
    model, inputs = torch.nn.Linear(3, 8), torch.ones(5, 3)
    mg.inspect(model, inputs)  # loads what is imported when it is first used
    with functions_called() as found:
        mg.inspect(model, inputs)
    assert found[-1] == "observe"
    assert len(found) - 1 <= MOST, found


SOURCE = """
import torch
BUILT = []

def build():
    print("building a")
    return torch.nn.Linear(3, 8)

def port():
    print("building b")
    return torch.nn.Linear(3, 8)
"""


@pytest.mark.parametrize("inputs", [None, (3,)])
def test_a_comparison_builds_each_model_once(
    inputs: tuple[int, ...] | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "net.py").write_text(SOURCE)
    x = None if inputs is None else torch.ones(2, *inputs)
    assert mg.compare(f"{tmp_path}/net.py::build", f"{tmp_path}/net.py::port", inputs=x).same
    assert sorted(capsys.readouterr().out.split("\n")) == ["", "building a", "building b"]


def test_the_functions_are_called_as_the_commands() -> None:
    for name in ("inspect", "flow", "memory", "fit", "compare", "stats", "scan", "unique", "info"):
        assert callable(getattr(mg, name))


def test_every_function_takes_a_report() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU())
    report = mg.inspect(model, torch.ones(5, 3), stats=True)
    assert mg.inspect(report) is report
    assert mg.flow(report, symbols=False).nodes
    assert mg.memory(report) == report.memory
    assert mg.unique(report).modules
    assert mg.stats(report) is report
    assert mg.compare(report, report).same
    assert mg.info(report) == mg.info(model, torch.ones(5, 3))


def test_statistics_are_a_function_of_their_own() -> None:
    model = torch.nn.Linear(3, 8)
    found = mg.stats(model, "weight").stats
    assert found is not None
    assert list(found) == ["weight"]
    with pytest.raises(mg.InspectError, match="has no statistics"):
        mg.stats(mg.inspect(model))
