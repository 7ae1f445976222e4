"""The cache of an engine for each token, from the specifications of vLLM's own layers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from math import ceil
from typing import Any

from modelglass.report import CacheGroup, Note, PagedCache

# Of the kinds of layers, those that keep as much at any length: states, and what an encoder gave.
_OF_ONE_SIZE = ("MambaSpec", "CrossAttentionSpec", "CircularBufferSpec")


def find_specs(vllm_config: Any) -> dict[str, Any]:
    """The cache specification of each layer, by the layer's name; layers that read another's are left out."""
    found = {}
    for name, layer in vllm_config.compilation_config.static_forward_context.items():
        asks = getattr(layer, "get_kv_cache_spec", None)
        if asks is None or getattr(layer, "kv_sharing_target_layer_name", None):
            continue
        spec = asks(vllm_config)
        if spec is not None:
            found[name] = _as_backend_keeps(layer, spec)
    return found


def describe_cache(vllm_config: Any, specs: Mapping[str, Any]) -> PagedCache | None:
    """What is kept of each token, on one rank; None: the model keeps nothing."""
    return _cache(vllm_config, tuple(specs.values()))


def describe_live_cache(vllm_config: Any, kv_cache_config: Any) -> PagedCache | None:
    """The cache of a running engine or worker, `kv_cache_config` as vLLM made it; None: it was not made."""
    if kv_cache_config is None:
        return describe_cache(vllm_config, find_specs(vllm_config))
    cache = _cache(vllm_config, tuple(_layers_of(kv_cache_config.kv_cache_groups)))
    return None if cache is None else _with_blocks(cache, vllm_config, kv_cache_config)


def fit_cache(
    cache: PagedCache, vllm_config: Any, specs: Mapping[str, Any], *, device_nbytes: int, weight_nbytes: int
) -> tuple[PagedCache, tuple[Note, ...]]:
    """The cache with as many blocks as vLLM would make where weights leave so much of a device."""
    share = float(vllm_config.cache_config.gpu_memory_utilization)
    free = int(device_nbytes * share) - weight_nbytes
    asked = replace(cache, device_nbytes=device_nbytes, utilization=share, free_nbytes=free)
    if free <= 0:
        return replace(asked, blocks=0, tokens=0, nbytes=0, sequences=0.0), (_no_room(asked, weight_nbytes),)
    refusal, made = _configure_cache(vllm_config, specs, free)
    if made.num_blocks < 1:
        return replace(asked, blocks=0, tokens=0, nbytes=0, sequences=0.0), (_no_block(asked),)
    fit = _with_blocks(asked, vllm_config, made)
    notes = (_estimate(fit, vllm_config),)
    return fit, notes if refusal is None else (*notes, _too_long(fit, refusal))


def _as_backend_keeps(layer: Any, spec: Any) -> Any:
    """What the layer's kernels make of it: some of them pack."""
    try:
        from vllm.v1.kv_cache_interface import AttentionSpec
        from vllm.v1.worker.utils import customize_attention_spec
    except ImportError:  # another version's layers describe it fully
        return spec
    return (
        customize_attention_spec(layer.get_attn_backend(), spec) if isinstance(spec, AttentionSpec) else spec
    )


def _layers_of(groups: Iterable[Any]) -> Iterator[Any]:
    """What each layer of vLLM's groups keeps."""
    for group in groups:
        own = getattr(group.kv_cache_spec, "kv_cache_specs", None)  # where layers of a group differ
        for name in group.layer_names:
            yield group.kv_cache_spec if own is None else own[name]


def _cache(vllm_config: Any, layers: tuple[Any, ...]) -> PagedCache | None:
    if not layers:
        return None
    growing = [spec for spec in layers if _is_growing(spec)]
    states = [spec for spec in layers if not _is_growing(spec)]
    config = vllm_config.cache_config
    return PagedCache(
        dtype=_dtype(config, (growing or states)[0]),
        block_size=int(min(spec.block_size for spec in growing or states)),
        nbytes_per_token=ceil(sum(Fraction(_page_nbytes(spec), spec.block_size) for spec in growing)),
        state_nbytes=sum(_state_nbytes(spec, vllm_config) for spec in states),
        groups=_groups(layers),
        max_model_len=vllm_config.model_config.max_model_len,
    )


def _is_growing(spec: Any) -> bool:
    return not any(cls.__name__ in _OF_ONE_SIZE for cls in type(spec).__mro__)


def _page_nbytes(spec: Any) -> int:
    """Bytes of a block of one layer, without what fills it up to the size of others."""
    return int(getattr(spec, "real_page_size_bytes", spec.page_size_bytes))


def _state_nbytes(spec: Any, vllm_config: Any) -> int:
    if hasattr(spec, "shapes"):
        return int(spec.page_size_bytes)
    return int(spec.max_memory_usage_bytes(vllm_config))


