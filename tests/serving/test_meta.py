"""Ranks of large models, built by vLLM from their configurations alone, against arithmetic by hand."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from functools import cache
from math import ceil, prod
from pathlib import Path
from typing import Any

import pytest

from modelglass.analyses.serving import with_shares
from modelglass.errors import TargetError
from modelglass.frameworks.vllm.build import build_rank
from modelglass.report import Engine, Observation, PagedCache, Serving

GIB = 1 << 30
UTILIZATION = 0.92  # vLLM's own default
FP8_BLOCKS = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}
SMALL = {
    "vocab_size": 256,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 256,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama-70b": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 128256,
        "hidden_size": 8192,
        "intermediate_size": 28672,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "max_position_embeddings": 8192,
    },
    "mixtral-awq": {
        "architectures": ["MixtralForCausalLM"],
        "model_type": "mixtral",
        "vocab_size": 32000,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "num_local_experts": 8,
        "max_position_embeddings": 32768,
        "quantization_config": AWQ,
    },
    "deepseek-v3": {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "topk_method": "noaux_tc",
        "max_position_embeddings": 163840,
        "quantization_config": FP8_BLOCKS,
    },
    "gemma": {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "vocab_size": 262144,
        "hidden_size": 2304,
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "sliding_window": 4096,
        "max_position_embeddings": 131072,
    },
    "sees": {
        "architectures": ["LlavaForConditionalGeneration"],
        "model_type": "llava",
        "text_config": {"model_type": "llama", "num_hidden_layers": 2},
        "vision_config": {"model_type": "clip_vision_model", "num_hidden_layers": 3},
    },
    "rounded": {
        **SMALL,
        "architectures": ["MixtralForCausalLM"],
        "model_type": "mixtral",
        "num_local_experts": 4,
        "quantization_config": {
            "quant_method": "auto-round",
            "bits": 4,
            "group_size": 128,
            "sym": True,
            "packing_format": "auto_round:auto_gptq",
        },
    },
    "traced": {
        **SMALL,
        "architectures": ["PhimoeForCausalLM"],  # vLLM takes it from transformers
        "model_type": "phimoe",
        "num_local_experts": 4,
    },
    "judge": {**SMALL, "architectures": ["LlamaForSequenceClassification"], "model_type": "llama"},
    "unknown": {"architectures": ["NobodysForCausalLM"], "model_type": "llama"},
    "foreign": {
        "architectures": ["MineForCausalLM"],
        "model_type": "mine",
        "auto_map": {"AutoConfig": "mine.MineConfig", "AutoModelForCausalLM": "mine.MineForCausalLM"},
    },
}

Build = Callable[..., Observation]


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("configs")
    for name, config in CONFIGS.items():
        (place / name).mkdir()
        (place / name / "config.json").write_text(json.dumps({"dtype": "bfloat16", **config}))
    (place / "foreign" / "mine.py").write_text(f"open({str(place / 'ran')!r}, 'w')\n")
    return place


@pytest.fixture(scope="session")
def build(folders: Path) -> Build:
    """Ranks by name and settings, each built once."""

    @cache
    def made(name: str, **settings: Any) -> Observation:
        return build_rank(folders / name, Serving(**settings))

    return made


def engine_of(observation: Observation) -> Engine:
    assert observation.engine is not None
    return with_shares(observation.engine, observation.ranks, observation.whole)


def cache_of(observation: Observation) -> PagedCache:
    assert observation.engine is not None
    assert observation.engine.cache is not None
    return observation.engine.cache


def codes(observation: Observation) -> set[str]:
    return {note.code for note in observation.notes}


LLAMA = {"tensor_parallel": 8, "rank": 3, "device_nbytes": 80 * GIB}
MIXTRAL = {"tensor_parallel": 2, "rank": 1, "device_nbytes": 10 * GIB}
DEEPSEEK = {"tensor_parallel": 8, "expert_parallel": True, "device_nbytes": 141 * GIB}
GEMMA = {"device_nbytes": 6 * GIB, "block_size": 64, "kv_cache_dtype": "fp8"}


def llama_params(ranks: int) -> int:
    projections = 8192 * 8192 * 2 + 8192 * 1024 * 2 + 3 * 8192 * 28672
    return (2 * 128256 * 8192 + 80 * projections) // ranks + (80 * 2 + 1) * 8192


def test_llama_70b_has_the_parameters_of_arithmetic(build: Build) -> None:
    engine = engine_of(build("llama-70b", **LLAMA))
    assert engine.whole is not None
    assert (engine.whole.params, engine.whole.padding) == (70_553_706_496, 0)
    assert llama_params(1) == 70_553_706_496
    rank = engine.ranks[0]
    assert (rank.rank, rank.params, rank.padding) == (3, 8_820_367_360, 0)
    assert llama_params(8) == 8_820_367_360
    assert rank.weight_nbytes == 2 * rank.params


def test_layers_agree_with_one_rank_alone_about_the_whole(build: Build) -> None:
    for name, settings in (("llama-70b", LLAMA), ("mixtral-awq", MIXTRAL), ("deepseek-v3", DEEPSEEK)):
        found = build(name, **settings)
        assert "shard-corrected" not in codes(found), name
        assert found.whole is not None
        assert found.engine is not None
        for tensor in found.whole.model.tensors:
            shard = found.engine.shards.get(tensor.name)
            if shard is not None and tensor.kind != "buffer":
                assert prod(shard.whole) == tensor.logical_numel, tensor.name


def test_the_shards_of_a_fused_weight_are_those_of_its_parts(build: Build) -> None:
    engine = engine_of(build("llama-70b", **LLAMA))
    shard = engine.shards["model.layers.0.self_attn.qkv_proj.weight"]
    assert shard.whole == (10240, 8192)
    assert [(piece.name, piece.size, piece.held) for piece in shard.pieces] == [
        ("q_proj", 8192, 1024),
        ("k_proj", 1024, 128),
        ("v_proj", 1024, 128),
    ]


def test_tokens_that_fit_are_those_of_division(build: Build) -> None:
    cache = cache_of(build("llama-70b", **LLAMA))
    assert cache.nbytes_per_token == 2 * 80 * 1 * 128 * 2  # one of eight heads of keys and values
    assert cache.utilization == UTILIZATION
    free = int(80 * GIB * UTILIZATION) - 2 * 8_820_367_360
    assert cache.free_nbytes == free
    assert cache.blocks == free // (cache.nbytes_per_token * cache.block_size)
    assert cache.tokens == cache.blocks * cache.block_size
    assert cache.nbytes == cache.tokens * cache.nbytes_per_token
    assert cache.sequences == cache.tokens / 8192


def test_the_estimate_says_what_it_leaves_out(build: Build) -> None:
    found = build("llama-70b", **LLAMA)
    (note,) = (note for note in found.notes if note.code == "cache-estimate")
    assert "activations" in note.text
    assert f"blocks of {cache_of(found).block_size} tokens" in note.text


def awq_nbytes(rows: int, columns: int) -> int:
    """Four bits a weight; of each 128 in a column, two bytes of scale and four bits of zero point."""
    groups = columns // 128
    return rows * columns // 2 + groups * rows * 2 + groups * rows // 2


def mixtral_nbytes(ranks: int) -> int:
    attention = awq_nbytes(6144 // ranks, 4096) + awq_nbytes(4096, 4096 // ranks)
    expert = 2 * awq_nbytes(14336 // ranks, 4096) + awq_nbytes(4096, 14336 // ranks)
    plain = 2 * 32000 * 4096 // ranks + 32 * (2 + 8) * 4096 + 4096
    return 32 * (attention + 8 * expert) + 2 * plain


def test_packed_weights_have_the_bytes_of_their_formula(build: Build) -> None:
    engine = engine_of(build("mixtral-awq", **MIXTRAL))
    assert engine.whole is not None
    assert engine.whole.params == 46_702_792_704
    assert engine.whole.weight_nbytes == mixtral_nbytes(1)
    assert engine.ranks[0].params == 23_352_053_760
    assert engine.ranks[0].weight_nbytes == mixtral_nbytes(2)


def test_weights_that_do_not_fit_leave_no_token_and_say_what_is_missing(build: Build) -> None:
    found = build("mixtral-awq", **MIXTRAL)
    cache = cache_of(found)
    assert (cache.blocks, cache.tokens, cache.nbytes, cache.sequences) == (0, 0, 0, 0.0)
    missing = mixtral_nbytes(2) - int(10 * GIB * UTILIZATION)
    assert cache.free_nbytes == -missing
    (note,) = (note for note in found.notes if note.code == "does-not-fit")
    assert note.severity == "warning"
    assert f"{missing:,} more bytes" in note.text


def deepseek_linears() -> dict[str, list[tuple[int, int, int]]]:
    """How many of each shape are divided by tensors, divided by experts, or whole in each rank."""
    return {
        "tensor": [
            (61, 128 * 192, 1536),
            (61, 128 * 256, 512),
            (61, 7168, 128 * 128),
            (3 * 2, 18432, 7168),
            (3, 7168, 18432),
            (58 * 2, 2048, 7168),
            (58, 7168, 2048),
        ],
        "expert": [(58 * 256 * 2, 2048, 7168), (58 * 256, 7168, 2048)],
        "none": [(61, 1536, 7168), (61, 576, 7168)],
    }


def deepseek_nbytes() -> tuple[int, int]:
    """Parameters and bytes: of linear layers one each and four a block of 128 x 128, of the rest two."""
    linears = [each for shapes in deepseek_linears().values() for each in shapes]
    quantized = sum(count * rows * columns for count, rows, columns in linears)
    scales = sum(count * ceil(rows / 128) * ceil(columns / 128) for count, rows, columns in linears)
    plain = 2 * 129280 * 7168 + 61 * (1536 + 512 + 2 * 7168) + 7168 + 58 * 256 * 7168
    correction = 58 * 256  # in float32
    return quantized + plain + correction, quantized + 4 * scales + 2 * plain + 4 * correction


def test_deepseek_v3_in_blocks_of_fp8_is_built_without_its_kernels(build: Build) -> None:
    found = build("deepseek-v3", **DEEPSEEK)
    engine = engine_of(found)
    assert engine.whole is not None
    assert (engine.whole.params, engine.whole.weight_nbytes) == deepseek_nbytes()
    assert engine.whole.params == 671_026_419_200
    assert "kernels-missing" in codes(found)


def test_experts_are_divided_among_ranks(build: Build) -> None:
    engine = engine_of(build("deepseek-v3", **DEEPSEEK))
    divided = deepseek_linears()
    share = (
        sum(n * rows * columns for kind in ("tensor", "expert") for n, rows, columns in divided[kind]) // 8
    )
    kept = sum(n * rows * columns for n, rows, columns in divided["none"])
    plain = 2 * 129280 * 7168 // 8 + 61 * (1536 + 512 + 2 * 7168) + 7168 + 58 * (256 * 7168 + 256)
    assert engine.expert_parallel
    assert engine.ranks[0].params == share + kept + plain
    experts = next(name for name in engine.shards if name.endswith("routed_experts.w13_weight"))
    assert engine.shards[experts].whole == (256, 4096, 7168)


def test_every_rank_keeps_all_of_a_latent(build: Build) -> None:
    cache = cache_of(build("deepseek-v3", **DEEPSEEK))
    assert cache.nbytes_per_token == 61 * (512 + 64) * 2
    assert [group.kind for group in cache.groups] == ["MLAAttentionSpec"]


def test_windows_make_groups_of_their_own(build: Build) -> None:
    cache = cache_of(build("gemma", **GEMMA))
    assert [(group.layers, group.window) for group in cache.groups] == [(22, 4096), (4, None)]
    assert {group.block_size for group in cache.groups} == {64}
    assert cache.dtype == "fp8"
    assert cache.nbytes_per_token == 2 * 26 * 4 * 256  # a byte each


def test_a_sequence_that_does_not_fit_is_told(build: Build) -> None:
    found = build("gemma", **GEMMA)
    cache = cache_of(found)
    assert cache.sequences is not None
    assert 0 < cache.sequences < 1
    (note,) = (note for note in found.notes if note.code == "does-not-fit")
    assert "one sequence of 131,072 tokens does not fit" in note.text
    assert "the longest that fits is" in note.text


def test_a_model_that_sees_is_built_without_what_reads_images(build: Build) -> None:
    found = build("sees")
    types = {module.type for module in found.model.modules}
    assert {"LlavaForConditionalGeneration", "CLIPVisionModel", "LlamaModel"} <= types
    assert cache_of(found).groups[0].layers == 2


def test_experts_that_only_a_cpu_leaves_plain_are_quantized(build: Build) -> None:
    found = build("rounded")
    packings = [tensor.packing for tensor in found.model.tensors if "experts" in tensor.name]
    assert {packing.scheme for packing in packings if packing is not None} == {"gptq-4bit"}
    assert "kernels-missing" in codes(found)


def test_tracing_comes_to_an_end(build: Build) -> None:
    engine = engine_of(build("traced"))
    attention, experts, norm = 4 * 256 * 256, 4 * (3 * 256 * 512 + 256), 2 * 256
    assert engine.whole is not None
    assert engine.whole.params == 2 * 256 * 256 + 2 * (attention + experts + 2 * norm) + norm


def test_a_model_without_its_head_has_no_hole_in_its_place(build: Build) -> None:
    found = build("judge")
    engine = engine_of(found)
    assert engine.whole is not None
    layers = 2 * (4 * 256 * 256 + 3 * 256 * 512 + 2 * 256)
    assert (engine.whole.params, engine.whole.unknown) == (256 * 256 + layers + 256 + 2 * 256, 0)
    assert codes(found) == set()


@pytest.mark.parametrize(
    ("name", "settings", "problem"),
    [
        ("llama-70b", {"tensor_parallel": 3}, r"attention heads \(64\) must be divisible by tensor parallel"),
        ("unknown", {}, "has no architecture NobodysForCausalLM"),
        ("foreign", {}, "the code of MineForCausalLM is not in vLLM but in files of its own"),
    ],
    ids=["heads", "unknown", "foreign"],
)
def test_what_cannot_be_built_is_an_error_and_nothing_of_it_runs(
    name: str,
    settings: dict[str, Any],
    problem: str,
    folders: Path,
    build: Build,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(TargetError, match=problem):
        build(name, **settings)
    assert not (folders / "ran").exists()
    assert not list(tmp_path.iterdir())
