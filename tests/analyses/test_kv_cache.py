"""The cache that a configuration tells of, beside the memory that transformers' own models really hold."""

from __future__ import annotations

import doctest
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from modelglass.analyses import kv_cache as analysis
from modelglass.analyses.kv_cache import FROM_CONFIG, WITHOUT_SOURCE, kv_cache
from modelglass.report.memory import KvCache

SEQUENCES, PROMPT, WINDOW, MORE, SOURCE = 2, 6, 8, 5, 7  # what is generated goes beyond the window

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
UNGROUPED = {key: value for key, value in SMALL.items() if key != "num_key_value_heads"}
GPT = {"n_layer": 3, "n_head": 4, "n_embd": 64, "vocab_size": 100}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
WINDOWED = {**SMALL, "head_dim": 16, "sliding_window": WINDOW}
HALF_WINDOWED = {"num_hidden_layers": 6, "layer_types": ["sliding_attention", "full_attention"] * 3}
PER_LAYER_INPUTS = {"vocab_size_per_layer_input": 100, "hidden_size_per_layer_input": 8}
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
SCAN = {
    "mamba_n_heads": 8,
    "mamba_d_head": 16,
    "mamba_d_state": 16,
    "mamba_n_groups": 2,
    "mamba_chunk_size": 4,
}
LINEAR = {
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 24,
    "linear_conv_kernel_dim": 3,
}
BART = {
    "vocab_size": 100,
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 96,
    "decoder_ffn_dim": 96,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
}

FAMILIES: dict[str, dict[str, Any]] = {
    "bloom": {"hidden_size": 64, "n_layer": 3, "n_head": 4, "vocab_size": 100},
    "cohere2": WINDOWED,
    "deepseek_v3": LATENT,
    "falcon": {**UNGROUPED, "multi_query": True, "new_decoder_architecture": False},
    "falcon_groups": {
        **UNGROUPED,
        "model_type": "falcon",
        "new_decoder_architecture": True,
        "num_kv_heads": 2,
    },
    "gemma2": WINDOWED,
    "gemma3_text": {**WINDOWED, "num_hidden_layers": 7},
    "gemma3n_text": {
        **WINDOWED,
        **HALF_WINDOWED,
        **PER_LAYER_INPUTS,
        "num_kv_shared_layers": 2,
        "intermediate_size": [96] * 6,
        "activation_sparsity_pattern": [0.0] * 6,
        "laurel_rank": 4,
    },
    "gemma4_text": {
        **WINDOWED,
        **HALF_WINDOWED,
        **PER_LAYER_INPUTS,
        "num_kv_shared_layers": 2,
        "global_head_dim": 32,
    },
    "gpt2": GPT,
    "gpt_bigcode": GPT,
    "gpt_neox": UNGROUPED,
    "llama": SMALL,
    "longcat_flash": {
        **{key: value for key, value in LATENT.items() if key != "num_hidden_layers"},
        "num_layers": 2,
        "head_dim": 16,
        "ffn_hidden_size": 96,
        "expert_ffn_hidden_size": 32,
        "zero_expert_num": 2,
        "moe_topk": 2,
    },
    "mistral": {**SMALL, "sliding_window": WINDOW},
    "mixtral": {**SMALL, "num_local_experts": 4},
    "mpt": {"d_model": 64, "n_heads": 4, "n_layers": 2, "vocab_size": 100},
    "opt": {**UNGROUPED, "ffn_dim": 96, "word_embed_proj_dim": 64},
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
    "qwen3_moe_windows": {
        **WINDOWED,
        **EXPERTS,
        "model_type": "qwen3_moe",
        "use_sliding_window": True,
        "max_window_layers": 2,
    },
    "xglm": {"d_model": 64, "num_layers": 2, "attention_heads": 4, "ffn_dim": 96, "vocab_size": 100},
}
RECURRENT: dict[str, dict[str, Any]] = {
    "bamba": {**SMALL, **SCAN, "attn_layer_indices": [1, 3]},
    "falcon_h1": {**SMALL, **SCAN, "head_dim": 16, "mamba_d_ssm": 128},
    "jamba": {
        **SMALL,
        **EXPERTS,
        "num_hidden_layers": 8,
        "attn_layer_period": 4,
        "attn_layer_offset": 2,
        "use_mamba_kernels": False,
        "mamba_dt_rank": 4,
    },
    "lfm2": {**SMALL, "layer_types": ["conv", "full_attention"] * 2, "block_multiple_of": 8},
    "mamba": {"vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 3, "state_size": 8},
    "mamba2": {
        "vocab_size": 100,
        "hidden_size": 64,
        "num_hidden_layers": 3,
        "num_heads": 8,
        "head_dim": 16,
        "state_size": 16,
        "n_groups": 2,
        "chunk_size": 4,
    },
    "nemotron_h": {
        **SMALL,
        "head_dim": 16,
        "hybrid_override_pattern": "M*-*",
        "mamba_num_heads": 8,
        "mamba_head_dim": 16,
        "ssm_state_size": 16,
        "n_groups": 1,
        "chunk_size": 4,
    },
    "qwen3_next": {**SMALL, **EXPERTS, **LINEAR, "head_dim": 16, "shared_expert_intermediate_size": 32},
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
        "chunk_size": 4,
    },
}
SEQUENCE_TO_SEQUENCE: dict[str, dict[str, Any]] = {
    "bart": BART,
    "t5": {
        "d_model": 64,
        "d_kv": 24,
        "d_ff": 96,
        "num_layers": 2,
        "num_decoder_layers": 3,
        "num_heads": 4,
        "vocab_size": 100,
    },
}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Threads that wait for each other take far longer than such small models do."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def native_model(name: str, settings: dict[str, Any], loader: str = "AutoModelForCausalLM") -> nn.Module:
    import transformers

    settings = dict(settings)
    config = transformers.AutoConfig.for_model(settings.pop("model_type", name), **settings)
    native: nn.Module = getattr(transformers, loader).from_config(config, dtype=torch.bfloat16)
    return native.eval()


