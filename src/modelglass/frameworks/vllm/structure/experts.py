"""Routed experts of vLLM: all of a layer's in two tensors, which ranks divide by experts or within each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from modelglass.frameworks.vllm.structure.stored_tensor import StoredTensor, describe_shard, find_integer
from modelglass.report import Piece

FIRST, SECOND = "w13_", "w2_"  # how the tensors of both projections begin


def is_experts(layer: nn.Module) -> bool:
    """Whether this holds the weights of experts."""
    return (
        find_integer(layer, "local_num_experts") is not None
        and getattr(layer, "moe_config", None) is not None
    )


def experts(layer: nn.Module) -> Mapping[str, StoredTensor]:
    """The weights and biases of both projections, by the names they have when they are not quantized."""
    config: Any = layer.moe_config
    attributes: Any = layer
    held = attributes.local_num_experts
    logical = find_integer(config, "num_logical_experts") or find_integer(config, "num_experts") or held
    total = find_integer(config, "num_experts") or held
    hidden, held_hidden = _hidden(layer)
    inner, held_inner, real_inner = _inner(layer)
    gated = find_integer(config, "w13_num_shards") or (2 if getattr(config, "is_act_and_mul", True) else 1)
    names = (
        getattr(layer, "ckpt_gate_proj_name", None),
        getattr(layer, "ckpt_up_proj_name", None),
    )
    pieces = [Piece(name=name, size=inner, held=held_inner) for name in names[:gated]]
    by_expert = 0 if held != total else None
    within = held_inner != inner and real_inner != inner
    return {
        "w13_weight": describe_shard(
            (held, gated * held_inner, held_hidden),
            (logical, gated * inner, hidden),
            1 if within else by_expert,
            pieces=pieces,
            pieces_dim=1,
            padding=held * gated * (held_inner * held_hidden - real_inner * hidden),
        ),
        "w13_bias": describe_shard(
            (held, gated * held_inner),
            (logical, gated * inner),
            1 if within else by_expert,
            pieces=pieces,
            pieces_dim=1,
            padding=held * gated * (held_inner - real_inner),
        ),
        "w2_weight": describe_shard(
            (held, held_hidden, held_inner),
            (logical, hidden, inner),
            2 if within else by_expert,
            padding=held * (held_hidden * held_inner - hidden * real_inner),
        ),
        "w2_bias": describe_shard(
            (held, held_hidden), (logical, hidden), by_expert, padding=held * (held_hidden - hidden)
        ),
    }


def spare(layer: nn.Module) -> tuple[str, ...]:
    """Biases that a method of quantization makes room for although the experts have none."""
    config: Any = layer.moe_config
    return () if getattr(config, "has_bias", True) else (FIRST + "bias", SECOND + "bias")


def _hidden(layer: nn.Module) -> tuple[int, int]:
    """The width of the model, and as this layer has it."""
    config: Any = layer.moe_config
    held = find_integer(layer, "hidden_size") or find_integer(config, "hidden_dim") or 0
    return find_integer(config, "hidden_dim_unpadded") or held, held


def _inner(layer: nn.Module) -> tuple[int, int, int]:
    """The width within an expert: of the whole, as this layer has it, and how much of that is not padding."""
    config: Any = layer.moe_config
    parallel: Any = getattr(config, "moe_parallel_config", None)
    ranks, rank = find_integer(parallel, "tp_size") or 1, find_integer(parallel, "tp_rank") or 0
    held = (
        find_integer(layer, "intermediate_size_per_partition")
        or find_integer(config, "intermediate_size_per_partition")
        or 0
    )
    whole = find_integer(config, "intermediate_size") or held * ranks
    if getattr(config, "tp_shard_with_padding", False) is True:
        return whole, held, max(0, min(held, whole - rank * held))
    return whole, held, min(held, whole // ranks)
