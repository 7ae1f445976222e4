"""Figures that documents about such tools get wrong, as they really are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import modelglass as mg
from models import convolutional

L, S = nn.Linear, nn.Sequential


class ThreeParts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear1, self.linear2, self.embed = L(10, 20), L(20, 5), nn.Embedding(100, 10)


ROWS: dict[str, tuple[Callable[[], nn.Module], int, list[int] | None]] = {
    "mlp": (lambda: S(L(10, 20), nn.ReLU(), L(20, 5), nn.Softmax(dim=-1)), 325, [220, 0, 105, 0]),
    "convolution": (lambda: nn.Conv2d(3, 16, 3, padding=1), 448, None),
    "convolution without bias": (lambda: nn.Conv2d(3, 16, 3, padding=1, bias=False), 432, None),
    "convolutional": (convolutional, 5_450, [448, 32, 0, 4_640, 0, 0, 330]),
    "dropouts": (
        lambda: S(L(50, 100), nn.Dropout(0.3, inplace=True), nn.ReLU(), nn.Dropout(0.5), L(100, 10)),
        6_110,
        [5_100, 0, 0, 0, 1_010],
    ),
    "tiny": (lambda: S(L(5, 10), nn.ReLU(), nn.Dropout(0.2), L(10, 1)), 71, [60, 0, 0, 11]),
    "wide": (lambda: S(L(256, 512), nn.ReLU(), L(512, 256)), 262_912, None),
    "normed": (lambda: S(L(256, 512), nn.LayerNorm(512), nn.GELU(), L(512, 256)), 263_936, None),
    "three parts": (ThreeParts, 1_325, [220, 105, 1_000]),
    "stack": (lambda: S(L(128, 256), L(256, 64), L(64, 10)), 50_122, None),
    "embedding": (lambda: S(nn.Embedding(1000, 128), L(128, 10)), 129_290, None),
}


@pytest.mark.parametrize("case", ROWS)
def test_parameters(case: str) -> None:
    build, total, rows = ROWS[case]
    counts = mg.inspect(build()).counts
    assert counts.params == total
    if rows is not None:
        assert [entry.total.params for path, entry in counts.by_module.items() if path] == rows


def test_shapes_of_an_mlp() -> None:
    report = mg.inspect(ROWS["mlp"][0](), inputs=torch.zeros(8, 10))
    assert [tensor.shape for tensor in report.model.tensors[:2]] == [(20, 10), (20,)]
    assert report.run.outputs[0].shape == (8, 5)
    assert report.counts.by_module["1"].total.trainable == 0


def test_batch_norm_has_32_parameters_and_33_buffer_elements() -> None:
    counts = mg.inspect(nn.BatchNorm2d(16)).counts
    assert (counts.params, counts.buffers) == (32, 33)


def test_containers_are_not_added_to_their_contents() -> None:
    model = S(S(L(10, 15), nn.ReLU(), L(15, 20)), S(L(20, 25), nn.ReLU()), L(25, 5))
    counts = mg.inspect(model).counts
    assert counts.params == 1_140
    assert [counts.by_module[path].total.params for path in ("0", "1")] == [485, 525]
    assert "2,150" not in mg.render(mg.inspect(model))


def test_settings_keep_layers_apart() -> None:
    modules = mg.inspect(ROWS["dropouts"][0]()).model.modules
    assert [m.config for m in modules if m.type == "Dropout"] == [
        {"p": 0.3, "inplace": True},
        {"p": 0.5, "inplace": False},
    ]


def test_frozen_parts_are_apart() -> None:
    model = ThreeParts()
    model.linear1.requires_grad_(False)
    counts = mg.inspect(model).counts
    assert (counts.trainable, counts.frozen, counts.nbytes) == (1_105, 220, 5_300)


def test_the_operators_of_a_small_network() -> None:
    model = S(
        *(
            layer
            for inputs in (3, 64)
            for layer in (nn.Conv2d(inputs, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU())
        )
    ).eval()
    report = mg.inspect(model, inputs=torch.zeros(1, 3, 224, 224))
    assert len(report.model.modules) == 7
    assert [op.name for op in report.model.ops] == ["torch.conv2d", "torch.batch_norm", "torch.relu"] * 2
    assert report.cost.flops == 3_872_784_384


class Gated(nn.Module):
    """Attention and a feed-forward part, each let through by a learned number."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(hidden, 8, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(hidden, 4 * hidden), nn.GELU(), nn.Linear(4 * hidden, hidden))
        self.condition = nn.Linear(73, hidden)
        self.gates = nn.Parameter(torch.zeros(2))

    def forward(self, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        x = x + self.condition(condition)[:, None]
        x = x + self.gates[0] * self.attention(x, x, x, need_weights=False)[0]
        return x + self.gates[1] * self.mlp(x)


class DiffusionTransformer(nn.Module):
    """Learned positions at the root, gated blocks, and a little of everything: 98,648 parameters."""

    def __init__(self, hidden: int = 16, depth: int = 3, length: int = 5160) -> None:
        super().__init__()
        self.positions = nn.Parameter(torch.zeros(1, length, hidden))
        self.enter, self.leave = nn.Linear(5, hidden), nn.Linear(hidden, 2)
        self.time = nn.Sequential(nn.Linear(128, hidden), nn.SiLU(), nn.Linear(hidden, hidden))
        self.label = nn.Sequential(nn.Linear(6, hidden), nn.SiLU(), nn.Linear(hidden, hidden))
        self.blocks = nn.ModuleList(Gated(hidden) for _ in range(depth))
        self.norm = nn.LayerNorm(hidden)

    def forward(self, x: torch.Tensor, geometry: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        time = self.time(torch.zeros(1, 128)).expand(len(x), -1)
        condition = torch.cat([time, self.label(labels), torch.zeros(len(x), 41)], 1)
        hidden = self.enter(torch.cat([x, geometry], 1).transpose(1, 2)) + self.positions
        for block in self.blocks:
            hidden = block(hidden, condition)
        return self.leave(self.norm(hidden)).transpose(1, 2)


def test_parameters_of_modules_with_children_are_not_lost() -> None:
    counts = mg.inspect(DiffusionTransformer()).counts
    assert counts.by_module[""].own.params == 82_560
    attention = counts.by_module["blocks.0.attention"]
    assert (attention.own.params, attention.total.params) == (816, 816 + 272)
    assert counts.params == 98_648


@pytest.mark.slow
def test_memory_of_a_training_step_is_that_of_its_tensors() -> None:
    """Parameters, gradients and two moments; inputs by their shapes; activations as observed."""
    batch, length = 512, 5160
    inputs = tuple(torch.empty(batch, *rest, device="meta") for rest in ((2, length), (3, length), (6,)))
    memory = mg.inspect(DiffusionTransformer().train(), inputs, train=True, optimizer="adamw").memory
    weights = 4 * 98_648
    assert round(weights / 2**20, 3) == 0.376
    assert memory.base_nbytes == weights + 21_135_360 + 31_703_040 + 12_288  # 20.156, 30.234, 0.0117 MiB
    last = memory.timeline[-1].held
    tensors = len(list(DiffusionTransformer().parameters()))
    assert last[0] + last[3] + last[4] == 4 * weights + 4 * tensors  # 1.505 MiB, and a step count each
    assert round(4 * weights / 2**20, 3) == 1.505
    # Each of three blocks keeps its hidden states many times over; no formula, and never 96 MiB.
    assert memory.saved_nbytes > 3 * 8 * 4 * batch * length * 16
