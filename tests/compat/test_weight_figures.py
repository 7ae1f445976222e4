"""The values of all weights in a few figures, against torch's own."""

from __future__ import annotations

import torch
from torch import nn

import modelglass as mg
from modelglass.compat.model_inspector.weight_figures import weight_figures


def test_figures_are_those_of_all_parameters_together() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7))
    with torch.no_grad():
        model[0].weight[0] = 0
        model[0].bias[3] = -9.5
    found = weight_figures(mg.inspect(model, stats=True))
    values = torch.cat([each.detach().flatten() for each in model.parameters()])
    assert found is not None
    assert (found.count, found.zeros) == (len(values), int((values == 0).sum()))
    assert (found.low, found.high) == (values.min().item(), values.max().item())
    assert (found.largest, found.largest_in) == (9.5, "0.bias")
    assert (found.nan, found.inf) == ({}, {})


def test_what_is_no_number_is_told_of_buffers_too() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    with torch.no_grad():
        model[0].weight.fill_(float("nan"))
        model[0].bias.fill_(float("-inf"))
        model[1].running_mean[1] = float("nan")
    found = weight_figures(mg.inspect(model, stats=True))
    assert found is not None
    assert found.nan == {"0.weight": 4, "1.running_mean": 1}
    assert found.inf == {"0.bias": 2}


def test_without_values_there_are_no_figures() -> None:
    assert weight_figures(mg.inspect(nn.Linear(2, 2))) is None
    found = weight_figures(mg.inspect(nn.ReLU(), stats=True))
    assert found is not None
    assert (found.count, found.low, found.largest_in) == (0, None, None)
