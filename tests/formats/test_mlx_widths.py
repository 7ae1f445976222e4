"""Bits of quantized weights follow from the sizes in a file, for models as large as they are published.

Nothing is evaluated: arrays of MLX have shapes before they have values.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import mlx.nn as nn
import pytest
from mlx.utils import tree_flatten

from modelglass.formats.packing.layers import packed
from modelglass.formats.packing.mlx import ASSUMED
from modelglass.report import Tensor

SHARED = {
    "num_hidden_layers": 2,
    "rms_norm_eps": 1e-5,
    "rope_theta": 1e4,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
}


def sizes(hidden: int, inner: int, heads: int, kv_heads: int, vocabulary: int, **more: Any) -> dict[str, Any]:
    return {
        **SHARED,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": vocabulary,
        **more,
    }


MODELS = {
    "llama": sizes(4096, 14336, 32, 8, 128256),
    "llama, powers of two": sizes(1024, 4096, 16, 4, 16384),
    "qwen3": sizes(1024, 3072, 16, 8, 151936, head_dim=128, tie_word_embeddings=True),
    "phi3, fused": sizes(3072, 8192, 32, 32, 32064),
    "gemma2": sizes(
        2304,
        9216,
        8,
        4,
        256000,
        head_dim=256,
        query_pre_attn_scalar=256,
        attn_logit_softcapping=50.0,
        final_logit_softcapping=30.0,
    ),
    "deepseek_v3": sizes(
        7168,
        18432,
        128,
        128,
        129280,
        moe_intermediate_size=2048,
        n_routed_experts=8,
        n_shared_experts=1,
        kv_lora_rank=512,
        q_lora_rank=1536,
        qk_rope_head_dim=64,
        qk_nope_head_dim=128,
        v_head_dim=128,
        n_group=1,
        topk_group=1,
        num_experts_per_tok=2,
        first_k_dense_replace=1,
    ),
}
# Products of bits and group size that can be read in more than one way.
READINGS = [
    (4, 32),
    (2, 64),
    (6, 32),
    (3, 64),
    (8, 32),
    (4, 64),
    (2, 128),
    (6, 64),
    (3, 128),
    (8, 64),
    (4, 128),
]


def made(name: str) -> nn.Module:
    kind = name.partition(",")[0]
    module = import_module(f"mlx_lm.models.{kind}")
    return module.Model(module.ModelArgs.from_dict({"model_type": kind, **MODELS[name]}))


def tensors(model: nn.Module) -> list[Tensor]:
    return [
        Tensor(
            name=name,
            kind="parameter",
            shape=tuple(array.shape),
            dtype=str(array.dtype).rpartition(".")[2],
            storage=name,
        )
        for name, array in tree_flatten(model.parameters())
    ]


def weights(found: list[Tensor]) -> int:
    return sum(tensor.params or 0 for tensor in found if tensor.kind != "buffer")


def schemes(found: list[Tensor]) -> set[str]:
    return {tensor.packing.scheme for tensor in found if tensor.packing is not None}


@pytest.mark.parametrize("name", MODELS)
def test_sizes_settle_every_reading_of_a_whole_model(name: str) -> None:
    truth = weights(tensors(made(name)))
    for bits, group in READINGS:
        model = made(name)
        nn.quantize(model, group, bits)
        found = packed(tensors(model))
        assert (bits, group, schemes(found)) == (bits, group, {f"mlx-{bits}bit"})
        assert weights(found) == truth


@pytest.mark.parametrize("name", MODELS)
def test_one_bit_is_believed_only_when_it_is_said(name: str) -> None:
    truth = weights(tensors(made(name)))
    for group in (64, 128):
        model = made(name)
        nn.quantize(model, group, 1)
        assert all(ASSUMED in scheme for scheme in schemes(packed(tensors(model))))
        found = packed(tensors(model), {"quantization": {"group_size": group, "bits": 1}})
        assert schemes(found) == {"mlx-1bit"}
        assert weights(found) == truth


def test_readings_that_explain_almost_the_same_are_assumed() -> None:
    """Of layers in a row, each twice as wide as the one before: any other width moves all by one."""
    layers = [nn.Linear(2**n, 2 ** (n + 1), bias=False) for n in range(7, 12)]
    model = nn.Sequential(*layers, nn.LayerNorm(4096))
    nn.quantize(model, 32, 4)
    assert schemes(packed(tensors(model))) == {f"mlx-2bit{ASSUMED}64"}
