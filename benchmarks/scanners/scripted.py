"""Modules that TorchScript and the exporter take: these must find their source in a file."""

from __future__ import annotations

import torch
from torch import nn


class Branching(nn.Module):
    """Control flow, lists, and a result in several parts."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])

    def forward(self, x: torch.Tensor, times: int = 2) -> tuple[torch.Tensor, list[torch.Tensor]]:
        kept: list[torch.Tensor] = []
        for layer in self.layers:
            x = torch.relu(layer(x)) if times > 1 else layer(x)
            kept.append(x)
        return x, kept


class Stateful(nn.Module):
    """Says itself what of it is saved, as quantized layers do."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = 2.0
        self.table = torch.ones(3)

    @torch.jit.export
    def __getstate__(self) -> tuple[float, torch.Tensor, bool]:
        return self.scale, self.table, self.training

    @torch.jit.export
    def __setstate__(self, state: tuple[float, torch.Tensor, bool]) -> None:
        self.scale, self.table, self.training = state[0], state[1], state[2]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale + self.table


class Several(nn.Module):
    """Reshapes by sizes that are known only when it runs, and gives back a dict."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        y = self.inner(x)
        return {"rows": y.reshape(y.shape[0], -1), "mean": y.mean(dim=(2, 3)), "half": x[: x.shape[0] // 2]}


class Counting(nn.Module):
    """Changes a buffer while it runs, and has a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        return x + self.count + torch.tensor([1.0, 2.0, 3.0])


class Choosing(nn.Module):
    """One of two branches, by a value."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda y: y.sin(), lambda y: y.cos(), (x,))
