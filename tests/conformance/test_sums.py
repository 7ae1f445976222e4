"""Totals are the sums of their rows, on every model of the suite."""

from __future__ import annotations

import pytest
from torch.nn.parameter import is_lazy

import modelglass as mg
from models import SAMPLES
from sums import disagreements


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("sample", SAMPLES)
def test_rows_add_up(sample: str, train: bool) -> None:
    model, inputs = SAMPLES[sample]()
    report = mg.inspect(model, inputs=inputs, train=train, on_failure="report")
    assert disagreements(report) == []
    assert report.cost.by_module[""].total_macs == report.cost.macs


@pytest.mark.parametrize("sample", [name for name in SAMPLES if name != "quantized"])
def test_parameters_are_the_frameworks_own_count(sample: str) -> None:
    model, _ = SAMPLES[sample]()
    own = [p for p in model.parameters() if not is_lazy(p)]
    counts = mg.inspect(model).counts
    assert counts.params == sum(p.numel() for p in own)
    assert counts.trainable == sum(p.numel() for p in own if p.requires_grad)
    assert counts.param_nbytes == sum(p.numel() * p.element_size() for p in own)
    buffers = [b for b in model.buffers() if not is_lazy(b)]
    assert counts.buffers == sum(b.numel() for b in buffers)


@pytest.mark.parametrize("sample", SAMPLES)
def test_every_operator_belongs_to_a_call_of_its_module(sample: str) -> None:
    model, inputs = SAMPLES[sample]()
    report = mg.inspect(model, inputs=inputs, train=True, on_failure="report")
    assert [call.index for call in report.model.calls] == list(range(len(report.model.calls)))
    assert [op.index for op in report.model.ops] == list(range(len(report.model.ops)))
    for op in report.model.ops:
        if op.call is not None:
            assert report.model.calls[op.call].module == op.module
        if op.phase == "forward":
            assert op.call is not None