def generate(native: nn.Module, first: dict[str, Any], later: str = "input_ids") -> Iterator[tuple[int, Any]]:
    """The number of tokens and the cache, after a prompt and after each token that follows it."""
    tokens = torch.full((SEQUENCES, 1), 7)
    with torch.no_grad():
        outputs = native(**{**first, later: tokens.repeat(1, PROMPT)}, use_cache=True)
        for count in range(PROMPT, PROMPT + MORE + 1):
            name = "cache_params" if hasattr(outputs, "cache_params") else "past_key_values"
            yield count, outputs[name]
            outputs = native(**{**first, later: tokens, name: outputs[name]}, use_cache=True)


def held(value: Any, seen: dict[int, int]) -> dict[int, int]:
    """The memory of every tensor of a cache, by where it lies: a view counts as all that it keeps alive."""
    if isinstance(value, torch.Tensor):
        if value.dim() > 1:
            seen[value.untyped_storage().data_ptr()] = value.untyped_storage().nbytes()
    else:
        parts = (
            value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
        )
        for part in parts or getattr(value, "__dict__", {}).values():
            held(part, seen)
    return seen


def sizes(native: nn.Module, first: dict[str, Any] | None = None, later: str = "input_ids") -> dict[int, int]:
    found = {count: sum(held(cache, {}).values()) for count, cache in generate(native, first or {}, later)}
    assert found[PROMPT] > 0
    return found


def told(cache: KvCache | None) -> dict[int, int]:
    assert cache is not None
    return {count: cache.nbytes(count, SEQUENCES) for count in range(PROMPT, PROMPT + MORE + 1)}


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.filterwarnings("ignore")
def test_the_cache_is_as_large_as_the_real_one(name: str) -> None:
    native = native_model(name, FAMILIES[name])
    cache = kv_cache(native.config.to_dict(), "bfloat16")
    assert told(cache) == sizes(native)
    assert cache is not None
    assert (cache.method, cache.source, cache.fixed_nbytes) == ("exact", FROM_CONFIG, 0)


@pytest.mark.parametrize("name", RECURRENT)
@pytest.mark.filterwarnings("ignore")
def test_recurrent_states_are_as_large_as_the_real_ones(name: str) -> None:
    native = native_model(name, RECURRENT[name])
    cache = kv_cache(native.config.to_dict(), "bfloat16")
    assert told(cache) == sizes(native)
    assert cache is not None
    assert cache.fixed_nbytes > 0
    assert cache.method == "estimate"


@pytest.mark.parametrize("name", SEQUENCE_TO_SEQUENCE)
@pytest.mark.filterwarnings("ignore")
def test_what_is_kept_of_the_source_counts_when_its_length_is_known(name: str) -> None:
    native = native_model(name, SEQUENCE_TO_SEQUENCE[name], "AutoModelForSeq2SeqLM")
    config = native.config.to_dict()
    source = {"input_ids": torch.full((SEQUENCES, SOURCE), 7)}
    whole, own = kv_cache(config, "bfloat16", source_tokens=SOURCE), kv_cache(config, "bfloat16")
    real = sizes(native, source, "decoder_input_ids")
    assert told(whole) == real
    assert whole is not None
    assert own is not None
    assert (whole.source, own.source, own.fixed_nbytes) == (FROM_CONFIG, WITHOUT_SOURCE, 0)
    assert own.nbytes(3, SEQUENCES) == 3 * (real[PROMPT + 1] - real[PROMPT])


