"""Small models with random weights and a tokenizer, saved as vLLM and transformers load them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoModelForCausalLM,
    DeepseekV3Config,
    LlamaConfig,
    MixtralConfig,
    OPTConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
)

VOCABULARY = 259  # no multiple of 64, so that vLLM pads it
# vLLM's attention on CPU has kernels for heads of 32, 64 and more.
_COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 2,
    "dtype": "float32",
}


def _llama() -> Any:
    return LlamaConfig(
        **_COMMON, intermediate_size=192, num_key_value_heads=2, architectures=["LlamaForCausalLM"]
    )


def _opt() -> Any:
    return OPTConfig(**_COMMON, ffn_dim=256, word_embed_proj_dim=128, architectures=["OPTForCausalLM"])


def _qwen() -> Any:
    return Qwen2Config(
        **_COMMON,
        intermediate_size=192,
        num_key_value_heads=1,  # fewer than two ranks: each holds a copy
        tie_word_embeddings=True,
        architectures=["Qwen2ForCausalLM"],
    )


def _mixtral() -> Any:
    return MixtralConfig(
        **_COMMON,
        intermediate_size=64,
        num_key_value_heads=2,
        num_local_experts=4,
        architectures=["MixtralForCausalLM"],
    )


def _deepseek() -> Any:
    return DeepseekV3Config(
        **_COMMON,
        intermediate_size=128,
        moe_intermediate_size=64,
        num_key_value_heads=4,
        n_routed_experts=8,
        n_group=2,
        topk_group=1,
        num_experts_per_tok=2,
        first_k_dense_replace=1,
        q_lora_rank=64,
        kv_lora_rank=64,
        qk_rope_head_dim=32,
        qk_nope_head_dim=32,
        v_head_dim=32,
        topk_method="noaux_tc",  # vLLM asks for it, transformers takes it for granted
        architectures=["DeepseekV3ForCausalLM"],
    )


CONFIGS: dict[str, Callable[[], Any]] = {
    "llama": _llama,
    "opt": _opt,
    "qwen": _qwen,
    "mixtral": _mixtral,
    "deepseek": _deepseek,
}


def save(name: str, folder: Path) -> int:
    """Write a model and its tokenizer; the number of its parameters, as transformers counts them."""
    torch.manual_seed(0)
    native = AutoModelForCausalLM.from_config(CONFIGS[name](), dtype=torch.float32)
    native.save_pretrained(folder)
    _tokenizer().save_pretrained(folder)
    return sum(parameter.numel() for parameter in native.parameters())


def _tokenizer() -> PreTrainedTokenizerFast:
    """One token for each byte, and three special ones."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<s>", "</s>", "<pad>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(["hello world"], trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>"
    )
