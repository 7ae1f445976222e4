"""Writing in place: what torch refuses, a fake run refuses in the same words, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pytest
import torch
from torch import nn

import modelglass as mg
from models import Apply

Act = Callable[[torch.Tensor], Any]
INDEX = torch.tensor([0, 1, 2])


def line(x: torch.Tensor) -> torch.Tensor:
    return x.new_zeros(24)


def wide(x: torch.Tensor) -> torch.Tensor:
    return x.new_zeros(3, 1).expand(3, 4)


# On a 3x4 tensor; whether it is refused is up to torch, which is asked in the test.
ACTS: dict[str, Act] = {
    "expanded add_": lambda x: wide(x).add_(1),
    "expanded mul_": lambda x: wide(x).mul_(x),
    "expanded relu_": lambda x: wide(x).relu_(),
    "expanded fill_": lambda x: wide(x).fill_(1),
    "expanded zero_": lambda x: wide(x).zero_(),
    "expanded copy_": lambda x: wide(x).copy_(x),
    "expanded normal_": lambda x: wide(x).normal_(),
    "expanded uniform_": lambda x: wide(x).uniform_(),
    "expanded bernoulli_": lambda x: wide(x).bernoulli_(0.5),
    "expanded clamp_": lambda x: wide(x).clamp_(0),
    "expanded addcmul_": lambda x: wide(x).addcmul_(x, x),
    "expanded lerp_": lambda x: wide(x).lerp_(x, 0.5),
    "expanded index_add_": lambda x: wide(x).index_add_(0, INDEX, x),
    "expanded index_copy_": lambda x: wide(x).index_copy_(0, INDEX, x),
    "expanded scatter_": lambda x: wide(x).scatter_(0, INDEX[:, None], x),
    "expanded scatter_add_": lambda x: wide(x).scatter_add_(0, INDEX[:, None], x),
    "expanded cumsum_": lambda x: wide(x).cumsum_(0),
    "expanded addmm_": lambda x: x.new_zeros(3, 1).expand(3, 3).addmm_(x, x.t()),
    "expanded in a list": lambda x: torch._foreach_add_([wide(x)], 1),
    "expanded, one of each": lambda x: x.new_zeros(1, 4).expand(1, 4).add_(1),
    "expanded item": lambda x: wide(x)[:, 0].add_(1),
    "expanded then assigned": lambda x: wide(x).__setitem__((slice(None), 0), 1.0),
    "expanded out": lambda x: torch.add(x, 1, out=wide(x)),
    "windows": lambda x: line(x).unfold(0, 3, 1).add_(1),
    "as_strided": lambda x: line(x).as_strided((3, 3), (1, 1)).add_(1),
    "shifted copy_": lambda x: (lambda a: a[1:].copy_(a[:-1]))(line(x)),
    "shifted back copy_": lambda x: (lambda a: a[:-1].copy_(a[1:]))(line(x)),
    "shifted add_": lambda x: (lambda a: a[1:].add_(a[:-1]))(line(x)),
    "shifted sub": lambda x: (lambda a: torch.sub(a[1:], 1, out=a[:-1]))(line(x)),
    "shifted assignment": lambda x: (lambda a: a.__setitem__(slice(1, None), a[:-1]))(line(x)),
    "shifted rows": lambda x: (lambda a: a[1:].copy_(a[:-1]))(x.new_zeros(3, 4)),
    "shifted columns": lambda x: (lambda a: a[:, 1:].copy_(a[:, :-1]))(x.new_zeros(3, 4)),
    "shifted in a list": lambda x: (lambda a: torch._foreach_copy_([a[1:]], [a[:-1]]))(line(x)),
    "disjoint copy_": lambda x: (lambda a: a[12:].copy_(a[:12]))(line(x)),
    "touching copy_": lambda x: (lambda a: a[1:2].copy_(a[:1]))(line(x)),
    "every other copy_": lambda x: (lambda a: a[::2].copy_(a[1::2]))(line(x)),
    "itself copy_": lambda x: (lambda a: a.copy_(a))(line(x)),
    "itself add_": lambda x: (lambda a: a.add_(a))(line(x)),
    "itself detached": lambda x: (lambda a: a.mul_(a.detach()))(line(x)),
    "itself viewed": lambda x: (lambda a: a.mul_(a.view(24)))(line(x)),
    "itself transposed": lambda x: (lambda a: a.add_(a.t()))(x.new_zeros(3, 3)),
    "itself transposed copy_": lambda x: (lambda a: a.copy_(a.t()))(x.new_zeros(3, 3)),
    "itself indexed": lambda x: (lambda a: a.index_add_(0, INDEX, a))(x.new_zeros(3, 4)),
    "itself copied by index": lambda x: (lambda a: a.index_copy_(0, INDEX, a))(x.new_zeros(3, 4)),
    "itself scattered": lambda x: (lambda a: a.scatter_(0, INDEX[:, None], a))(x.new_zeros(3, 4)),
    "itself put": lambda x: (lambda a: a.index_put_((INDEX,), a))(x.new_zeros(3, 4)),
    "itself masked": lambda x: (lambda a: a.masked_scatter_(a > 0, a))(x.new_zeros(3, 4)),
    "itself cat": lambda x: (lambda a: torch.cat([a[:12], a[12:]], out=a))(line(x)),
    "part of cat": lambda x: (lambda a: torch.cat([a[:6], a[6:12]], out=a[:12]))(line(x)),
    "itself matmul": lambda x: (lambda a: torch.mm(a, a, out=a))(x.new_zeros(3, 3)),
    "itself sorted": lambda x: (lambda a: torch.sort(a, out=(a, INDEX.new_zeros(24))))(line(x)),
    "itself gathered": lambda x: (lambda a: torch.gather(a, 0, INDEX, out=a[:3]))(line(x)),
    "itself cumsum": lambda x: (lambda a: torch.cumsum(a, 0, out=a))(line(x)),
    "itself where": lambda x: (lambda a: torch.where(a > 0, a, a + 1, out=a))(line(x)),
    "itself out": lambda x: (lambda a: torch.add(a, 1, out=a))(line(x)),
    "itself baddbmm": lambda x: (lambda a: a.baddbmm_(a, a))(x.new_zeros(2, 3, 3)),
    "itself lerp": lambda x: (lambda a: a.lerp_(a[:24], a))(line(x)),
    "empty": lambda x: (lambda a: a[:0].copy_(a[:0]))(line(x)),
}


@pytest.mark.filterwarnings("ignore::UserWarning")  # some kernels warn where others refuse
@pytest.mark.parametrize("act", ACTS.values(), ids=list(ACTS))
def test_a_fake_run_refuses_what_torch_refuses(act: Act) -> None:
    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        act(x)
        return x

    x = torch.ones(3, 4)
    refusal = None
    try:
        run(None, x)
    except RuntimeError as error:
        refusal = str(error)
    fake = mg.inspect(Apply(run), x, on_failure="report").run
    assert fake is not None
    if refusal is None:
        assert fake.failure is None
        assert fake.mode == "fake"
    else:
        assert fake.failure is not None
        assert fake.failure.message == refusal


def twice(self: Any, x: torch.Tensor) -> torch.Tensor:
    return self.layer(self.layer(x))  # type: ignore[no-any-return]


def act_after(make: Act, act: Act) -> Callable[[Any, torch.Tensor], torch.Tensor]:
    """Make something of the layer's output, then do something to it or to that; give it back."""

    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        hidden = self.layer(x)
        made = make(hidden)
        act(made)
        return made  # type: ignore[no-any-return]

    return run


