"""A network in torch and its ports to MLX, to be compared: `modelglass compare A B`."""

from __future__ import annotations

import mlx.core as mx
import torch
from mlx import nn as mnn
from torch import nn


class Digits(nn.Module):
    """Two convolutions with a norm each, and a classifier, for images of 28x28 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 32, 3, padding=1)
        self.norm1 = nn.BatchNorm2d(32)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.norm2 = nn.BatchNorm2d(64)
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Sequential(nn.Linear(3136, 128), nn.ReLU(), nn.Linear(128, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(self.norm1(self.conv1(x)).relu())
        x = self.pool(self.norm2(self.conv2(x)).relu())
        found: torch.Tensor = self.head(x.flatten(1))
        return found


class Port(mnn.Module):
    """The same in MLX, with channels last, under other names; or with mistakes."""

    def __init__(self, *, wrong: bool = False) -> None:
        super().__init__()
        self.stem = mnn.Conv2d(3, 32, 3, padding=1)
        self.stem_norm = mnn.BatchNorm(32)
        self.body = mnn.Conv2d(32, 64, 3, padding=1, bias=not wrong)
        self.body_norm = mnn.BatchNorm(64, eps=1e-3 if wrong else 1e-5)
        self.pool = mnn.MaxPool2d(2)
        act = mnn.GELU() if wrong else mnn.ReLU()
        self.head = mnn.Sequential(mnn.Linear(3136, 128), act, mnn.Linear(128, 10))

    def __call__(self, x: mx.array) -> mx.array:
        x = self.pool(mnn.relu(self.stem_norm(self.stem(x))))
        x = self.pool(mnn.relu(self.body_norm(self.body(x))))
        return self.head(x.flatten(1))


def original() -> nn.Module:
    """In torch."""
    return Digits().eval()


def port() -> mnn.Module:
    """In MLX."""
    model = Port()
    model.eval()
    return model


def wrong_port() -> mnn.Module:
    """In MLX, with three mistakes."""
    model = Port(wrong=True)
    model.eval()
    return model
