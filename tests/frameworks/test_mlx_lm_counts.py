"""Language models of mlx_lm, at full size and never computed, against arithmetic and transformers."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

import mlx.core as mx
import pytest
import torch
from mlx import nn
from mlx.utils import tree_flatten
from transformers import AutoConfig, AutoModelForCausalLM

from modelglass.analyses.counts import count
from modelglass.frameworks.mlx.structure import modules as structure
from modelglass.report import Counts

# The default configuration of each type has the sizes of a released model.
SAME_IN_TRANSFORMERS = (
    "llama",
    "mixtral",
    "qwen2_moe",
    "qwen3",
    "gemma2",
    "phi",
    "phi3",
    "mamba",
    "jamba",
    "olmoe",
    "olmo2",
    "gpt_oss",
    "cohere",
    "glm",
    "gptj",
    "smollm3",
)


@cache
def config_of(model_type: str) -> Any:
    return AutoConfig.for_model(model_type)


def built(model_type: str, **changes: Any) -> nn.Module:
    code = import_module(f"mlx_lm.models.{model_type}")
    native: nn.Module = code.Model(code.ModelArgs.from_dict(config_of(model_type).to_dict() | changes))
    return native


def counts_of(native: nn.Module) -> Counts:
    return count(structure.read(native)[0])


@pytest.mark.parametrize("model_type", SAME_IN_TRANSFORMERS)
def test_the_count_is_that_of_transformers(model_type: str) -> None:
    with torch.device("meta"):
        other = AutoModelForCausalLM.from_config(config_of(model_type))
    before = mx.get_active_memory()
    counts = counts_of(built(model_type))
    assert counts.params == sum(parameter.numel() for parameter in other.parameters())
    assert mx.get_active_memory() - before < 16 << 20


def test_deepseek_counts_the_correction_of_its_router_which_transformers_does_not() -> None:
    counts = counts_of(built("deepseek_v3"))
    assert counts.params == 671_026_419_200 == 671_026_404_352 + 58 * 256
    assert counts.active_params is not None
    assert counts.active_params // 10**8 == 375


def test_llama_by_arithmetic() -> None:
    sizes = {
        "hidden_size": 8192,
        "num_hidden_layers": 80,
        "intermediate_size": 28672,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 128_256,
        "tie_word_embeddings": False,
    }
    layer = 2 * 8192**2 + 2 * 8192 * 1024 + 3 * 8192 * 28672 + 2 * 8192
    assert counts_of(built("llama", **sizes)).params == 80 * layer + 2 * 128_256 * 8192 + 8192
    tied = counts_of(built("llama", **(sizes | {"tie_word_embeddings": True})))
    assert tied.params == 80 * layer + 128_256 * 8192 + 8192


def test_of_eight_experts_a_token_meets_two() -> None:
    counts = counts_of(built("mixtral"))
    experts = 32 * 8 * 3 * 4096 * 14336
    assert counts.active_params == counts.params - experts * 6 // 8


@pytest.mark.parametrize("mode", ["affine", "mxfp4"])
@pytest.mark.parametrize("model_type", ["llama", "mixtral", "deepseek_v3", "qwen2_moe", "gemma2"])
def test_quantizing_keeps_the_count(model_type: str, mode: str) -> None:
    native = built(model_type)
    before = counts_of(native)
    nn.quantize(
        native,
        mode=mode,
        class_predicate=lambda _, layer: hasattr(layer, "to_quantized") and layer.weight.shape[-1] % 64 == 0,
    )
    after = counts_of(native)
    assert (after.params, after.logical_params) == (before.params, before.params)
    assert after.active_params == before.active_params
    trained = {id(array): array.size for _, array in tree_flatten(native.trainable_parameters())}
    assert after.trainable == sum(trained.values())
    assert after.bits_per_weight is not None
    # Scales and biases are 32-bit here, as the weights were: 64 bits for each group of 64.
    assert after.bits_per_weight == pytest.approx(5 if mode == "affine" else 4.25, abs=0.02)
