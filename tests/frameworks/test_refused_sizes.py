"""A fake run fails where a kernel refuses sizes that torch's shape functions do not look at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import modelglass as mg
from models import Apply

ROWS, LARGE = torch.tensor([1, 2, 3]), torch.arange(2000)


def put_rows(self: Any, x: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    x[ROWS] = x[:2]
    return x


REFUSED: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "rows that do not fit": put_rows,
    "index_add": lambda self, x: x.index_add(0, ROWS, x[:2]),
    "index_add of other rows": lambda self, x: x.index_add(0, ROWS, x[:3, :2]),
    "index_reduce": lambda self, x: x.index_reduce(0, ROWS, x[:2], "amax"),
    "index_select by a matrix": lambda self, x: x.index_select(0, ROWS[None]),
    "put": lambda self, x: x.put(ROWS, x[0, :2]),
    "slice_scatter": lambda self, x: torch.slice_scatter(x, x[:3], 0, 0, 2),
    "diagonal_scatter": lambda self, x: torch.diagonal_scatter(x, x[0, :2]),
    "softmax of a dimension that is not there": lambda self, x: x.softmax(2),
    "log_softmax of a dimension that is not there": lambda self, x: x.log_softmax(-3),
    "labels of other pictures": lambda self, x: F.nll_loss(
        x[None, ..., None], torch.zeros(1, 4, 2, dtype=int)
    ),
    "bucketize by a matrix": lambda self, x: torch.bucketize(x, x),
    "addmv": lambda self, x: torch.addmv(x[:, :1], x, x[0]),
    "unfold with less than no padding": lambda self, x: F.unfold(x[None, None], 2, padding=-1),
    "a transposed convolution that leaves nothing": lambda self, x: F.conv_transpose3d(
        torch.ones(1, 1, 1, 1, 1), torch.ones(1, 1, 2, 2, 2), padding=1
    ),
    "multinomial of nothing": lambda self, x: torch.multinomial(x.exp(), 0),
    "soft_margin_loss": lambda self, x: F.soft_margin_loss(x, x[None]),
    "many rows": lambda self, x: torch.zeros(2000, 1000).index_add(0, LARGE, torch.zeros(2000, 999)),
}
ACCEPTED: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "one row for all": lambda self, x: x.index_put((ROWS,), x[0]),
    "a mask": lambda self, x: x.index_put((x > 0,), torch.zeros(())),
    "softmax": lambda self, x: x.softmax(-1),
    "scalar": lambda self, x: x[0, 0].softmax(-1),
    "index_add": lambda self, x: x.index_add(0, ROWS, x[1:]),
    "many rows": lambda self, x: torch.zeros(2000, 1000).index_add(0, LARGE, torch.zeros(2000, 1000)),
    "a transposed convolution": lambda self, x: F.conv_transpose1d(x[None], torch.ones(4, 2, 3), padding=1),
    "no rows": lambda self, x: F.conv1d(x[None][:0], torch.ones(4, 4, 1)),
}


class Valueless(Apply):
    """No real run can correct what a fake one finds."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function, unused=nn.Parameter(torch.empty(1, device="meta")))


@pytest.mark.parametrize("name", REFUSED)
def test_sizes_that_torch_refuses_end_the_run(name: str) -> None:
    function, x = REFUSED[name], torch.rand(4, 4)
    with pytest.raises((RuntimeError, IndexError)) as real:
        function(None, x)
    failure = mg.inspect(Valueless(function), x, on_failure="report").run.failure
    assert failure is not None
    assert failure.error == type(real.value).__name__


@pytest.mark.parametrize("name", ACCEPTED)
def test_sizes_that_torch_accepts_do_not(name: str) -> None:
    function, x = ACCEPTED[name], torch.rand(4, 4)
    expected = function(None, x)
    report = mg.inspect(Valueless(function), x)
    assert [value.shape for value in report.run.outputs] == [tuple(expected.shape)]


def test_attention_without_weights_returns_none_for_them() -> None:
    attention = nn.MultiheadAttention(8, 2, batch_first=True).eval()

    def attend(self: Any, x: torch.Tensor) -> torch.Tensor:
        attended, weights = self.attention(x, x, x, need_weights=False)
        return attended if weights is None else torch.cat([x, x])

    x = torch.randn(2, 5, 8)
    report = mg.inspect(Apply(attend, attention=attention).eval(), x)
    assert [value.shape for value in report.run.outputs] == [(2, 5, 8)]


def test_forward_differentiation_has_a_cost() -> None:
    linear, x = nn.Linear(4, 4), torch.randn(3, 4)
    model = Apply(lambda self, x: torch.func.jvp(self.linear, (x,), (x,)), linear=linear)
    cost = mg.inspect(model, x).cost
    assert cost is not None
    assert (cost.macs, cost.coverage) == (3 * 48, 1.0)
