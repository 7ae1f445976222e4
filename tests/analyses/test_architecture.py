"""Attention caches and active parameters, beside what transformers' own models allocate and hold."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pytest
import torch
from torch import nn

import build
from modelglass.analyses.architecture import architecture
from modelglass.analyses.counts import count
from modelglass.report import Model, Packing, codec
from modelglass.report.architecture import Architecture

SMALL = {
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
}
GPT = {"n_layer": 3, "n_head": 4, "n_embd": 64, "vocab_size": 100}
NO_GROUPS = {key: value for key, value in SMALL.items() if key != "num_key_value_heads"}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
LATENT = {
    **SMALL,
    "num_key_value_heads": 4,
    "kv_lora_rank": 32,
    "q_lora_rank": 24,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
}
WINDOW = 8

# Each with what its caches keep in transformers, too: key and value heads without copies.
FAMILIES: dict[str, dict[str, Any]] = {
    "bamba": {
        **SMALL,
        "attn_layer_indices": [1, 3],
        "mamba_n_heads": 8,
        "mamba_d_head": 16,
        "mamba_d_state": 16,
    },
    "bloom": {"hidden_size": 64, "n_layer": 3, "n_head": 4, "vocab_size": 100},
    "cohere2": {**SMALL, "sliding_window": WINDOW},
    "deepseek_v2": {**LATENT, "head_dim": 16, "topk_method": "greedy"},
    "deepseek_v3": LATENT,
    "exaone4": {**SMALL, "sliding_window": WINDOW, "sliding_window_pattern": 4},
    "falcon": {**NO_GROUPS, "multi_query": True, "new_decoder_architecture": False},
    "gemma2": {**SMALL, "head_dim": 16, "sliding_window": WINDOW},
    "gemma3_text": {**SMALL, "head_dim": 16, "sliding_window": WINDOW, "num_hidden_layers": 7},
    "gemma3n_text": {
        **SMALL,
        "head_dim": 16,
        "sliding_window": WINDOW,
        "num_hidden_layers": 6,
        "num_kv_shared_layers": 2,
        "intermediate_size": [96] * 6,
        "activation_sparsity_pattern": [0.0] * 6,
        "layer_types": ["sliding_attention", "full_attention"] * 3,
        "vocab_size_per_layer_input": 100,
        "hidden_size_per_layer_input": 8,
        "laurel_rank": 4,
    },
    "gpt2": GPT,
    "gpt_bigcode": GPT,
    "gpt_neox": NO_GROUPS,
    "gpt_oss": {
        **SMALL,
        "head_dim": 16,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "sliding_window": WINDOW,
    },
    "granitemoe": {**SMALL, "num_local_experts": 4, "num_experts_per_tok": 2},
    "jamba": {
        **SMALL,
        **EXPERTS,
        "num_hidden_layers": 8,
        "attn_layer_period": 4,
        "attn_layer_offset": 2,
        "use_mamba_kernels": False,
        "mamba_dt_rank": 4,
    },
    "lfm2": {**SMALL, "full_attn_idxs": [1, 3], "block_multiple_of": 8},
    "llama": SMALL,
    "llama4_text": {
        **SMALL,
        "head_dim": 16,
        "attention_chunk_size": WINDOW,
        "num_local_experts": 2,
        "intermediate_size_mlp": 64,
    },
    "minimax": {
        **SMALL,
        "head_dim": 16,
        "num_local_experts": 2,
        "num_experts_per_tok": 1,
        "layer_types": ["linear_attention", "full_attention"] * 2,
    },
    "mistral": {**SMALL, "sliding_window": WINDOW},
    "mixtral": {**SMALL, "num_local_experts": 4},
    "mpt": {"d_model": 64, "n_heads": 4, "n_layers": 2, "vocab_size": 100},
    "nemotron_h": {
        **SMALL,
        "head_dim": 16,
        "hybrid_override_pattern": "M*-*",
        "mamba_num_heads": 8,
        "mamba_head_dim": 16,
        "ssm_state_size": 16,
        "n_groups": 1,
    },
    "opt": {**NO_GROUPS, "ffn_dim": 96, "word_embed_proj_dim": 64},
    "phi3": {**SMALL, "sliding_window": WINDOW},
    "qwen2": SMALL,
    "qwen2_windows": {
        **SMALL,
        "model_type": "qwen2",
        "use_sliding_window": True,
        "sliding_window": WINDOW,
        "max_window_layers": 1,
    },
    "qwen3": {**SMALL, "head_dim": 24},
    "qwen3_next": {
        **SMALL,
        **EXPERTS,
        "head_dim": 16,
        "shared_expert_intermediate_size": 32,
        "linear_num_value_heads": 4,
        "linear_num_key_heads": 2,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
    },
    "zamba2": {
        **SMALL,
        "layers_block_type": ["mamba", "hybrid"] * 2,
        "layer_types": ["mamba", "hybrid"] * 2,
        "mamba_headdim": 16,
        "mamba_d_state": 16,
        "n_mamba_heads": 8,
        "mamba_ngroups": 1,
        "num_mem_blocks": 1,
        "use_mem_rope": False,
        "adapter_rank": 4,
    },
}


def native_model(name: str, settings: dict[str, Any]) -> tuple[nn.Module, dict[str, Any]]:
    """A model of that family with random weights, and its configuration as the file has it."""
    import transformers

    settings = dict(settings)
    config = transformers.AutoConfig.for_model(settings.pop("model_type", name), **settings)
    native = transformers.AutoModelForCausalLM.from_config(config).eval()
    document = json.loads(config.to_json_string())
    return native, {**document, "architectures": [type(native).__name__]}


def checkpoint(native: nn.Module) -> Model:
    """What a file of the model holds; tied weights are written once."""
    seen: dict[int, str] = {}
    tensors = []
    for name, tensor in native.named_parameters(remove_duplicate=False):
        if seen.setdefault(id(tensor), name) == name:
            dtype = str(tensor.dtype).removeprefix("torch.")
            tensors.append(build.tensor(name, tuple(tensor.shape), dtype=dtype, trainable=None))
    return build.model(*tensors)


def cached_nbytes(native: nn.Module, tokens: int) -> int:
    with torch.no_grad():
        cache = native(torch.arange(tokens)[None], use_cache=True).past_key_values
    parts = (getattr(layer, which, None) for layer in cache.layers for which in ("keys", "values"))
    return sum(part.numel() * part.element_size() for part in parts if isinstance(part, torch.Tensor))


def facts(native: nn.Module, config: dict[str, Any]) -> Architecture:
    model = checkpoint(native)
    return architecture(config, model, count(model))


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.filterwarnings("ignore")
def test_the_cache_grows_as_in_transformers(name: str) -> None:
    native, config = native_model(name, FAMILIES[name])
    found = facts(native, config)
    without_tensors = architecture({**config, "dtype": "float32"}, build.model(), None)
    sizes = {tokens: cached_nbytes(native, tokens) for tokens in (1, 2, 12, 13)}
    assert found.kv_cache_reason is None
    assert found.kv_cache_nbytes_per_token == sizes[2] - sizes[1] == sizes[1]
    assert found.kv_cache_nbytes_per_token_beyond_window == sizes[13] - sizes[12]
    assert found.kv_cache_nbytes(2) == sizes[2]
    assert without_tensors.kv_cache_nbytes(100) == found.kv_cache_nbytes(100)
    assert found.total_params == sum(parameter.numel() for parameter in native.parameters())


@pytest.mark.filterwarnings("ignore")
def test_only_the_latent_vector_is_kept_of_latent_attention() -> None:
    config = {**LATENT, "model_type": "deepseek_v2", "torch_dtype": "bfloat16"}
    found = architecture(config, build.model(), None)
    assert found.kv_cache_compressed
    assert found.kv_cache_nbytes_per_token == 4 * (32 + 16) * 2
    deepseek_v3 = {"num_hidden_layers": 61, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "dtype": "bfloat16"}
    assert architecture(deepseek_v3, build.model(), None).kv_cache_nbytes_per_token == 70_272


def test_published_numbers_of_real_configurations() -> None:
    llama = {
        "model_type": "llama",
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "hidden_size": 8192,
        "torch_dtype": "bfloat16",
    }
    assert architecture(llama, build.model(), None).kv_cache_nbytes_per_token == 327_680
    falcon = {
        "model_type": "falcon",
        "num_hidden_layers": 60,
        "num_attention_heads": 128,
        "hidden_size": 8192,
    }
    falcon |= {
        "new_decoder_architecture": True,
        "multi_query": True,
        "num_kv_heads": 8,
        "torch_dtype": "bfloat16",
    }
    assert architecture(falcon, build.model(), None).kv_heads == 8


def test_windows_stop_growing() -> None:
    config = {**SMALL, "model_type": "mistral", "sliding_window": 8, "torch_dtype": "float16"}
    found = architecture(config, build.model(), None)
    assert found.kv_cache_nbytes(8) == found.kv_cache_nbytes(1000) == 8 * 4 * 2 * 2 * 16 * 2
    assert found.sliding_window == 8
    qwen = {**config, "model_type": "qwen2", "use_sliding_window": False}
    assert architecture(qwen, build.model(), None).sliding_window is None


def test_older_configurations_leave_the_pattern_out() -> None:
    for family, full in {"gemma2": 6, "gemma3_text": 2, "cohere2": 3, "gpt_oss": 6}.items():
        config = {
            **SMALL,
            "model_type": family,
            "num_hidden_layers": 12,
            "sliding_window": 8,
            "dtype": "float16",
        }
        found = architecture(config, build.model(), None)
        assert found.attention_layers == 12
        assert found.windowed_layers == 12 - full


@pytest.mark.parametrize(
    ("more", "attention"),
    [
        ({"full_attention_interval": 4}, 1),
        ({"linear_attn_config": {"full_attn_layers": [4], "kda_layers": [1, 2, 3]}}, 1),
        ({"attn_type_list": [0, 1, 0, 1]}, 2),
        ({"layers_block_type": ["mamba", "hybrid", "mamba", "mamba"]}, 1),
        ({"hybrid_override_pattern": "M*-E"}, 1),
        ({"model_type": "mamba"}, 0),
        ({"model_type": "recurrent_gemma", "block_types": ["recurrent", "attention"]}, 2),
    ],
)
def test_only_layers_with_attention_have_a_cache(more: dict[str, Any], attention: int) -> None:
    found = architecture({**SMALL, "dtype": "float16", **more}, build.model(), None)
    assert found.attention_layers == attention
    assert found.kv_cache_nbytes_per_token == attention * 2 * 2 * 16 * 2


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"is_encoder_decoder": True}, "encoder's output"),
        ({"cross_attention_layers": [3]}, "another input"),
        ({"model_type": "bert"}, "no keys"),
        ({"layer_types": ["full_attention", "surprise"]}, "'surprise'"),
        ({"hybrid_override_pattern": "*"}, "pattern"),
        ({"num_hidden_layers": 10**15}, "number of layers"),
        ({"num_hidden_layers": None}, "number of layers"),
        ({"num_attention_heads": None, "num_key_value_heads": None}, "key heads"),
        ({"dtype": "auto"}, "type of elements"),
        ({"index_head_dim": 128}, "index"),
    ],
)
def test_an_unknown_cache_says_why(more: dict[str, Any], reason: str) -> None:
    found = architecture({**SMALL, "dtype": "float16", **more}, build.model(), None)
    assert found.kv_cache_nbytes_per_token is None
    assert found.kv_cache_nbytes(10) is None
    assert reason in (found.kv_cache_reason or "")


@pytest.mark.parametrize("part", ["text_config", "llm_config", "language_config"])
def test_the_language_model_may_be_a_part(part: str) -> None:
    inner = {**SMALL, "model_type": "llama"}
    config = {
        "model_type": "llava",
        "torch_dtype": "float16",
        part: inner,
        "vision_config": {"num_hidden_layers": 24},
    }
    found = architecture(config, build.model(), None)
    assert found == architecture({**inner, "model_type": "llava", "dtype": "float16"}, build.model(), None)
    assert found.layers == 4


def test_tensors_tell_what_the_configuration_leaves_out() -> None:
    projections = [
        build.tensor(f"model.layers.{layer}.self_attn.{which}_proj.weight", (48, 64), dtype="bfloat16")
        for layer in range(4)
        for which in "kv"
    ]
    tower = build.tensor("vision_tower.layers.0.self_attn.k_proj.weight", (7, 7), dtype="bfloat16")
    config = {"num_hidden_layers": 4, "num_attention_heads": 4, "hidden_size": 64}
    found = architecture(config, build.model(*projections, tower), None)
    assert found.kv_cache_dtype == "bfloat16"
    assert found.kv_cache_nbytes_per_token == 4 * (48 + 48) * 2


def test_the_documented_mixture_counts_as_documented() -> None:
    shapes = {"w1": (128, 64), "w2": (64, 128), "w3": (128, 64)}
    tensors = [
        build.tensor("model.embed_tokens.weight", (1000, 64)),
        build.tensor("lm_head.weight", (1000, 64)),
    ]
    for layer in range(2):
        path = f"model.layers.{layer}"
        for which, rows in {"q": 64, "k": 32, "v": 32, "o": 64}.items():
            tensors.append(build.tensor(f"{path}.self_attn.{which}_proj.weight", (rows, 64)))
        tensors += [build.tensor(f"{path}.{norm}.weight", (64,)) for norm in ("a", "b")]
        tensors.append(build.tensor(f"{path}.block_sparse_moe.gate.weight", (4, 64)))
        for expert in range(4):
            bank = f"{path}.block_sparse_moe.experts.{expert}"
            tensors += [build.tensor(f"{bank}.{name}.weight", shape) for name, shape in shapes.items()]
    tensors.append(build.tensor("model.norm.weight", (64,)))
    model = build.model(*tensors)
    config = {"num_local_experts": 4, "num_experts_per_tok": 2, "top_k": 50, "tie_word_embeddings": False}
    found = architecture(config, model, count(model))
    assert (found.total_params, found.active_params) == (350_016, 251_712)
    assert found.tied_output is False
    assert architecture({"num_local_experts": 4, "top_k": 50}, model, None).active_params is None


MIXTURES = {
    # family: settings, and parameters of the experts of the model that a token does not visit
    "mixtral": ({**SMALL, "num_local_experts": 4}, 4 * 2 * 3 * 64 * 96),
    "deepseek_v3": (LATENT, 3 * 2 * 3 * 64 * 32),
    "qwen2_moe": ({**SMALL, **EXPERTS, "shared_expert_intermediate_size": 32}, 4 * 2 * 3 * 64 * 32),
    "qwen3_moe": ({**SMALL, **EXPERTS, "head_dim": 16}, 4 * 2 * 3 * 64 * 32),
    "gpt_oss": (FAMILIES["gpt_oss"], 4 * 2 * (3 * 64 * 96 + 2 * 96 + 64)),
    "granitemoe": (FAMILIES["granitemoe"], 4 * 2 * 3 * 64 * 96),
    "llama4_text": (FAMILIES["llama4_text"], 4 * 1 * 3 * 64 * 96),
    "llama": (SMALL, 0),
}


@pytest.mark.parametrize("name", MIXTURES)
@pytest.mark.filterwarnings("ignore")
def test_experts_that_are_not_visited_are_not_active(name: str) -> None:
    settings, idle = MIXTURES[name]
    with torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        native, config = native_model(name, settings)
    found = facts(native, config)
    assert found.total_params == sum(parameter.numel() for parameter in native.parameters())
    assert found.active_params == found.total_params - idle


def test_packed_experts_count_as_the_weights_they_stand_for() -> None:
    packing = Packing(scheme="mxfp4", logical_shape=(4, 32, 64), nbytes=4 * 32 * 32)
    blocks = build.tensor(
        "mlp.experts.up_blocks", (4, 32, 2, 16), dtype="uint8", kind="packed", packing=packing
    )
    model = build.model(blocks, build.tensor("mlp.router.weight", (4, 64)))
    found = architecture({"num_local_experts": 4, "num_experts_per_tok": 1}, model, count(model))
    assert (found.total_params, found.active_params) == (4 * 32 * 64 + 256, 32 * 64 + 256)


def test_experts_flattened_into_one_matrix() -> None:
    experts = build.tensor("ffn.experts.mlp.w1", (4 * 32, 64))
    config = {"ffn_config": {"moe_num_experts": 4, "moe_top_k": 2}}
    assert architecture(config, build.model(experts), None).active_params == 2 * 32 * 64


def test_output_weights_that_are_tied_are_absent_by_design() -> None:
    embedding = build.tensor("model.embed_tokens.weight", (100, 64))
    head = build.tensor("lm_head.weight", (100, 64))
    tied, untied = {"tie_word_embeddings": True}, {"tie_word_embeddings": False}
    assert architecture(tied, build.model(embedding), None).tied_output is True
    assert (
        architecture({"architectures": ["GemmaForCausalLM"]}, build.model(embedding), None).tied_output
        is True
    )
    assert architecture({}, build.model(embedding), None).tied_output is None
    assert architecture(untied, build.model(embedding), None).tied_output is None
    assert architecture(untied, build.model(embedding, head), None).tied_output is False
    assert architecture(tied, build.model(embedding, head), None).tied_output is None
    shared = build.tensor("lm_head.weight", (100, 64), storage=embedding.storage)
    assert architecture(tied, build.model(embedding, shared), None).tied_output is True


@pytest.mark.parametrize("value", [-1, 0, 2**70, 1.5, True, "x", [], {}, [[]], {"a": []}])
def test_no_value_of_a_configuration_breaks_it(value: Any) -> None:
    model = build.model(build.tensor("a.experts.0.w", (2, 2)), build.tensor("a.experts.1.w", (2, 2)))
    keys = {key for settings in FAMILIES.values() for key in settings}
    keys |= {"architectures", "model_type", "torch_dtype", "text_config", "linear_attn_config", "attn_config"}
    keys |= {"full_attention_interval", "sliding_window_pattern", "max_window_layers", "attn_type_list"}
    base = {**SMALL, "sliding_window": 8, "dtype": "float16"}
    for key in keys:
        found = architecture({**base, key: value}, model, count(model))
        assert codec.from_json(Architecture, codec.to_json(found)) == found
