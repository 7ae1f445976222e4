"""Where the inputs of a model have their batch and their sequence, as its run shows."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import modelglass as mg
from modelglass import WhatIf


class Tokens(nn.Module):
    """A table and a layer that takes the sequence first, or not."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.embed, self.layer = nn.Embedding(100, 32), layer

    def forward(self, ids: torch.Tensor) -> Any:
        return self.layer(self.embed(ids))


class Turned(nn.Module):
    """Takes the batch first, and its layer does not."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(32, 64)

    def forward(self, x: torch.Tensor) -> Any:
        return self.layer(x.transpose(0, 1))


class TurnedLine(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(16, 8, 3)

    def forward(self, x: torch.Tensor) -> Any:
        return self.conv(x.transpose(1, 2))


class OwnTable(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(50, 8))

    def forward(self, ids: torch.Tensor) -> Any:
        return self.table[ids % 50] * 2


class Functional(OwnTable):
    def forward(self, ids: torch.Tensor) -> Any:
        return functional.embedding(ids, self.table)


class Picked(nn.Module):
    """Rows of features are picked by whole numbers."""

    def forward(self, x: torch.Tensor, keys: torch.Tensor) -> Any:
        return torch.gather(x * 2, 1, keys.unsqueeze(-1).expand(-1, -1, x.shape[-1]))


class Tabular(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.ModuleList(nn.Embedding(10, 8) for _ in range(3))

    def forward(self, x: torch.Tensor, kinds: torch.Tensor) -> Any:
        return torch.cat([x, *(embed(kinds[:, at]) for at, embed in enumerate(self.embed))], 1)


class Graph(nn.Module):
    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> Any:
        return torch.zeros_like(x).index_add_(0, edges[1], (2 * x)[edges[0]])


class Noised(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.embed = nn.Conv2d(3, 8, 3), nn.Embedding(10, 8)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> Any:
        return self.conv(x) + self.embed(time)[:, :, None, None]


def ids(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.int64)


def encoder(*, first: bool) -> nn.Module:
    return nn.TransformerEncoderLayer(32, 4, 64, batch_first=first)


F = torch.zeros
FOUND: dict[str, tuple[nn.Module, Any, int | None, int | None]] = {
    "lstm": (nn.LSTM(32, 64), F(6, 4, 32), 4, 6),
    "gru": (nn.GRU(32, 64), F(6, 4, 32), 4, 6),
    "plain recurrence": (nn.RNN(32, 64), F(6, 4, 32), 4, 6),
    "batch first": (nn.GRU(32, 64, batch_first=True), F(4, 6, 32), 4, 6),
    "a state": (nn.GRU(32, 64), (F(6, 4, 32), F(1, 4, 64)), 4, 6),
    "a state of a batch first": (nn.GRU(32, 64, batch_first=True), (F(4, 6, 32), F(1, 4, 64)), 4, 6),
    "no batch": (nn.LSTM(32, 64), F(6, 32), None, 6),
    "turned inside": (Turned(), F(4, 6, 32), 4, 6),
    "attention": (encoder(first=False), F(6, 4, 32), 4, 6),
    "encoder and decoder": (nn.TransformerDecoderLayer(32, 4, 64), (F(6, 4, 32), F(3, 4, 32)), 4, 6),
    "ids, sequence first": (Tokens(encoder(first=False)), ids(6, 4), 4, 6),
    "ids, batch first": (Tokens(encoder(first=True)), ids(4, 6), 4, 6),
    "a line of channels": (nn.Conv1d(16, 8, 3), F(4, 16, 20), 4, 20),
    "a line turned inside": (TurnedLine(), F(4, 20, 16), 4, 20),
    "a table without a layer": (OwnTable(), ids(4, 6), 4, 6),
    "a table of a function": (Functional(), ids(4, 6), 4, 6),
    "keys of features": (Picked(), (F(4, 9, 8), ids(4, 6)), 4, 9),
    "kinds of a table": (Tabular(), (F(64, 4), ids(64, 3)), 64, None),
    "a graph": (Graph(), (F(10, 16), ids(2, 50)), None, None),
    "a time for all": (Noised(), (F(4, 3, 8, 8), ids(1)), 4, None),
    "a time for each": (Noised(), (F(4, 3, 8, 8), ids(4)), 4, None),
}


@pytest.mark.parametrize(("native", "inputs", "batch", "seq"), FOUND.values(), ids=FOUND)
def test_batch_and_sequence_are_where_the_run_shows_them(
    native: nn.Module, inputs: Any, batch: int | None, seq: int | None
) -> None:
    found = mg.fit(native.eval(), inputs, device_nbytes=2**18, options=False)
    assert (found.batch_size, found.seq_len) == (batch, seq)
    assert (found.batch_problem, found.seq_len_problem) == (None, None)
    codes = {note.code for note in found.notes}
    assert ("batch-unknown" in codes) == (native.__class__ is Graph)
    assert ("sequence-unknown" in codes) == (native.__class__ is Tabular)


@pytest.mark.parametrize(("first", "module"), [(False, nn.GRU(32, 64)), (True, Turned())])
def test_of_two_equal_sizes_the_batch_is_the_one_that_the_layer_follows(
    first: bool, module: nn.Module
) -> None:
    report = mg.inspect(module, F(8, 8, 32), what_if=WhatIf(batch_size=16))
    assert report.run.inputs[0].shape == ((16, 8, 32) if first else (8, 16, 32))
    assert (report.memory.batch_size, report.memory.seq_len) == (16, 8)


def test_a_real_run_of_the_largest_batch_is_one_of_the_batch() -> None:
    native = nn.GRU(32, 64)
    asked = mg.inspect(native, F(6, 4, 32), what_if=WhatIf(batch_size=9, seq_len=5)).memory
    given = mg.inspect(native, F(5, 9, 32)).memory
    assert asked.peak_nbytes == given.peak_nbytes


def test_memory_says_what_ran() -> None:
    memory = mg.inspect(Tokens(encoder(first=True)).eval(), ids(4, 6)).memory
    assert (memory.batch_size, memory.seq_len) == (4, 6)
    memory = mg.inspect(nn.Linear(3, 4), F(7, 3)).memory
    assert (memory.batch_size, memory.seq_len) == (7, None)
