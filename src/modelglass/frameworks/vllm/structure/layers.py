"""Linear layers and embeddings of vLLM: their shapes, from their attributes.

They are recognized by their attributes rather than by class, so that layers of models themselves and
of other versions are read the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import nn

from modelglass.frameworks.vllm.structure.loaders import find_spec
from modelglass.frameworks.vllm.structure.stored_tensor import (
    StoredTensor,
    describe_shard,
    find_integer,
    find_integers,
)
from modelglass.report import Piece

Names = Callable[[int], Sequence[str | None]]  # of that many pieces, as checkpoints call them


def is_embedding(layer: nn.Module) -> bool:
    """Whether this holds one row for each entry of a vocabulary, padding included."""
    wanted = ("num_embeddings", "num_embeddings_per_partition", "embedding_dim")
    return all(find_integer(layer, name) is not None for name in wanted)


def is_linear(layer: nn.Module) -> bool:
    """Whether this is a matrix that ranks may divide; all of vLLM's have a method of keeping it."""
    if not hasattr(layer, "quant_method"):
        return False
    return find_integer(layer, "input_size") is not None and _rank_outputs(layer) is not None


def embedding(layer: nn.Module) -> dict[str, StoredTensor]:
    """The weight and the bias of an embedding or a head."""
    attributes: Any = layer
    rows, width = attributes.num_embeddings_per_partition, attributes.embedding_dim
    whole = attributes.num_embeddings
    real = rows
    indices: Any = getattr(layer, "shard_indices", None)
    if indices is not None:
        real = indices.num_org_elements + indices.num_added_elements
    padded = rows - real
    dim = 0 if (find_integer(layer, "tp_size") or 1) > 1 else None
    return {
        "weight": describe_shard((rows, width), (whole, width), dim, padding=padded * width),
        "bias": describe_shard((rows,), (whole,), dim, padding=padded),
    }


def linear(layer: nn.Module, names: Names) -> dict[str, StoredTensor]:
    """The weight and the bias of a linear layer."""
    attributes: Any = layer
    held = _rank_outputs(layer) or []
    inputs = attributes.input_size
    held_inputs = find_integer(layer, "input_size_per_partition") or inputs
    sizes, missing = _whole_outputs(layer, held)
    pieces = [
        Piece(name=name, size=size, held=here)
        for name, size, here in zip(names(len(held)), sizes, held, strict=True)
    ]
    rows, whole_rows = sum(held), sum(sizes)
    dim = 0 if rows != whole_rows else None
    weight_dim = 1 if held_inputs != inputs else dim
    padding = missing * held_inputs
    return {
        "weight": describe_shard(
            (rows, held_inputs), (whole_rows, inputs), weight_dim, pieces=pieces, padding=padding
        ),
        "bias": describe_shard((rows,), (whole_rows,), dim, pieces=pieces, padding=missing),
    }


def _rank_outputs(layer: nn.Module) -> list[int] | None:
    """Rows of each piece in this rank."""
    held = find_integers(layer, "output_partition_sizes")
    if held:
        spec = _spec(layer)
        if spec is not None and sum(spec.held) == sum(held):
            return list(spec.held)
        return held
    one = find_integer(layer, "output_size_per_partition", "output_size")
    return None if one is None else [one]


def _whole_outputs(layer: nn.Module, held: list[int]) -> tuple[list[int], int]:
    """Rows of each piece in the whole model, and how many of the rows here stand for nothing."""
    spec = _spec(layer)
    if spec is not None and list(spec.held) == held:
        return list(spec.sizes), spec.missing
    heads = _heads(layer)
    if len(heads) == len(held):
        return heads, 0
    total = find_integer(layer, "output_size") or sum(held)
    times = total // sum(held) if sum(held) else 1
    sizes = [rows * times for rows in held]
    copied = find_integer(layer, "replicated_shard_id")  # a piece that every rank has all of
    if copied is not None and 0 <= copied < len(held):
        sizes[copied] = held[copied]
    return sizes, 0


def _heads(layer: nn.Module) -> list[int]:
    """Rows of queries, keys and values in the whole model; several ranks may hold the same key's."""
    queries, keys = find_integer(layer, "total_num_heads"), find_integer(layer, "total_num_kv_heads")
    width = find_integer(layer, "head_size")
    if queries is None or keys is None or width is None:
        return []
    rows = [queries * width, keys * width, keys * (find_integer(layer, "v_head_size") or width)]
    indexers, index_width = (
        find_integer(layer, "total_num_index_heads"),
        find_integer(layer, "index_head_size"),
    )
    if indexers is not None and index_width is not None:
        rows += [indexers * index_width, index_width]
    return rows


def _spec(layer: nn.Module) -> Any:
    """What a loader knows of the pieces that its layer does not."""
    for parameter in layer._parameters.values():
        spec = None if parameter is None else find_spec(parameter)
        if spec is not None:
            return spec
    return None