def act_before(make: Act, act: Act) -> Callable[[Any, torch.Tensor], torch.Tensor]:
    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        hidden = self.layer(x)
        made = make(hidden)
        act(hidden)
        return made  # type: ignore[no-any-return]

    return run


def act_on_weight(act: Act) -> Callable[[Any, torch.Tensor], torch.Tensor]:
    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        made = twice(self, x)
        with torch.no_grad():
            act(self.layer.weight)
        return made

    return run


TRAINED: dict[str, Callable[[Any, torch.Tensor], torch.Tensor]] = {
    "sigmoid, add_": act_after(torch.sigmoid, lambda y: y.add_(1)),
    "tanh, dropout": act_after(torch.tanh, lambda y: nn.functional.dropout(y, 0.5, True, inplace=True)),
    "exp, mul_": act_after(torch.exp, lambda y: y.mul_(2)),
    "softmax, a part": act_after(lambda h: h.softmax(-1), lambda y: y[0].zero_()),
    "tanh, an element": act_after(torch.tanh, lambda y: y.__setitem__((0, 0), 1.0)),
    "tanh, detached": act_after(torch.tanh, lambda y: y.detach().add_(1)),
    "tanh, a list": act_after(torch.tanh, lambda y: torch._foreach_add_([y], 1)),
    "tanh, data": act_after(torch.tanh, lambda y: y.data.add_(1)),
    "add, add_": act_after(lambda h: h + 1, lambda y: y.add_(1)),
    "relu_ of the layer's output": act_after(lambda h: h, lambda y: y.relu_()),
    "square, before": act_before(lambda h: h**2, lambda h: h.zero_()),
    "square, a list before": act_before(lambda h: h**2, lambda h: torch._foreach_zero_([h])),
    "product, before": act_before(lambda h: h * h, lambda h: h.add_(1)),
    "sum, before": act_before(lambda h: h + h, lambda h: h.add_(1)),
    "weight": act_on_weight(lambda w: w.add_(1)),
    "weight's data": act_on_weight(lambda w: w.data.add_(1)),
    "relu_ twice": lambda self, x: self.layer(x).relu_().relu_(),
    "relu_ and dropout": lambda self, x: nn.functional.dropout(self.layer(x).relu_(), inplace=True),
}


@pytest.mark.parametrize("mode", ["fake", "real"])
@pytest.mark.parametrize("run", TRAINED.values(), ids=list(TRAINED))
def test_a_training_step_refuses_what_torch_refuses(run: Any, mode: Literal["fake", "real"]) -> None:
    model = Apply(run, layer=nn.Linear(4, 4))
    x = torch.ones(2, 4)
    refusal = ""
    try:
        model(x).sum().backward()
    except RuntimeError as error:
        refusal = str(error)
    model.zero_grad()
    report = mg.inspect(model, x, train=True, run=mode, on_failure="report")
    assert report.run is not None
    if refusal:
        assert "modified by an inplace operation" in refusal
        assert report.run.failure is not None
        assert "modified by an inplace operation" in report.run.failure.message
    else:
        assert report.run.failure is None
        assert report.run.mode == mode
