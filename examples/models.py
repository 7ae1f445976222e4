"""Models to look at, in plain torch: each function builds one.

modelglass examples/models.py::resnet50 --input 1x3x224x224
modelglass examples/models.py::unet --input 1x3x128x128
modelglass examples/models.py::mixture_of_experts --input 1x64:int64
modelglass examples/models.py::language_model_80b --input 1x4096:int64
modelglass stats examples/models.py::damaged
"""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Bottleneck(nn.Module):
    """The block of deep ResNets: reduce, convolve, expand, add."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.reduce = nn.Sequential(nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.convolve = nn.Sequential(
            nn.Conv2d(width, width, 3, stride, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()
        )
        self.expand = nn.Sequential(nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
        self.shortcut = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.expand(self.convolve(self.reduce(x))) + self.shortcut(x))


def resnet50() -> nn.Module:
    """A ResNet-50: 25,557,032 parameters."""
    stages: list[nn.Module] = []
    inputs = 64
    for width, depth, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        blocks = []
        for index in range(depth):
            blocks.append(Bottleneck(inputs, width, stride if index == 0 else 1))
            inputs = 4 * width
        stages.append(nn.Sequential(*blocks))
    stem = nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, padding=3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, padding=1),
    )
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))
    return nn.Sequential(stem, *stages, head).eval()


class UNet(nn.Module):
    """Down, up, and a skip connection at every level."""

    def __init__(self, width: int = 32, levels: int = 4) -> None:
        super().__init__()
        widths = [width * 2**level for level in range(levels + 1)]
        self.stem = self._block(3, width)
        self.down = nn.ModuleList(self._block(a, b) for a, b in pairwise(widths))
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in reversed(list(pairwise(widths)))
        )
        self.merge = nn.ModuleList(self._block(2 * a, a) for a in reversed(widths[:-1]))
        self.head = nn.Conv2d(width, 2, 1)

    @staticmethod
    def _block(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(8, outputs), nn.SiLU())

    def forward(self, x: Tensor) -> Tensor:
        skips = [self.stem(x)]
        for down in self.down:
            skips.append(down(F.max_pool2d(skips[-1], 2)))
        x = skips.pop()
        for up, merge in zip(self.up, self.merge, strict=True):
            x = merge(torch.cat([up(x), skips.pop()], dim=1))
        return self.head(x)


def unet() -> nn.Module:
    """A small U-Net."""
    return UNet().eval()


class Attention(nn.Module):
    """Causal self-attention with fewer key and value heads than query heads."""

    def __init__(self, width: int, heads: int, kv_heads: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, width // heads
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(width, kv_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            proj(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o_proj(mixed.transpose(1, 2).flatten(2))


class GatedMLP(nn.Module):
    """Up and gate, multiply, down."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(width, hidden, bias=False)
        self.up_proj = nn.Linear(width, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Experts(nn.Module):
    """Tokens visit `top_k` of `num_experts` gated MLPs, chosen by a router."""

    def __init__(self, width: int, hidden: int, num_experts: int, top_k: int) -> None:
        super().__init__()
        self.num_experts, self.top_k = num_experts, top_k
        self.router = nn.Linear(width, num_experts, bias=False)
        self.experts = nn.ModuleList(GatedMLP(width, hidden) for _ in range(num_experts))

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(0, 1)
        weights, chosen = self.router(tokens).softmax(-1).topk(self.top_k)
        result = torch.zeros_like(tokens)
        for index, expert in enumerate(self.experts):
            rows, slots = torch.where(chosen == index)
            result.index_add_(0, rows, expert(tokens[rows]) * weights[rows, slots, None])
        return result.view_as(x)


class Block(nn.Module):
    """Attention and a feed-forward part, each behind a norm and around a residual."""

    def __init__(self, width: int, attention: nn.Module, feed_forward: nn.Module) -> None:
        super().__init__()
        self.input_norm = nn.RMSNorm(width)
        self.attention = attention
        self.output_norm = nn.RMSNorm(width)
        self.feed_forward = feed_forward

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.input_norm(x))
        return x + self.feed_forward(self.output_norm(x))


class LanguageModel(nn.Module):
    """Embedding, blocks, head."""

    def __init__(self, vocabulary: int, width: int, blocks: list[Block]) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def mixture_of_experts() -> nn.Module:
    """A small mixture of experts: each token uses 2 of 8."""
    blocks = [Block(128, Attention(128, 4, 2), Experts(128, 256, 8, 2)) for _ in range(4)]
    return LanguageModel(1000, 128, blocks).eval()


def language_model(layers: int = 80) -> nn.Module:
    """Llama-shaped, on the meta device: the shapes of a model that fits no laptop."""
    width, hidden = 8192, 32768
    with torch.device("meta"):
        blocks = [Block(width, Attention(width, 64, 8), GatedMLP(width, hidden)) for _ in range(layers)]
        return LanguageModel(128_256, width, blocks).eval()


def language_model_80b() -> nn.Module:
    """Eighty layers, 78 billion parameters."""
    return language_model(80)


def damaged() -> nn.Module:
    """A small network with a few things wrong with its weights: something for `modelglass stats`."""
    torch.manual_seed(0)
    blocks = nn.ModuleList(
        nn.Sequential(nn.Linear(64, 256), nn.LayerNorm(256), nn.Linear(256, 64)) for _ in range(3)
    )
    with torch.no_grad():
        blocks[0][2].weight[7, 11] = float("nan")
        blocks[1][0].weight[40:44] = 0
        blocks[1][2].weight[3, 3] = 300.0
        blocks[2][0].weight.copy_(blocks[0][0].weight)
    return nn.ModuleDict({"embed": nn.Embedding(1000, 64), "blocks": blocks, "head": nn.Linear(64, 1000)})
