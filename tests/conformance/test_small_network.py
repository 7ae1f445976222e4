"""What every adapter passes: the same small network gives the same facts from each framework.

To add a framework, add a row to `SOURCES`: how it builds the network and its input.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import modelglass as mg
from modelglass.frameworks import FRAMEWORKS
from modelglass.report import Report


def torch_network() -> tuple[Any, Any]:
    import torch
    from torch import nn

    model = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 5))
    for parameter in model[0].parameters():
        parameter.requires_grad_(False)
    return model, torch.zeros(8, 10)


def mlx_network() -> tuple[Any, Any]:
    import mlx.core as mx
    from mlx import nn

    model = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 5))
    model.layers[0].freeze()
    return model, mx.zeros((8, 10))


SOURCES: dict[str, Callable[[], tuple[Any, Any]]] = {"torch": torch_network, "mlx": mlx_network}


@pytest.fixture(params=SOURCES)
def report(request: pytest.FixtureRequest) -> Report:
    model, inputs = SOURCES[request.param]()
    return mg.inspect(model, inputs=inputs)


def test_every_framework_is_here() -> None:
    # vLLM serves models of its own and runs none that a user writes; its suite is a folder of its own.
    assert set(SOURCES) == set(FRAMEWORKS) - {"vllm"}


def test_counts(report: Report) -> None:
    counts = report.counts
    assert (counts.params, counts.trainable, counts.frozen, counts.buffers) == (325, 105, 220, 0)
    assert counts.nbytes == 1300


def test_cost(report: Report) -> None:
    assert report.cost.macs == 8 * (200 + 100)
    assert report.cost.coverage == 1.0


def test_modules_and_calls(report: Report) -> None:
    leaves = [module for module in report.model.modules if not module.children]
    assert [module.type for module in leaves] == ["Linear", "ReLU", "Linear"]
    calls = {call.module: call for call in report.model.calls}
    shapes = [(calls[m.path].inputs[0].shape, calls[m.path].outputs[0].shape) for m in leaves]
    assert shapes == [((8, 10), (8, 20)), ((8, 20), (8, 20)), ((8, 20), (8, 5))]


def test_tensors(report: Report) -> None:
    assert [(t.shape, t.dtype, t.trainable) for t in report.model.tensors] == [
        ((20, 10), "float32", False),
        ((20,), "float32", False),
        ((5, 20), "float32", True),
        ((5,), "float32", True),
    ]


def test_round_trip(report: Report, tmp_path: Any) -> None:
    mg.save(report, tmp_path / "r.json")
    assert mg.load(tmp_path / "r.json") == report