def _dtype(config: Any, spec: Any) -> str:
    """As the user or the engine named it, else as the layers have it."""
    named = getattr(config, "cache_dtype", "auto")
    own = getattr(spec, "dtype", None) or next(iter(getattr(spec, "dtypes", ())), None)
    return str(own).rpartition(".")[2] if named == "auto" or not _is_growing(spec) else str(named)


def _groups(layers: tuple[Any, ...]) -> tuple[CacheGroup, ...]:
    alike: dict[CacheGroup, int] = {}
    for spec in layers:
        one = CacheGroup(
            kind=type(spec).__name__,
            layers=1,
            block_size=int(spec.block_size),
            block_nbytes=int(spec.page_size_bytes),
            window=_window(spec),
            grows=_is_growing(spec),
        )
        alike[one] = alike.get(one, 0) + 1
    return tuple(replace(one, layers=count) for one, count in alike.items())


def _window(spec: Any) -> int | None:
    sizes = (getattr(spec, name, None) for name in ("sliding_window", "attention_chunk_size"))
    return next((int(size) for size in sizes if size is not None), None)


def _with_blocks(cache: PagedCache, vllm_config: Any, made: Any) -> PagedCache:
    """The cache with the blocks that vLLM made, or would."""
    from vllm.v1.core.kv_cache_utils import get_kv_cache_capacity

    tokens, sequences = get_kv_cache_capacity(vllm_config, made)
    # Tensors of layers lie in one piece of memory, whose size each of them has.
    nbytes = max((int(tensor.size) for tensor in made.kv_cache_tensors), default=0)
    return replace(
        cache, blocks=int(made.num_blocks), tokens=int(tokens), nbytes=nbytes, sequences=float(sequences)
    )


def _configure_cache(vllm_config: Any, specs: Mapping[str, Any], free: int) -> tuple[str | None, Any]:
    """The cache that vLLM would make of so many bytes, and why it would not start with it, if so."""
    from vllm.v1.core import kv_cache_utils
    from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs

    register_all_kvcache_specs(vllm_config)
    _choose_layout(vllm_config, specs)
    try:
        return None, kv_cache_utils.get_kv_cache_configs(vllm_config, [dict(specs)], [free])[0]
    except ValueError as refusal:
        groups = kv_cache_utils.get_kv_cache_groups(vllm_config, dict(specs))
        return str(refusal), kv_cache_utils.get_kv_cache_config_from_groups(vllm_config, groups, free)


def _choose_layout(vllm_config: Any, specs: Mapping[str, Any]) -> None:
    """Let vLLM choose in which order it keeps things, which it does before it counts blocks."""
    from vllm.distributed.kv_transfer.kv_connector.utils import get_current_attn_backends
    from vllm.v1.attention.backends import utils

    layouts = utils.get_supported_kv_cache_layouts(get_current_attn_backends(vllm_config))
    utils.resolve_kv_cache_layout(vllm_config, [[layout.name for layout in layouts]], list(specs.values()))


def _no_room(cache: PagedCache, weight_nbytes: int) -> Note:
    free, device = cache.free_nbytes or 0, cache.device_nbytes or 0
    share = f"{cache.utilization:g} of a device of {device:,} bytes is {free + weight_nbytes:,}"
    return Note(
        code="does-not-fit",
        severity="warning",
        text=f"the weights of this rank take {weight_nbytes:,} bytes, and {share}: {-free:,} more bytes "
        "are needed for the cache",
    )


def _no_block(cache: PagedCache) -> Note:
    return Note(
        code="does-not-fit",
        severity="warning",
        text=f"weights leave {cache.free_nbytes:,} bytes of the device, which is less than one block of "
        f"{cache.block_size} tokens takes",
    )


def _too_long(cache: PagedCache, refusal: str) -> Note:
    length = re.search(r"maximum model length is (\d+)", refusal)
    advice = f"the longest that fits is {int(length[1]):,}" if length else "a lower max_model_len may fit"
    return Note(
        code="does-not-fit",
        severity="warning",
        text=f"one sequence of {cache.max_model_len or 0:,} tokens does not fit into {cache.nbytes or 0:,} "
        f"bytes, and vLLM would not start: {advice}",
    )


def _estimate(cache: PagedCache, vllm_config: Any) -> Note:
    device = getattr(getattr(vllm_config, "device_config", None), "device_type", None) or "this device"
    sizes = sorted({group.block_size for group in cache.groups if group.grows})
    blocks = (
        f"; blocks of {' and '.join(map(str, sizes))} tokens, as vLLM makes them on {device}" if sizes else ""
    )
    return Note(
        code="cache-estimate",
        text="the tokens that fit are an upper bound: activations, captured graphs and libraries also take "
        f"device memory{blocks}",
    )
