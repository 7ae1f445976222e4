"""How long an inspection of an MLX model takes, beside building it and its plain lazy forward, in one run.

    python benchmarks/mlx_speed.py                              # all of it, about a minute
    python benchmarks/mlx_speed.py --quick                      # fewer rounds
    python benchmarks/mlx_speed.py -o docs/benchmarks-mlx.md    # as a page

Only ratios mean something: each line's contestants take turns on the same machine, and the ratio is that of
their medians. Each case runs in a process of its own, so that added memory is its own too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

from side_by_side import (
    Contestants,
    Figures,
    forget_peak,
    in_own_process,
    peak_mib,
    take_turns,
    versions,
    write_page,
)

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["MLX_DISABLE_COMPILE"] = "1"  # nothing is evaluated, so nothing needs a compiler

TOKENS = 2048


def llama() -> Any:
    from mlx_lm.models import llama

    return llama.Model(
        llama.ModelArgs(
            model_type="llama",
            hidden_size=8192,
            num_hidden_layers=80,
            intermediate_size=28_672,
            num_attention_heads=64,
            num_key_value_heads=8,
            rms_norm_eps=1e-5,
            vocab_size=128_256,
            tie_word_embeddings=False,
        )
    )


def packed_llama() -> Any:
    from mlx import nn

    model = llama()
    nn.quantize(model, group_size=64, bits=4)
    return model


def mixtral() -> Any:
    from mlx_lm.models import mixtral

    return mixtral.Model(
        mixtral.ModelArgs(
            model_type="mixtral",
            vocab_size=32_768,
            hidden_size=6144,
            intermediate_size=16_384,
            num_hidden_layers=56,
            num_attention_heads=48,
            num_key_value_heads=8,
            num_local_experts=8,
            num_experts_per_tok=2,
        )
    )


def deepseek() -> Any:
    from mlx_lm.models import deepseek_v3

    return deepseek_v3.Model(
        deepseek_v3.ModelArgs(
            vocab_size=129_280,
            hidden_size=7168,
            intermediate_size=18_432,
            moe_intermediate_size=2048,
            num_hidden_layers=61,
            num_attention_heads=128,
            num_key_value_heads=128,
            n_shared_experts=1,
            n_routed_experts=256,
            routed_scaling_factor=2.5,
            kv_lora_rank=512,
            q_lora_rank=1536,
            qk_rope_head_dim=64,
            v_head_dim=128,
            qk_nope_head_dim=128,
            n_group=8,
            topk_group=4,
            num_experts_per_tok=8,
            moe_layer_freq=1,
            first_k_dense_replace=3,
        )
    )


def encoder() -> Any:
    from mlx import nn

    return nn.TransformerEncoder(80, 8192, 64, 28_672)


def tokens() -> tuple[Any, ...]:
    import mlx.core as mx

    return (mx.zeros((1, TOKENS), dtype=mx.int32),)


def features() -> tuple[Any, ...]:
    import mlx.core as mx

    return mx.zeros((1, TOKENS, 8192)), None


CASES: dict[str, tuple[Callable[[], Any], Callable[[], tuple[Any, ...]]]] = {
    "Llama 70B": (llama, tokens),
    "Llama 70B, 4 bits": (packed_llama, tokens),
    "Mixtral 8x22B": (mixtral, tokens),
    "DeepSeek-V3 671B": (deepseek, tokens),
    "nn.TransformerEncoder, 59 B": (encoder, features),
}


def measure(case: str, rounds: int) -> tuple[Figures, int]:
    """Seconds and added memory of each contestant, and how many parameters the model has."""
    import modelglass as mg

    build, make_inputs = CASES[case]
    model, inputs = build(), make_inputs()
    contestants: Contestants = {
        "building it": build,
        "its lazy forward": lambda: model(*inputs),
        "modelglass": lambda: mg.inspect(model, inputs=inputs),
    }
    mg.inspect(model)  # what an inspection imports is imported
    added: dict[str, float] = {}
    for name, run in contestants.items():
        before = forget_peak()
        kept = run()
        added[name] = peak_mib() - before
        del kept
    counts = mg.inspect(model).counts
    return (take_turns(contestants, rounds), added), counts.logical_params if counts else 0


def page(rounds: int) -> Iterator[str]:
    """The results as Markdown, a line at a time."""
    yield "# Benchmarks of MLX"
    yield ""
    yield f"Printed by `make bench` with {versions('mlx', 'mlx-lm')}."
    yield f"Each ratio is of medians over {rounds} rounds in which the contestants take turns; absolute times"
    yield "mean little on a busy machine."
    yield ""
    yield f"modelglass finds structure, calls, operators, counts, cost and memory of a pass over {TOKENS:,}"
    yield "tokens. Nothing is evaluated, by any of the contestants: a lazy forward only writes down what"
    yield "would be computed."
    yield ""
    yield "| model | parameters | beside | its seconds | modelglass takes | peak memory modelglass added |"
    yield "|---|---:|---|---:|---:|---:|"
    for case in CASES:
        (seconds, added), params = in_own_process(measure, case, rounds)
        ours = seconds.pop("modelglass")
        for name, value in seconds.items():
            taken = f"{ours:.2f} s, {ours / value:.1f} x"
            memory = f"{added['modelglass']:.0f} MiB"
            yield f"| {case} | {params:,} | {name} | {value:.3f} | {taken} | {memory} |"
    yield ""
    yield "Added memory is the growth of the process's peak by the first inspection with inputs, the report"
    yield "that it makes included."


if __name__ == "__main__":
    write_page(page, __doc__)
