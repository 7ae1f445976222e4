"""Remembered answers are torch's own, and only where they may be remembered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

import modelglass as mg
from modelglass.frameworks.torch.fake import mode as fake_mode
from modelglass.frameworks.torch.fake.mode import FakeMode
from models import SAMPLES

KERNELS: dict[str, Callable[[torch.Tensor], Any]] = {
    "product": lambda x: x @ x.transpose(-1, -2),
    "channels last": lambda x: x.expand(2, 3, 4, 5).contiguous(memory_format=torch.channels_last) * 2,
    "slice": lambda x: x[..., 1:3],
    "select of slice": lambda x: x[..., 1:][..., 0],
    "permute": lambda x: x.permute(*reversed(range(x.dim()))),
    "expand": lambda x: x.unsqueeze(0).expand(7, *x.shape),
    "view": lambda x: x.reshape(-1).view(5, -1),
    "division of integers": lambda x: x.to(torch.int64) / 3,
    "int and float scalars": lambda x: (x + 1, x.long() + 1, x.long() + 1.0),
    "norm": lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]),
    "maximum": lambda x: x.max(dim=-1),
    "split": lambda x: x.split(2, dim=-1),
    "cat": lambda x: torch.cat([x, x[..., :2]], dim=-1),
    "attention": lambda x: torch.nn.functional.scaled_dot_product_attention(x, x, x),
    "type": lambda x: x.half().float(),
}


def described(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [described(item) for item in value]
    assert isinstance(value, FakeTensor)
    return (tuple(value.shape), value.stride(), value.storage_offset(), value.dtype, value.device)


def shares(value: Any, source: torch.Tensor) -> Any:
    if isinstance(value, (tuple, list)):
        return [shares(item, source) for item in value]
    return value.untyped_storage()._cdata == source.untyped_storage()._cdata


@pytest.mark.parametrize("kernel", KERNELS)
def test_answers_are_the_same_asked_remembered_and_by_a_real_run(kernel: str) -> None:
    fake_mode._answers.clear()
    run = KERNELS[kernel]
    real = torch.randn(2, 3, 4, 5)
    results = []
    for _ in range(2):
        with FakeMode():
            x = torch.empty(2, 3, 4, 5)
            out = run(x)
            results.append((described(out), shares(out, x)))
    assert fake_mode._answers
    assert results[0] == results[1]
    truth = run(real)
    truth = list(truth) if isinstance(truth, (tuple, list)) else truth
    flat = truth if isinstance(truth, list) else [truth]
    shown = results[1][0] if isinstance(truth, list) else [results[1][0]]
    assert [(s[0], s[1], s[3]) for s in shown] == [(tuple(t.shape), t.stride(), t.dtype) for t in flat]


def test_the_default_type_is_part_of_the_question() -> None:
    def divided() -> torch.dtype:
        with FakeMode():
            return (torch.empty(3, dtype=torch.int64) / torch.empty(3, dtype=torch.int64)).dtype

    assert divided() is torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert divided() is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_values_that_follow_from_constants_are_not_confused() -> None:
    with FakeMode():
        assert [(torch.tensor(n) + 1).item() for n in (3, 4)] == [4, 5]


@pytest.mark.parametrize("sample", SAMPLES)
def test_reports_do_not_depend_on_what_is_remembered(sample: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, inputs = SAMPLES[sample]()

    def look() -> mg.Report:
        return mg.inspect(model, inputs=inputs, train=True, on_failure="report")

    remembered = [look() for _ in range(2)][1]
    monkeypatch.setattr(FakeMode, "_question", lambda mode, kernel, args, kwargs: None)
    assert look() == remembered


@pytest.mark.parametrize(
    "run",
    [
        lambda x: x.add_(1),
        lambda x: torch._foreach_mul_([x, x], 2.0),
        lambda x: nn.functional.batch_norm(x, x[0, :, 0].clone(), x[0, :, 0].clone(), training=True),
        lambda x: torch.arange(3) * torch.zeros(4, 3),
    ],
    ids=["in place", "lists", "running statistics", "factories"],
)
def test_kernels_that_write_and_those_that_are_given_no_tensor_are_asked_once(
    run: Callable[[torch.Tensor], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_mode._answers.clear()
    asked = []
    ask = FakeMode._ask

    def seen(mode: FakeMode, kernel: Any, func: Any, *rest: Any) -> Any:
        asked.append(func)
        return ask(mode, kernel, func, *rest)

    with FakeMode():
        x = torch.empty(2, 3, 4)
        first = run(x)
        monkeypatch.setattr(FakeMode, "_ask", seen)
        again = run(x)
    assert asked == []
    assert (again is x) is (first is x)
    assert first is None or described(again) == described(first)


def test_a_result_in_memory_that_is_given_gets_its_size_each_time() -> None:
    with FakeMode():
        x = torch.empty(2, 3)
        for _ in range(2):
            sums, moved = torch.empty(0), torch.empty(0)
            assert torch.add(x, x, out=sums) is sums
            assert sums.shape == moved.resize_(2, 3).shape == (2, 3)
            assert sums.untyped_storage().nbytes() == 24


def test_memory_for_answers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake_mode, "REMEMBERED", 10)
    fake_mode._answers.clear()
    with FakeMode():
        for size in range(1, 50):
            torch.empty(size) + 1
    assert len(fake_mode._answers) <= 10


def figures(report: Any) -> tuple[Any, ...]:
    ops = [(op.overload, op.phase) for op in report.model.ops]
    return report.run.mode, report.memory.peak_nbytes, report.cost.macs, report.notes, ops


def quantized(*layers: nn.Module) -> nn.Module:
    return torch.ao.quantization.quantize_dynamic(nn.Sequential(*layers), {type(each) for each in layers})  # type: ignore[no-any-return]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
@pytest.mark.parametrize(
    ("make", "train"),
    [(lambda: nn.LSTM(6, 4), True), (lambda: quantized(nn.Linear(6, 4)), False)],
    ids=["recurrent in training", "quantized"],
)
def test_the_first_report_of_a_model_is_like_the_second(make: Any, train: bool) -> None:
    """What torch itself remembers of one run does not decide in the next."""
    model, x = make(), torch.ones(3, 2, 6)
    assert figures(mg.inspect(model, x, train=train)) == figures(mg.inspect(model, x, train=train))


def test_gradients_of_biases_are_stolen_as_in_a_real_run() -> None:
    model, x = nn.LSTM(7, 5), torch.ones(3, 2, 7)
    fake, real = mg.inspect(model, x, train=True), mg.inspect(model, x, train=True, run="real")
    assert [op.overload for op in fake.model.ops] == [op.overload for op in real.model.ops]


@pytest.mark.parametrize("train", [False, True])
def test_meta_as_the_default_device_is_the_user_s_own(train: bool) -> None:
    model, inputs = nn.Embedding(4, 4), torch.zeros(2, dtype=torch.int64)
    with torch.device("meta"):
        within = mg.inspect(model, inputs, train=train)
        assert torch.empty(1).is_meta
    assert figures(within) == figures(mg.inspect(model, inputs, train=train))
