"""Models that vLLM builds without weights, rank by rank, and small ones that it loads: what each holds.

Each is a process of its own: `builds.py ranks RESULT`, or `builds.py loaded FOLDER=DTYPE ... RESULT`.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")  # an engine in this process

import torch
import transformers

from modelglass.frameworks.vllm.structure.modules import Reading, read
from modelglass.report import Engine, Report, Serving, codec

_COMMON = {
    "vocab_size": 1003,  # no multiple of 64, so that vLLM pads it
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,  # fewer than four ranks: some hold the same
    "max_position_embeddings": 512,
    "pad_token_id": 0,
}
_LATENT = {
    "num_key_value_heads": 8,
    "q_lora_rank": 64,
    "kv_lora_rank": 64,
    "qk_rope_head_dim": 32,
    "qk_nope_head_dim": 32,
    "v_head_dim": 32,
}
_ROUTED = {
    "moe_intermediate_size": 128,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
}
_STATES = {"num_heads": 8, "head_dim": 64, "state_size": 32}
CONFIGS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("Llama", "LlamaForCausalLM", {}),
    "tied": ("Qwen2", "Qwen2ForCausalLM", {"tie_word_embeddings": True}),
    "gptj": ("GPTJ", "GPTJForCausalLM", {"n_embd": 256, "n_layer": 2, "n_head": 8, "rotary_dim": 16}),
    "mixtral": ("Mixtral", "MixtralForCausalLM", {"num_local_experts": 8}),
    "deepseek": (
        "DeepseekV3",
        "DeepseekV3ForCausalLM",
        {**_LATENT, **_ROUTED, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1},
    ),
    "sinks": (
        "GptOss",
        "GptOssForCausalLM",
        {"num_key_value_heads": 8, "head_dim": 64, "num_local_experts": 8},
    ),
    "mamba": ("Mamba", "MambaForCausalLM", {}),
    "mamba2": ("Mamba2", "Mamba2ForCausalLM", {**_STATES, "n_groups": 1}),  # which each rank has a copy of
    "borrowed": ("Starcoder2", "Starcoder2ForCausalLM", {}),  # which vLLM takes from transformers
}
QUANTIZED = {
    "awq": {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm"},
    "gptq": {"quant_method": "gptq", "bits": 8, "group_size": 32, "desc_act": False, "sym": True},
    "fp8": {"quant_method": "fp8", "activation_scheme": "dynamic"},
    "fp8-blocks": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [32, 32]},
}
MODELS = (*CONFIGS, *(f"{name}+{method}" for name in ("llama", "mixtral") for method in QUANTIZED))


def ranks() -> dict[str, Any]:
    """Each model alone, and each rank of four, divided by tensors and, where there are any, by experts."""
    found = {}
    for name in MODELS:
        base, _, method = name.partition("+")
        config = _config(base)
        native = _hugging_face(config)
        with tempfile.TemporaryDirectory() as folder:
            _save(config, base, method, Path(folder))
            whole, nbytes = next(_readings(folder, 1, experts=False))
            ways = {"tensors": False} | ({"experts": True} if base == "mixtral" else {})
            found[name] = {
                "transformers": sum(parameter.numel() for parameter in native.parameters()),
                "whole": _told(whole),
                "nbytes": nbytes,
                "ranks": {
                    way: [_told(held) for held, _ in _readings(folder, 4, experts=experts)]
                    for way, experts in ways.items()
                },
            }
    return found


def loaded(*wanted: str) -> dict[str, Any]:
    """Each model as an engine loads it; `wanted` are folders and types."""
    from vllm import LLM
    from vllm.model_executor.models import registry

    registry._run_in_subprocess = lambda function: function()
    found = {}
    for text in wanted:
        folder, _, dtype = text.partition("=")
        llm = LLM(
            model=folder,
            enforce_eager=True,
            max_model_len=64,
            max_num_seqs=2,
            dtype=dtype,
            seed=0,
            kv_cache_memory_bytes=8 << 20,
            load_format="auto" if any(Path(folder).glob("*.safetensors")) else "dummy",
        )
        native = llm.llm_engine.model_executor.driver_worker.worker.get_model()
        before = _state(native)
        report = _told(read(native))
        found[text] = {"report": report, "listed": _listed(native), "untouched": before == _state(native)}
    return found


def _config(base: str) -> Any:
    kind, _, settings = CONFIGS[base]
    return getattr(transformers, f"{kind}Config")(**{**_COMMON, **settings})


def _hugging_face(config: Any) -> Any:
    with torch.device("meta"):
        return transformers.AutoModelForCausalLM.from_config(config)


def _save(config: Any, base: str, method: str, folder: Path) -> None:
    settings = {**config.to_dict(), "architectures": [CONFIGS[base][1]], "dtype": "bfloat16"}
    if base == "deepseek":
        settings["topk_method"] = "noaux_tc"  # vLLM asks for it, transformers takes it for granted
    if method:
        settings["quantization_config"] = QUANTIZED[method]
    (folder / "config.json").write_text(json.dumps(settings, default=str))


def _readings(folder: str, size: int, *, experts: bool) -> Iterator[tuple[Reading, int]]:
    """Each rank, and the bytes of its parameters."""
    from modelglass.frameworks.vllm.meta.builder import Builder

    builder = Builder(folder, Serving(tensor_parallel=size, expert_parallel=experts))
    for rank in range(size):
        yield builder.build(rank, size, lambda native, _: (read(native), _nbytes(native)))


def _nbytes(native: Any) -> int:
    return sum(parameter.numel() * parameter.element_size() for parameter in native.parameters())


def _listed(native: Any) -> int:
    return sum(parameter.numel() for parameter in native.parameters())


def _state(native: Any) -> list[Any]:
    """What would show that somebody touched a module."""
    return [
        (name, tensor.data_ptr(), tuple(tensor.shape), tensor._version, sorted(vars(tensor)))
        for name, tensor in (*native.named_parameters(), *native.named_buffers())
    ]


def _told(reading: Reading) -> str:
    """A document, as it leaves a worker."""
    engine = Engine(version="", reached="meta", shards=reading.shards)
    return codec.dumps(Report(model=reading.model, engine=engine, notes=reading.notes), indent=None)


if __name__ == "__main__":
    *arguments, result = sys.argv[1:]
    known = {"ranks": ranks, "loaded": loaded}
    Path(result).write_text(json.dumps(known[arguments[0]](*arguments[1:])))
