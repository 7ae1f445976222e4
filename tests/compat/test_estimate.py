"""What a training step keeps in memory: every figure is that of a real step."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import modelglass as mg
from modelglass.compat.model_inspector.estimate import estimate, largest_at_peak
from modelglass.compat.model_inspector.inspection import Estimate


def net(*, frozen: bool = False) -> nn.Module:
    torch.manual_seed(0)
    made = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.BatchNorm1d(64), nn.Linear(64, 4))
    made[0].requires_grad_(not frozen)
    return made


def estimated(model: nn.Module, inputs: object, **options: object) -> Estimate:
    report = mg.inspect(model, inputs, train=True, optimizer="adamw", **options)  # type: ignore[arg-type]
    found = estimate(report)
    assert found is not None
    return found


@pytest.mark.parametrize("frozen", [False, True], ids=["trainable", "frozen"])
def test_figures_are_those_of_a_real_step(frozen: bool) -> None:
    model, x = net(frozen=frozen), torch.randn(32, 16)
    found = estimated(model, x)
    optimizer = torch.optim.AdamW(p for p in model.parameters() if p.requires_grad)
    saved: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = model(x)
    held = [*model.parameters(), *model.buffers(), x]
    activations = {k: n for k, n in saved.items() if k not in {t.data_ptr() for t in held}}
    output.sum().backward()
    optimizer.step()
    state = [value for each in optimizer.state.values() for value in each.values()]
    assert found.parameters == sum(p.nbytes for p in model.parameters())
    assert found.buffers == sum(b.nbytes for b in model.buffers())
    assert found.gradients == sum(p.grad.nbytes for p in model.parameters() if p.grad is not None)
    assert found.optimizer_state == sum(tensor.nbytes for tensor in state)
    assert found.inputs == (("input", x.nbytes),)
    assert found.activations == sum(activations.values())


def test_sums_are_sums() -> None:
    found = estimated(net(), torch.randn(32, 16))
    assert found.model_nbytes == found.parameters + found.gradients + found.optimizer_state
    assert found.batch_nbytes == 32 * 16 * 4 + (found.activations or 0)
    assert found.nbytes == found.model_nbytes + found.buffers + found.batch_nbytes


def test_another_batch_size_is_run_and_not_multiplied() -> None:
    one = estimated(net(), torch.randn(2, 16), what_if=mg.WhatIf(batch_size=100))
    other = estimated(net(), torch.randn(100, 16))
    assert one.batch_size == 100
    assert (one.inputs, one.activations, one.peak_nbytes) == (
        other.inputs,
        other.activations,
        other.peak_nbytes,
    )


def test_an_input_given_twice_is_held_once() -> None:
    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(1))

        def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
            return (left + right) * self.scale

    x = torch.randn(10)
    found = estimated(Sum(), (x, x))
    assert [name for name, _ in found.inputs] == ["left", "right"]
    assert found.shared == x.nbytes
    assert found.batch_nbytes == x.nbytes + (found.activations or 0)


def test_what_did_not_run_has_no_estimate() -> None:
    assert estimate(mg.inspect(net())) is None


def test_tensors_that_are_alike_are_one_row() -> None:
    model = nn.Sequential(*[nn.Linear(64, 64, bias=False) for _ in range(3)])
    memory = mg.inspect(model, torch.ones(2, 64), train=True, optimizer="adamw").memory
    assert memory is not None
    found = largest_at_peak(memory)
    assert sum(each.count for each in found) == len(memory.largest)
    assert sum(each.nbytes for each in found) == sum(tensor.nbytes for tensor in memory.largest)
    weights = [each for each in found if each.first.category == "parameters"]
    assert [(each.count, each.first.shape) for each in weights] == [(3, (64, 64))]
