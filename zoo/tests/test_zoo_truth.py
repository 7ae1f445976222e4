"""The zoo's independent count is right by hand, also where torch's own counter has no formula."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from zoo import truth
from zoo.values import NumbersKept, ValuesKept

from models import Apply

r = torch.randn


@pytest.mark.parametrize(
    ("name", "call", "macs"),
    [
        ("mv", lambda: r(8, 16) @ r(16), 128),
        ("dot", lambda: torch.dot(r(16), r(16)), 16),
        ("addmv", lambda: torch.addmv(r(8), r(8, 16), r(16)), 128),
        ("_euclidean_dist", lambda: torch.cdist(r(2, 40, 16), r(2, 30, 16)), 2 * 40 * 30 * 16),
        ("_cdist_forward", lambda: torch.cdist(r(2, 4, 16), r(2, 3, 16)), 2 * 4 * 3 * 16),
        ("_grouped_mm", lambda: torch._grouped_mm(*grouped()), 6 * 16 * 32),
    ],
)
def test_what_the_counter_misses_is_added_and_named(name: str, call: Callable[[], Any], macs: int) -> None:
    with FlopCounterMode(display=False) as alone:
        call()
    assert alone.get_total_flops() == 0
    found = truth._counted(Apply(lambda self: call()), (), {}, "here")
    assert found.macs == macs
    assert found.added == {f"aten.{name}": macs}


def test_operators_that_count_as_nothing_are_named() -> None:
    """A product that neither torch's counter nor a formula of ours knows shows up there."""
    found = truth._counted(
        Apply(lambda self: torch.addbmm(r(2, 3), r(4, 2, 5), r(4, 5, 3)).relu()), (), {}, "here"
    )
    assert found.macs == 0
    assert {"aten.addbmm", "aten.relu"} <= set(found.free)
    assert "aten.mm" not in truth._counted(Apply(lambda self: r(2, 3) @ r(3, 4)), (), {}, "here").free


def grouped() -> tuple[Any, ...]:
    return r(6, 16).bfloat16(), r(2, 16, 32).bfloat16(), torch.tensor([2, 6], dtype=torch.int32)


class Asking(nn.Module):
    """Takes as many rows as its input says, which only a value tells."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(16, 32, device="meta")

    def forward(self, x: torch.Tensor, lengths: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        rows = int(lengths.max())
        places = torch.arange(rows, device=self.fc.weight.device)
        found = self.fc(x[:rows])[mask[places]]
        return found @ self.fc.weight


def test_values_that_depend_on_no_weight_decide_what_runs_without_weights() -> None:
    mask = torch.tensor([True, False, True, True, False])
    given = r(5, 16), torch.tensor([2, 4]), mask
    with pytest.raises((RuntimeError, NotImplementedError)):
        truth._counted(Asking(), tuple(each.to("meta") for each in given), {}, "on meta")
    with ValuesKept():
        found = truth._counted(Asking(), given, {}, "with values")
    assert found.macs == 4 * 16 * 32 + 3 * 32 * 16


def test_numbers_keep_their_values_wherever_they_are_put() -> None:
    with ValuesKept(), NumbersKept():
        sizes = torch.tensor([[3, 4]], device="meta")
        assert torch.arange(0, sizes[0, 1], device="meta").shape == (4,)


def test_what_a_weight_has_met_has_no_value() -> None:
    fc = nn.Linear(4, 4, device="meta")
    with ValuesKept():
        assert (torch.ones(2, 4) + 1).sum().item() == 16
        with pytest.raises(RuntimeError, match="meta"):
            fc(torch.ones(2, 4)).sum().item()


@pytest.mark.parametrize(
    "write",
    [
        lambda kept, unknown: kept.add_(unknown[0]),
        lambda kept, unknown: kept[:1].copy_(unknown[0, :1]),
        lambda kept, unknown: kept.__setitem__(0, unknown[0, 0]),
        lambda kept, unknown: torch.add(unknown[0], 1, out=kept),
    ],
    ids=["in place", "through a view", "an item", "out"],
)
def test_memory_that_a_weight_was_written_to_has_no_value_any_more(write: Callable[..., Any]) -> None:
    fc = nn.Linear(4, 4, device="meta")
    with torch.no_grad(), ValuesKept():
        kept, other = torch.zeros(4), torch.zeros(4)
        before = kept[1:]
        write(kept, fc(torch.ones(2, 4)))
        for each in (kept, before, kept + 1):
            with pytest.raises(RuntimeError, match="meta"):
                each.sum().item()
        assert other.sum().item() == 0