@pytest.mark.filterwarnings("ignore")
def test_the_length_of_a_sound_is_in_the_configuration() -> None:
    settings = {**BART, "max_source_positions": 10, "max_target_positions": 64, "num_mel_bins": 8}
    tokens = {"bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 3}
    native = native_model("whisper", {**settings, **tokens}, "AutoModelForSpeechSeq2Seq")
    sound = {"input_features": torch.zeros(SEQUENCES, 8, 20, dtype=torch.bfloat16)}
    cache = kv_cache(native.config.to_dict(), "bfloat16")
    assert told(cache) == sizes(native, sound, "decoder_input_ids")


def test_bytes_of_published_models() -> None:
    qwen = {  # Qwen2.5-7B, as its file has it
        "architectures": ["Qwen2ForCausalLM"],
        "hidden_size": 3584,
        "max_window_layers": 28,
        "model_type": "qwen2",
        "num_attention_heads": 28,
        "num_hidden_layers": 28,
        "num_key_value_heads": 4,
        "sliding_window": 131072,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.43.1",
        "use_cache": True,
        "use_sliding_window": False,
    }
    cache = kv_cache(qwen, "bfloat16")
    assert cache == KvCache(
        nbytes_per_token=57_344, windows={}, fixed_nbytes=0, method="exact", source=FROM_CONFIG
    )
    assert cache.nbytes(131_072) == 7 * 2**30
    float32 = kv_cache(qwen, "float32")
    assert float32 is not None
    assert float32.nbytes_per_token == 2 * 57_344
    deepseek = {"num_hidden_layers": 61, "kv_lora_rank": 512, "qk_rope_head_dim": 64}
    latent = kv_cache(deepseek, "bfloat16")
    assert latent is not None
    assert latent.nbytes_per_token == 70_272


def test_the_language_model_alone_is_asked_when_it_is_a_part() -> None:
    text = {**SMALL, "model_type": "llama"}
    parts = {"model_type": "llava", "num_hidden_layers": 99, "head_dim": 1280, "text_config": text}
    assert kv_cache(parts, "float16") == kv_cache(text, "float16") is not None
    assert kv_cache({"thinker_config": parts}, "float16") == kv_cache(text, "float16")


def test_layers_may_differ_in_width() -> None:
    listed = {"num_transformer_layers": 3, "num_kv_heads": [3, 4, 5], "head_dim": 64}
    cache = kv_cache(listed, "float16")
    assert cache is not None
    assert cache.nbytes_per_token == 2 * 12 * 64 * 2
    some = {
        **WINDOWED,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
        "per_layer_config": {"01": {"head_dim": 32}, "2": {"sliding_window": 4, "num_key_value_heads": 1}},
    }
    mixed = kv_cache(some, "float16")
    assert mixed is not None
    assert mixed.nbytes_per_token == 2 * 2 * (32 + 16) * 2
    assert mixed.windows == {8: 2 * 2 * 16 * 2, 4: 2 * 1 * 16 * 2}


@pytest.mark.parametrize(
    "more",
    [
        {"num_hidden_layers": None},
        {"num_attention_heads": None, "num_key_value_heads": None},
        {"model_type": "bert"},
        {"model_type": "megatron-bert"},
        {"model_type": "mimo_v2_flash"},
        {"model_type": "rwkv"},
        {"transformers_version": "5.0.0"},  # which would say `use_cache`
        {"block_configs": [{"attention": {"no_op": True}}]},
        {"cross_attention_layers": [3]},
        {"index_head_dim": 128},
        {"layer_types": ["linear_attention", "full_attention"] * 2},
        {"layer_types": ["surprise"] * 4},
        {"num_key_value_heads": [1, 2, 3]},
        {"num_key_value_heads": [1, 2, 3, 0]},
        {"num_key_value_heads": [1, 2, 3, 4], "sliding_window": 8},
    ],
)
def test_what_the_configuration_does_not_tell_is_unknown(more: dict[str, Any]) -> None:
    assert kv_cache(SMALL, "float16") is not None
    assert kv_cache({**SMALL, **more}, "float16") is None


def test_an_unknown_type_of_elements_has_no_size() -> None:
    assert kv_cache(SMALL, "surprise") is None


@pytest.mark.parametrize("settings", [*FAMILIES.values(), *RECURRENT.values(), BART])
@pytest.mark.parametrize("value", [-1, 0, 2**70, 1.5, True, "x", [], {}, [[]], {"a": []}, {"9" * 5000: {}}])
def test_any_value_is_survived(settings: dict[str, Any], value: Any) -> None:
    for key in [*settings, "model_type", "per_layer_config", "text_config", "layer_types", "num_kv_heads"]:
        cache = kv_cache({**settings, key: value}, "bfloat16")
        assert cache is None or cache.nbytes(1) >= 0


def test_docstrings() -> None:
    result = doctest.testmod(analysis)
    assert result.attempted > 0
    assert result.failed == 0
