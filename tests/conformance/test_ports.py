"""Language models of transformers beside their ports in mlx_lm, and beside checkpoints of either."""

from __future__ import annotations

import json
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
import torch
from mlx import nn
from mlx.utils import tree_flatten
from transformers import AutoConfig, AutoModelForCausalLM

import modelglass as mg
from differences import found

SMALL = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 160,
    "pad_token_id": None,
}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 48}
LATENT = {
    "q_lora_rank": 32,
    "kv_lora_rank": 24,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "n_routed_experts": 4,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
}
MORE = {
    "mixtral": {"num_local_experts": 4, **EXPERTS},
    "qwen3_moe": {"num_experts": 4, **EXPERTS},
    "deepseek_v3": {**EXPERTS, **LATENT},
    "gpt_oss": {"num_local_experts": 4, "num_experts_per_tok": 2},
}
# What mlx_lm wants to be told and transformers keeps elsewhere.
TOLD = {"rope_theta": 10_000.0, "rope_scaling": None, "head_dim": 16, "num_experts": 4}

SAME = (
    *("llama", "qwen2", "qwen3", "gemma", "gemma2", "phi3", "cohere", "olmo2", "smollm3", "glm", "granite"),
    *("mixtral", "qwen3_moe", "deepseek_v3", "gpt_oss"),
)


@cache
def config_of(model_type: str) -> Any:
    return AutoConfig.for_model(model_type, **{**SMALL, **MORE.get(model_type, {})})


def original(model_type: str) -> torch.nn.Module:
    with torch.device("meta"):
        model: torch.nn.Module = AutoModelForCausalLM.from_config(config_of(model_type))
    return model


def port(model_type: str, **changes: Any) -> nn.Module:
    code = import_module(f"mlx_lm.models.{model_type}")
    settings = {**TOLD, **config_of(model_type).to_dict(), **changes}
    model: nn.Module = code.Model(code.ModelArgs.from_dict(settings))
    return model


@pytest.mark.parametrize("model_type", SAME)
def test_a_port_lines_up(model_type: str) -> None:
    comparison = mg.compare_structure(original(model_type), port(model_type))
    assert found(comparison) == []
    assert (comparison.a.matched, comparison.b.matched) == (comparison.a.tensors, comparison.b.tensors)


@pytest.mark.parametrize("model_type", ["llama", "mixtral", "deepseek_v3"])
def test_a_packed_port_lines_up(model_type: str) -> None:
    model = port(model_type)
    nn.quantize(model, group_size=32, bits=4, class_predicate=lambda _, m: _fits(m))
    comparison = mg.compare_structure(original(model_type), model)
    assert found(comparison) == []
    assert "packed" in {each.code for pair in comparison.pairs for each in pair.deviations}


def _fits(module: nn.Module) -> bool:
    return hasattr(module, "to_quantized") and module.weight.shape[-1] % 32 == 0


def test_a_model_of_70_billion_lines_up_in_a_moment() -> None:
    heads = {"head_dim": 128, "num_attention_heads": 64, "num_key_value_heads": 8}
    sizes = {"hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80}
    config = AutoConfig.for_model("llama", vocab_size=128_256, **sizes, **heads)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    code = import_module("mlx_lm.models.llama")
    before = mx.get_active_memory()
    ported = code.Model(code.ModelArgs.from_dict({**TOLD, **config.to_dict()}))
    comparison = mg.compare_structure(model, ported)
    assert comparison.same
    assert comparison.a.tensors == comparison.a.matched == comparison.b.tensors == 723
    assert comparison.a.params == comparison.b.params == 70_553_706_496
    assert mx.get_active_memory() - before < 2**20


def test_a_layer_that_is_missing_is_one_difference() -> None:
    comparison = mg.compare_structure(original("llama"), port("llama", num_hidden_layers=1))
    assert found(comparison) == [("model.layers.1", None, "missing-in-b")]
    assert comparison.a.tensors - comparison.a.matched == 9


def test_a_head_of_its_own_and_biases_are_told() -> None:
    tied = mg.compare_structure(original("qwen2"), port("qwen2", tie_word_embeddings=True))
    assert found(tied) == [("lm_head", None, "missing-in-b")]
    biased = mg.compare_structure(original("llama"), port("llama", attention_bias=True))
    assert {(b, code) for _, b, code in found(biased)} == {
        (f"model.layers.{layer}.self_attn.{name}_proj", "bias") for layer in range(2) for name in "qkvo"
    }


def test_another_number_of_heads_is_told_by_shapes() -> None:
    comparison = mg.compare_structure(original("llama"), port("llama", num_key_value_heads=1))
    assert {(b, code) for _, b, code in found(comparison)} == {
        (f"model.layers.{layer}.self_attn.{name}_proj", "shape") for layer in range(2) for name in "kv"
    }


def test_a_settings_difference_is_told() -> None:
    comparison = mg.compare_structure(original("llama"), port("llama", rms_norm_eps=1e-3))
    assert {code for _, _, code in found(comparison)} == {"config"}
    assert len(found(comparison)) == 5  # two in each layer, and the last one


def test_both_run_and_give_the_same() -> None:
    comparison = mg.compare_structure(
        original("llama"),
        port("llama"),
        inputs_a={"input_ids": torch.zeros(1, 8, dtype=torch.long, device="meta")},
        inputs_b=mx.zeros((1, 8), dtype=mx.int32),
    )
    assert found(comparison) == []
    assert comparison.a.macs is not None
    assert comparison.b.macs is not None


def test_checkpoints_line_up_with_models_of_either_framework(tmp_path: Path) -> None:
    model = port("llama")
    weights = dict(tree_flatten(model.parameters()))
    mx.save_safetensors(str(tmp_path / "mlx.safetensors"), weights)
    assert mg.compare_structure(tmp_path / "mlx.safetensors", model).same
    hugging = AutoModelForCausalLM.from_config(config_of("mixtral"))
    hugging.save_pretrained(tmp_path / "hugging")  # its experts each for themselves
    for other in (port("mixtral"), original("mixtral")):
        comparison = mg.compare_structure(tmp_path / "hugging", other)
        assert found(comparison) == []
        assert comparison.a.matched == comparison.a.tensors
    assert not mg.compare_structure(tmp_path / "hugging", model).same


def test_saved_reports_configurations_and_reports_are_compared(tmp_path: Path) -> None:
    model = port("llama")
    mg.save(mg.inspect(model), tmp_path / "port.json")
    (tmp_path / "config.json").write_text(json.dumps(config_of("llama").to_dict()))
    assert mg.compare_structure(tmp_path / "config.json", tmp_path / "port.json").same
    assert mg.compare_structure(mg.inspect(model), model).same
