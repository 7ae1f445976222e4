"""What makes many small objects at once works without Python's garbage collector, and gives it back."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import modelglass as mg

CALLS: dict[str, tuple[str, Callable[[mg.Report], Any]]] = {
    "render": ("modelglass.renderers.pages.text.render", lambda report: mg.render(report, "text")),
    "flow": ("modelglass.analyses.flow.flow", mg.flow),
    "unique": ("modelglass.analyses.unique.unique", mg.unique),
    "compare": (
        "modelglass.analyses.compare.compare",
        lambda report: mg.compare_structure(report, report),
    ),
}


@pytest.mark.parametrize(("work", "call"), CALLS.values(), ids=list(CALLS))
def test_the_collector_is_off_meanwhile_and_on_again_although_it_fails(
    work: str, call: Callable[[mg.Report], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def stopped(*_: Any, **__: Any) -> Any:
        seen.append(gc.isenabled())
        raise RuntimeError("seen")

    report = mg.inspect(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.ones(2, 4))
    monkeypatch.setattr(work, stopped)
    with pytest.raises(RuntimeError, match="seen"):
        call(report)
    assert seen == [False]
    assert gc.isenabled()
