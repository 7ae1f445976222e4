"""Tables of distinct modules and operators."""

from __future__ import annotations

import torch
from torch import nn

import modelglass as mg
from modelglass import api

RATES = (0.1, 0.1, 0.2, 0.3, 0.3, 0.3)


def _blocks() -> nn.Module:
    return nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.Dropout(rate)) for rate in RATES))


def test_a_setting_in_which_equal_modules_differ_is_a_range() -> None:
    report = mg.inspect(_blocks(), torch.ones(2, 4))
    for format in ("text", "markdown", "csv"):
        text = api.RENDERERS["unique"][format](report, mg.unique(report), api.UniqueChoice(["modules"]))
        (line,) = (line for line in text.splitlines() if "Dropout" in line)
        assert "0.1…0.3" in line


def test_blocks_with_other_rates_are_one_everywhere() -> None:
    report = mg.inspect(_blocks(), torch.ones(2, 4))
    assert "0–5 ×6" in str(report)
    assert "0…5 × 6" in str(mg.flow(report))
    assert [len(each.paths) for each in report.blocks or ()] == [6]
    assert [each.count for each in mg.unique(report).modules if each.count > 1] == [6, 6, 6]
