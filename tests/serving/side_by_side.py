"""Models of transformers beside what vLLM makes of their configurations; what is found is written as JSON.

`python side_by_side.py built FOLDER RESULT` builds many in one process; `live FOLDER RESULT` runs an engine.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_SMALL = {
    "vocab_size": 259,  # no multiple of 64, so that vLLM pads it
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 128,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 2,
}
_LATENT = {
    "num_key_value_heads": 8,
    "moe_intermediate_size": 64,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "first_k_dense_replace": 1,
    "q_lora_rank": 64,
    "kv_lora_rank": 64,
    "qk_rope_head_dim": 32,
    "qk_nope_head_dim": 32,
    "v_head_dim": 32,
    "n_group": 2,
    "topk_group": 1,
    "topk_method": "noaux_tc",
}
_GPT2 = {"n_embd": 256, "n_layer": 2, "n_head": 8, "n_positions": 128, "vocab_size": 259}
_NEOX = {name: size for name, size in _SMALL.items() if name != "num_key_value_heads"}
_STATE = {"state_size": 32, "num_heads": 16, "head_dim": 32, "n_groups": 1}
_MIXED = {
    "num_hidden_layers": 4,
    "attn_layer_period": 2,
    "attn_layer_offset": 1,
    "expert_layer_period": 2,
    "expert_layer_offset": 1,
    "num_experts": 4,
    "mamba_dt_rank": 16,
}
_SPARSE = {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 64}
# By name: the configuration's class, its settings, and the class that it names.
MODELS: dict[str, tuple[str, dict[str, Any], str]] = {
    "llama": ("LlamaConfig", _SMALL, "LlamaForCausalLM"),
    "llama with biases": (
        "LlamaConfig",
        {**_SMALL, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
        "LlamaForCausalLM",
    ),
    "mixtral": ("MixtralConfig", {**_SMALL, "num_local_experts": 4}, "MixtralForCausalLM"),
    "deepseek": ("DeepseekV3Config", {**_SMALL, **_LATENT}, "DeepseekV3ForCausalLM"),
    "gpt-oss": ("GptOssConfig", {**_SMALL, **_SPARSE}, "GptOssForCausalLM"),
    "gpt2": ("GPT2Config", {**_GPT2, "bos_token_id": 0, "eos_token_id": 1}, "GPT2LMHeadModel"),
    "gpt-neox": ("GPTNeoXConfig", _NEOX, "GPTNeoXForCausalLM"),
    "phi3": ("Phi3Config", _SMALL, "Phi3ForCausalLM"),
    "mamba2": ("Mamba2Config", {**_NEOX, **_STATE}, "Mamba2ForCausalLM"),
    "jamba": ("JambaConfig", {**_SMALL, **_MIXED}, "JambaForCausalLM"),
    "olmo2": ("Olmo2Config", _SMALL, "Olmo2ForCausalLM"),  # vLLM has no class for it, and takes transformers'
}
QUANTIZED = {
    "awq": {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm"},
    "gptq": {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False, "sym": True},
    "fp8": {"quant_method": "fp8", "activation_scheme": "dynamic"},
}
# A model, how many ranks there are, which one is built, and how its weights are packed.
CASES: tuple[tuple[str, int, int, str | None], ...] = (
    *((name, 1, 0, None) for name in MODELS),
    *((name, 2, 1, None) for name in ("llama", "deepseek", "jamba", "olmo2")),
    *((name, 8, 3, None) for name in ("llama", "mixtral", "mamba2")),
    *(("llama", 1, 0, method) for method in QUANTIZED),
    ("llama", 2, 1, "awq"),
    ("mixtral", 1, 0, "fp8"),
)


def found(comparison: Any) -> dict[str, Any]:
    """What tests look at."""
    return {
        "same": comparison.same,
        "reconciled": comparison.reconciled,
        "codes": dict(comparison.codes),
        "lone": [side.tensors - side.matched for side in (comparison.a, comparison.b)],
        "terms": [[term.code, term.params, list(term.tensors_b)] for term in comparison.reconciliation],
        "joined": [
            [list(each.a), list(each.b)]
            for pair in comparison.pairs
            if pair.matched == "joined"
            for each in pair.tensors
        ],
        "texts": sorted({each.text for pair in comparison.pairs for each in pair.deviations}),
    }


def built(folder: str) -> Iterator[dict[str, Any]]:
    """Each case, with what torch counts in both."""
    import modelglass as mg
    from modelglass.frameworks.vllm.meta.builder import Builder
    from modelglass.frameworks.vllm.meta.rank_report import read_with_engine

    # All of them first: where vLLM takes a class of transformers, it makes it its own.
    originals = {name: original(name) for name in MODELS}
    for number, (name, ranks, rank, method) in enumerate(CASES):
        home = Path(folder) / str(number)
        saved(originals[name].config, home, method)
        serving = mg.Serving(tensor_parallel=ranks, rank=rank)
        report, held = Builder(str(home), serving).build(
            rank,
            ranks,
            lambda native, config: (read_with_engine(native, config, serving, "0"), counted(native)),  # noqa: B023
        )
        case = {"model": name, "ranks": ranks, "rank": rank, "method": method}
        yield {
            **case,
            **found(mg.compare_structure(originals[name], report)),
            "turned": found(mg.compare_structure(report, originals[name])),
            "truth": [counted(originals[name]), held],
        }


def original(name: str) -> Any:
    """The model as transformers builds it, without weights."""
    import torch
    import transformers

    kind, settings, architecture = MODELS[name]
    config = getattr(transformers, kind)(**settings, architectures=[architecture], dtype="bfloat16")
    with torch.device("meta"):
        return getattr(transformers, architecture)(config)


def saved(config: Any, home: Path, method: str | None) -> None:
    """Write a configuration, be it of packed weights."""
    config.save_pretrained(home)
    if method is not None:
        file = home / "config.json"
        content = json.loads(file.read_text())
        file.write_text(json.dumps({**content, "quantization_config": QUANTIZED[method]}))


def counted(native: Any) -> int:
    return sum(parameter.numel() for parameter in native.parameters())


def live(folder: str) -> dict[str, Any]:
    """A checkpoint, and the model that transformers loads, beside an engine that runs."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    import torch
    from scenarios import start, stop
    from transformers import AutoConfig, AutoModelForCausalLM

    import modelglass as mg

    llm = start(folder)
    with torch.device("meta"):
        original = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
    result = {
        "checkpoint": found(mg.compare_structure(folder, llm)),
        "model": found(mg.compare_structure(original, llm)),
    }
    stop(llm)
    return result


if __name__ == "__main__":
    what, where, target = sys.argv[1:]
    answer: Any = list(built(where)) if what == "built" else live(where)
    Path(target).write_text(json.dumps(answer))
    os._exit(0)
