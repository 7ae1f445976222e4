"""Work that no operator of torch shows is named."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy
import pytest
import torch
from torch import nn

import modelglass as mg


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.table = numpy.ones((4, 4), numpy.float32)


class InNumpy(Layer):
    def forward(self, x: torch.Tensor) -> Any:
        return torch.from_numpy(x.numpy() @ self.table)


class InArray(Layer):
    def forward(self, x: torch.Tensor) -> Any:
        return torch.from_numpy(numpy.asarray(x) @ self.table)


class InThread(Layer):
    def forward(self, x: torch.Tensor) -> Any:
        found: list[Any] = []
        worker = threading.Thread(target=lambda: found.append(self.linear(x)))
        worker.start()
        worker.join()
        return found[0]


class InPool(Layer):
    def forward(self, x: torch.Tensor) -> Any:
        with ThreadPoolExecutor(1) as pool:
            return next(pool.map(self.linear, [x]))


class Unread(Layer):
    def forward(self, x: torch.Tensor) -> Any:
        return (self.linear(x) for _ in range(2))


class UnreadInside(Layer):
    def forward(self, x: torch.Tensor) -> Any:
        return [self.linear(x)], {"later": map(self.linear, [x])}


def _not_counted(report: mg.Report) -> list[str]:
    return [note.text for note in report.notes if note.code == "not-counted" and note.severity == "warning"]


@pytest.mark.parametrize("run", ["fake", "real"])
@pytest.mark.parametrize("kind", [InNumpy, InArray, InThread, InPool, Unread, UnreadInside])
def test_work_outside_of_what_is_watched_is_named(kind: type[Layer], run: Any) -> None:
    before = threading.Thread.start, torch.Tensor.numpy
    report = mg.inspect(nn.Sequential(kind()), torch.randn(2, 4), run=run)
    word = {InNumpy: "numpy", InArray: "numpy", InThread: "threads", InPool: "threads"}.get(kind, "generator")
    assert [word in text for text in _not_counted(report)] == [True]
    assert (threading.Thread.start, torch.Tensor.numpy) == before


class Looks(Layer):
    def forward(self, x: torch.Tensor) -> Any:
        half = int(x.sum().numpy() * 0) + 2
        lengths = torch.tensor([1, 2]).numpy()
        return self.linear(x)[:half], iter, [int(lengths[0])]


def test_numbers_that_are_looked_at_are_no_work() -> None:
    assert _not_counted(mg.inspect(Looks(), torch.randn(2, 4))) == []
