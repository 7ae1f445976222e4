"""Totals are the sums of their rows, on every model of the suite."""

from __future__ import annotations

from collections import Counter

import pytest
from torch.nn.parameter import is_lazy

import modelglass as mg
from models import SAMPLES


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("sample", SAMPLES)
def test_rows_add_up(sample: str, train: bool) -> None:
    model, inputs = SAMPLES[sample]()
    report = mg.inspect(model, inputs=inputs, train=train)
    by_module = Counter()
    for op in report.model.ops:
        by_module[op.module] += op.macs or 0
    costs = report.cost.by_module
    assert sum(by_module.values()) == report.cost.macs
    assert {path: cost.own_macs for path, cost in costs.items() if cost.own_macs} == {
        path: macs for path, macs in by_module.items() if macs
    }
    assert costs[""].total_macs == report.cost.macs
    counts = report.counts.by_module
    assert sum(entry.own.params for entry in counts.values()) == report.counts.params
    assert counts[""].total.params == report.counts.params
    assert sum(report.counts.params_by_dtype.values()) == report.counts.params
    assert report.counts.param_nbytes + report.counts.buffer_nbytes == report.counts.nbytes
    for module in report.model.modules:
        below = sum(costs[child].total_macs for child in module.children)
        assert costs[module.path].total_macs == costs[module.path].own_macs + below


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
    report = mg.inspect(model, inputs=inputs, train=True)
    assert [call.index for call in report.model.calls] == list(range(len(report.model.calls)))
    assert [op.index for op in report.model.ops] == list(range(len(report.model.ops)))
    for op in report.model.ops:
        if op.call is not None:
            assert report.model.calls[op.call].module == op.module
        if op.phase == "forward":
            assert op.call is not None
