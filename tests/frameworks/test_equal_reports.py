"""Two equal inspections give equal reports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import modelglass as mg

MODELS: dict[str, tuple[Callable[[], nn.Module], dict[str, Any]]] = {
    "scripted, in training": (
        lambda: torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU())),
        {"train": True},
    ),
    "scripted, for real": (
        lambda: torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU())),
        {"run": "real"},
    ),
    "frozen": (lambda: torch.jit.freeze(torch.jit.script(nn.Linear(4, 4).eval())), {}),
    "packed, calibrated": (
        lambda: torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(4, 4)), {nn.Linear}),
        {"calibrate": True},
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_the_next_reports_equal_the_first(name: str) -> None:
    make, options = MODELS[name]
    model, x = make(), torch.randn(2, 4)
    first, *others = [mg.render(mg.inspect(model, x, **options), "json") for _ in range(3)]
    assert others == [first, first]
