"""The classic summary, with rows that add up."""

from __future__ import annotations

import re
from collections.abc import Callable

import torch
from torch import nn

import modelglass as mg
from models import llama


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 5))


def test_a_single_layer_shows_its_weights() -> None:
    text = mg.summary(nn.Linear(10, 5))
    assert isinstance(text, str)
    for words in ("Total params: 55", "Trainable params: 55", "Non-trainable params: 0", "weight", "bias"):
        assert words in text
    assert "Params size (MB): 0.00" in text
    assert text.report.counts.params == 55


def test_layers_and_shapes(golden: Callable[[str, str], None]) -> None:
    golden("summary/small.txt", mg.summary(small(), input_shape=(10,), batch_size=8) + "\n")


def test_every_weight_and_bias(golden: Callable[[str, str], None]) -> None:
    model = small()
    model[0].requires_grad_(False)
    golden("summary/weights.txt", mg.summary(model, (10,), verbose=2) + "\n")


def test_quiet_gives_the_totals_only() -> None:
    text = mg.summary(small(), verbose=0)
    assert "Linear" not in text
    assert "Total params: 325" in text


def test_a_sample_input_serves_as_well_as_a_shape() -> None:
    assert mg.summary(small(), torch.zeros(8, 10)) == mg.summary(small(), (10,), batch_size=8)


def test_the_documented_lines_are_there() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64 * 169, 10)
    )
    text = mg.summary(model, input_shape=(3, 28, 28))
    assert "Input shape: (1, 3, 28, 28)" in text
    outputs = 4 * (2 * 64 * 26 * 26 + 2 * 64 * 13 * 13 + 10)
    assert f"Forward/backward pass size (MB): {outputs / 2**20:.2f}" in text
    params = 4 * (1792 + 64 * 169 * 10 + 10)
    assert f"Params size (MB): {params / 2**20:.2f}" in text
    total = outputs + params + 4 * 3 * 28 * 28
    assert f"Estimated Total Size (MB): {total / 2**20:.2f}" in text


def test_rows_add_up_to_the_total_even_when_tied() -> None:
    text = mg.summary(llama())
    rows = re.findall(r"^\S+ \(\w+\)\s+([\d,]+)\s+[\d,]+$", text, re.MULTILINE)
    assert sum(int(row.replace(",", "")) for row in rows) == 138_048


def test_a_failing_model_still_has_a_summary() -> None:
    text = mg.summary(nn.Sequential(nn.Linear(3, 4), nn.Linear(5, 2)), (3,))
    assert "Total params: 28" in text
    assert "1 (Linear) raised RuntimeError" in text


def test_no_parameters_and_no_layers() -> None:
    assert "Total params: 0" in mg.summary(nn.ReLU(), (3,))
    assert "Total params: 0" in mg.summary(nn.Sequential())
