"""Models in MLX for the documentation: `modelglass examples/mlx_models.py::cnn`.

Nothing here is evaluated, so that `llama_70b` is there at once and takes no memory.
"""

from __future__ import annotations

import mlx.core as mx
from mlx import nn


class Cnn(nn.Module):
    """Two convolutions, channels last, and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 32, kernel_size=3, padding=1)
        self.norm1 = nn.BatchNorm(32)
        self.conv2 = nn.Conv2d(32, 64, kernel_size=3, padding=1)
        self.pool = nn.MaxPool2d(2, 2)
        self.head = nn.Linear(64 * 7 * 7, 10)

    def __call__(self, x: mx.array) -> mx.array:
        x = self.pool(nn.relu(self.norm1(self.conv1(x))))
        x = self.pool(nn.relu(self.conv2(x)))
        return self.head(x.flatten(1))


class Attention(nn.Module):
    """Attention with fewer heads for keys and values, and rotary positions."""

    def __init__(self, dims: int, heads: int, kv_heads: int) -> None:
        super().__init__()
        self.heads, self.kv_heads = heads, kv_heads
        width = dims // heads
        self.q_proj = nn.Linear(dims, heads * width, bias=False)
        self.k_proj = nn.Linear(dims, kv_heads * width, bias=False)
        self.v_proj = nn.Linear(dims, kv_heads * width, bias=False)
        self.o_proj = nn.Linear(heads * width, dims, bias=False)
        self.rope = nn.RoPE(width)

    def __call__(self, x: mx.array, mask: mx.array) -> mx.array:
        batch, length, _ = x.shape
        q = self.q_proj(x).reshape(batch, length, self.heads, -1).swapaxes(1, 2)
        k = self.k_proj(x).reshape(batch, length, self.kv_heads, -1).swapaxes(1, 2)
        v = self.v_proj(x).reshape(batch, length, self.kv_heads, -1).swapaxes(1, 2)
        q, k = self.rope(q), self.rope(k)
        mixed = mx.fast.scaled_dot_product_attention(q, k, v, scale=q.shape[-1] ** -0.5, mask=mask)
        return self.o_proj(mixed.swapaxes(1, 2).reshape(batch, length, -1))


class FeedForward(nn.Module):
    """A gated feed-forward layer."""

    def __init__(self, dims: int, hidden: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(dims, hidden, bias=False)
        self.up_proj = nn.Linear(dims, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, dims, bias=False)

    def __call__(self, x: mx.array) -> mx.array:
        return self.down_proj(nn.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    """Attention and feed-forward, each on a normalised input and added to it."""

    def __init__(self, dims: int, heads: int, kv_heads: int, hidden: int) -> None:
        super().__init__()
        self.norm1 = nn.RMSNorm(dims)
        self.attention = Attention(dims, heads, kv_heads)
        self.norm2 = nn.RMSNorm(dims)
        self.mlp = FeedForward(dims, hidden)

    def __call__(self, x: mx.array, mask: mx.array) -> mx.array:
        x = x + self.attention(self.norm1(x), mask)
        return x + self.mlp(self.norm2(x))


class Transformer(nn.Module):
    """A decoder in the manner of Llama."""

    def __init__(
        self, vocabulary: int, layers: int, dims: int, heads: int, kv_heads: int, hidden: int
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, dims)
        self.layers = [Block(dims, heads, kv_heads, hidden) for _ in range(layers)]
        self.norm = nn.RMSNorm(dims)
        self.head = nn.Linear(dims, vocabulary, bias=False)

    def __call__(self, tokens: mx.array) -> mx.array:
        x = self.embedding(tokens)
        mask = nn.MultiHeadAttention.create_additive_causal_mask(tokens.shape[1]).astype(x.dtype)
        for layer in self.layers:
            x = layer(x, mask)
        return self.head(self.norm(x))


def cnn() -> nn.Module:
    """For images of 28x28 pixels with three channels, which come last."""
    return Cnn()


def transformer() -> nn.Module:
    """A small one."""
    return Transformer(vocabulary=1000, layers=2, dims=128, heads=4, kv_heads=2, hidden=256)


def quantized() -> nn.Module:
    """The small one in bfloat16, with weights of four bits in groups of 64; its head keeps eight."""
    model = transformer()
    model.set_dtype(mx.bfloat16)
    chosen = {"head": {"group_size": 64, "bits": 8}}
    nn.quantize(
        model,
        group_size=64,
        bits=4,
        class_predicate=lambda path, module: chosen.get(path, hasattr(module, "to_quantized")),
    )
    return model


def frozen() -> nn.Module:
    """The small one, frozen, but for the norms."""
    model = transformer()
    model.freeze()
    model.apply_to_modules(lambda _, module: isinstance(module, nn.RMSNorm) and module.unfreeze())
    return model


def llama_70b() -> nn.Module:
    """As large as Llama 70B, in bfloat16."""
    model = Transformer(vocabulary=128_256, layers=80, dims=8192, heads=64, kv_heads=8, hidden=28_672)
    model.set_dtype(mx.bfloat16)
    return model
