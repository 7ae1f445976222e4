"""Small sets of weights, named as those of language models are, and what can be done to them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

TYPES = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}

Weights = dict[str, Any]


def decoder(seed: int = 0, dtype: str = "float32", *, width: int = 64, layers: int = 3) -> Weights:
    """A decoder with grouped queries."""
    rng = np.random.default_rng(seed)
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (200, width)}
    for layer in range(layers):
        at = f"model.layers.{layer}"
        shapes |= {f"{at}.self_attn.{name}_proj.weight": (width, width) for name in "qo"}
        shapes |= {f"{at}.self_attn.{name}_proj.weight": (width // 2, width) for name in "kv"}
        shapes |= {f"{at}.mlp.{name}_proj.weight": (2 * width, width) for name in ("gate", "up")}
        shapes |= {f"{at}.mlp.down_proj.weight": (width, 2 * width)}
        shapes |= {f"{at}.{name}_layernorm.weight": (width,) for name in ("input", "post_attention")}
    shapes |= {"model.norm.weight": (width,), "lm_head.weight": (200, width)}
    return {name: _made(rng, shape).astype(TYPES[dtype]) for name, shape in shapes.items()}


def _made(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    if len(shape) == 1:
        return 1 + 0.1 * rng.normal(size=shape)
    return rng.normal(size=shape) * 0.5 / np.sqrt(shape[-1])


def copied(weights: Weights) -> Weights:
    return {name: array.copy() for name, array in weights.items()}


def saved(weights: Weights, path: Path) -> Path:
    save_file(weights, path)
    return path
