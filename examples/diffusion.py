"""A diffusion transformer over the signals of 5,160 sensors, as `examples/diffusion.yaml` configures it.

modelglass flow examples/diffusion.yaml --trust --inputs examples/diffusion.py::batch
model-inspector --config examples/diffusion.yaml --trust
"""

import math

import torch
from torch import nn
from torch.nn import functional as F


class TimeEmbedding(nn.Module):
    """Sines and cosines of a time step, then two layers."""

    def __init__(self, width, hidden):
        super().__init__()
        self.width = width
        self.layers = nn.Sequential(nn.Linear(width, hidden), nn.SiLU(), nn.Linear(hidden, hidden))

    def forward(self, t):
        half = self.width // 2
        rates = torch.exp(torch.arange(half, device=t.device) * (-math.log(10_000) / half))
        angles = t[:, None] * rates
        return self.layers(torch.cat([angles.sin(), angles.cos()], dim=-1))


class Block(nn.Module):
    """Attention and a feed-forward network, both modulated by the condition, each behind a gate."""

    def __init__(self, hidden, heads, ratio, dropout):
        super().__init__()
        self.norm1 = nn.LayerNorm(hidden, elementwise_affine=False)
        self.attention = nn.MultiheadAttention(hidden, heads, dropout=dropout, batch_first=True)
        self.norm2 = nn.LayerNorm(hidden, elementwise_affine=False)
        width = int(hidden * ratio)
        self.mlp = nn.Sequential(nn.Linear(hidden, width), nn.GELU(), nn.Linear(width, hidden))
        self.modulation = nn.Linear(hidden, 4 * hidden)
        self.attention_gate = nn.Parameter(torch.ones(1))
        self.mlp_gate = nn.Parameter(torch.ones(1))

    def forward(self, x, condition):
        scale1, shift1, scale2, shift2 = self.modulation(condition)[:, None].chunk(4, dim=-1)
        y = self.norm1(x) * (1 + scale1) + shift1
        x = x + self.attention_gate * self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp_gate * self.mlp(self.norm2(x) * (1 + scale2) + shift2)


class SensorDiT(nn.Module):
    """Predicts the noise in the charge and time of each sensor, given the event's label."""

    def __init__(self, seq_len, hidden, depth, heads, dropout, label_dim, t_embed_dim, mlp_ratio):
        super().__init__()
        self.signal = nn.Linear(2, hidden)
        self.geometry = nn.Linear(3, hidden)
        self.positions = nn.Parameter(torch.zeros(1, seq_len, hidden))
        self.time = TimeEmbedding(t_embed_dim, hidden)
        self.label = nn.Sequential(nn.Linear(label_dim, hidden), nn.SiLU(), nn.Linear(hidden, hidden))
        self.blocks = nn.ModuleList(Block(hidden, heads, mlp_ratio, dropout) for _ in range(depth))
        self.norm = nn.LayerNorm(hidden)
        self.head = nn.Sequential(nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, 2))
        self.register_buffer("affine_offset", torch.tensor([0.0, 0.0, -600.0, -550.0, -550.0]))
        self.register_buffer("affine_scale", torch.tensor([200.0, 10.0, 1200.0, 1100.0, 1100.0]))
        self.register_buffer("label_offset", torch.tensor([0.0, 0.0, 0.0, -600.0, -550.0, -550.0]))
        self.register_buffer("label_scale", torch.tensor([1e8, 3.14159, 6.28318, 1200.0, 1100.0, 1100.0]))

    def forward(self, x_sig, t, label, geom):
        geometry = self.geometry(geom.transpose(1, 2))
        x = self.signal(x_sig.transpose(1, 2)) + geometry
        x = x + self.positions[:, : x.shape[1]]
        condition = self.time(t) + F.silu(self.label(label))
        for block in self.blocks:
            x = block(x, condition)
        return self.head(self.norm(x + geometry)).transpose(1, 2)


def batch():
    """One event: what the model is called with."""
    sensors = 5160
    return {
        "x_sig": torch.zeros(1, 2, sensors),
        "t": torch.zeros(1),
        "label": torch.zeros(1, 6),
        "geom": torch.zeros(1, 3, sensors),
    }


def build(config):
    """The model that a configuration's `model` section describes, for `--builder`."""
    return SensorDiT(**{name: value for name, value in config["model"].items() if name != "_target_"})
