"""Markdown for pull requests."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

import modelglass as mg
from renderers.test_text import report


def test_page(golden: Callable[[str, str], None]) -> None:
    golden("markdown/network.md", mg.render(report(), "markdown", depth=2))


def test_every_row_has_every_cell() -> None:
    tables = mg.render(report(), "markdown").split("\n\n")
    for table in tables[1:3]:
        assert len({line.count(" | ") for line in table.strip().splitlines()}) == 1


def test_a_failure_is_quoted() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(5, 2))
    told = mg.inspect(model, inputs=torch.zeros(2, 3), on_failure="report")
    assert "> ✗ 1 (Linear) raised RuntimeError" in mg.render(told, "markdown")
