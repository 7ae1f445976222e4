"""What is seen of a rank that vLLM built on meta, as a report of plain data."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from torch import nn

from modelglass.frameworks.vllm.engine.cache import describe_cache, find_specs, fit_cache
from modelglass.frameworks.vllm.engine.components import components
from modelglass.frameworks.vllm.structure.modules import read as reading_of
from modelglass.frameworks.vllm.structure.tensors import UNCLEAR
from modelglass.report import (
    Component,
    Engine,
    Model,
    Note,
    PagedCache,
    Report,
    Serving,
    Shape,
    Shard,
    Tensor,
)

# Settings of this build, which do not describe an engine.
_OURS = frozenset(
    {
        *("allow_deprecated_quantization", "skip_tokenizer_init", "enforce_eager", "compilation"),
        *("cuda_graphs", "executor", "distributed_executor_backend"),
    }
)


def read(native: nn.Module, version: str) -> Report:
    """The modules of a rank, and how its tensors relate to those of the whole model."""
    reading = reading_of(native)
    engine = Engine(version=version, reached="meta", shards=reading.shards)
    return Report(model=reading.model, engine=engine, notes=reading.notes)


def read_with_engine(native: nn.Module, vllm_config: Any, serving: Serving, version: str) -> Report:
    """The same with what the engine would be that the rank belongs to."""
    report = read(native, version)
    cache, notes = _cache(vllm_config, serving, weight_nbytes(report.model))
    engine = Engine(
        version=version,
        reached="meta",
        rank=serving.rank,
        tensor_parallel=serving.tensor_parallel,
        expert_parallel=bool(vllm_config.parallel_config.enable_expert_parallel),
        shards={} if report.engine is None else report.engine.shards,
        cache=cache,
        components=tuple(_of_an_engine(components(vllm_config))),
    )
    return replace(report, engine=engine, notes=(*report.notes, *_on_load(native), *notes))


def _of_an_engine(parts: Iterable[Component]) -> Iterator[Component]:
    """The parts without what is so only because nothing is loaded and run here."""
    for part in parts:
        if part.name != "load":
            settings = {key: value for key, value in part.settings.items() if key not in _OURS}
            yield replace(part, settings=settings)


def _on_load(native: nn.Module) -> tuple[Note, ...]:
    """Of weights that vLLM quantizes while it loads them, which nobody does here."""
    methods = (type(getattr(module, "quant_method", None)) for module in native.modules())
    if not any(".online." in method.__module__ for method in methods):
        return ()
    text = (
        "vLLM quantizes these weights while it loads them; types and bytes are those before that: "
        "an engine takes less memory for them afterwards, and keeps more tokens"
    )
    return (Note(code="quantized-on-load", severity="warning", text=text),)


def weight_nbytes(model: Model) -> int:
    """Bytes of all weights, as stored, with the scales and zero points of packed ones; each memory once."""
    own = {tensor.storage: tensor for tensor in reversed(model.tensors) if tensor.kind != "buffer"}
    sides = (tensor.packing.side_nbytes for tensor in own.values() if tensor.packing is not None)
    return sum(tensor.nbytes or 0 for tensor in own.values()) + sum(sides)


def _cache(vllm_config: Any, serving: Serving, weights: int) -> tuple[PagedCache | None, tuple[Note, ...]]:
    from vllm.platforms import current_platform

    try:
        current_platform.update_block_size_for_backend(vllm_config)  # as a worker does with a loaded model
        specs = find_specs(vllm_config)
        cache = describe_cache(vllm_config, specs)
        if cache is None or serving.device_nbytes is None:
            return cache, ()
        return fit_cache(
            cache, vllm_config, specs, device_nbytes=serving.device_nbytes, weight_nbytes=weights
        )
    except Exception as problem:
        text = f"vLLM does not report what it would cache for each token: {type(problem).__name__}: {problem}"
        return None, (Note(code="cache-unknown", severity="warning", text=text[:400]),)


def correct_shards(rank: Report, whole: Report) -> Report:
    """The rank with the whole shapes of its tensors from the whole model; a note lists differences."""
    if rank.engine is None or whole.engine is None:
        return rank
    shards, places, details = dict(rank.engine.shards), [], []
    there = {tensor.name: _whole_shape(tensor, whole.engine.shards) for tensor in whole.model.tensors}
    for tensor in rank.model.tensors:
        described, is_so = _whole_shape(tensor, shards), there.get(tensor.name)
        if described is None or is_so is None or described == is_so:
            continue
        shards[tensor.name] = _shard(tensor, shards.get(tensor.name), is_so)
        if tensor.kind == "buffer":  # scales and the like, which layers do not describe
            continue
        places.append(tensor.name)
        details.append(f"{_dims(described)} by its layer, {_dims(is_so)} in one rank alone")
    notes = tuple(_drop_resolved(rank.notes, there))
    if places:
        notes = (*notes, _note_correction(tuple(places), tuple(details)))
    return replace(rank, engine=replace(rank.engine, shards=shards), notes=notes)


def _drop_resolved(notes: Iterable[Note], known: Collection[str]) -> Iterator[Note]:
    """The notes without those on tensors whose whole shape was unknown and is known now."""
    for note in notes:
        where = tuple(place for place in note.where if note.code != UNCLEAR or place not in known)
        if where or not note.where:
            yield note if where == note.where else replace(note, where=where)


def _note_correction(places: tuple[str, ...], details: tuple[str, ...]) -> Note:
    return Note(
        code="shard-corrected",
        text="the shapes that layers report for the whole model differ from those of a single rank; the "
        "latter are used",
        where=places,
        details=details,
    )


def _whole_shape(tensor: Tensor, shards: Mapping[str, Shard]) -> Shape | None:
    """In logical elements, without padding."""
    shard = shards.get(tensor.name)
    if shard is not None:
        return shard.whole
    return tensor.shape if tensor.packing is None else tensor.packing.logical_shape


def _shard(tensor: Tensor, shard: Shard | None, whole: Shape) -> Shard:
    if shard is not None:
        return replace(shard, whole=whole)
    held = _whole_shape(tensor, {}) or ()
    differing = [dim for dim, (a, b) in enumerate(zip(held, whole, strict=False)) if a != b]
    is_divided = len(held) == len(whole) and len(differing) == 1
    return Shard(whole=whole, dim=differing[0] if is_divided else None)


def _dims(shape: Shape) -> str:
    return "x".join(map(str, shape)) or "scalar"
