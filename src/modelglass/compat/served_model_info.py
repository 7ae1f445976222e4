"""`model_info` of an engine: what it is made of, what each rank holds, what it generates, and its modules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import NotRequired, TypedDict, cast

from modelglass.compat.layer_records import Layer, Layers, Memory, Totals, memory_of, shape_of, totals_of
from modelglass.page.sources import engine_name
from modelglass.renderers.records import Remark, remarks
from modelglass.report import Component, Engine, Json, Report, Share, Value

NAME = "vllm_model"  # where nobody names the model
LONGEST = 10_000  # characters of one text


class PromptInfo(TypedDict):
    """What the engine was asked: `sample_input` is the first of `inputs`."""

    type: str
    sample_input: str | None
    num_inputs: int
    inputs: list[str | None]
    input_tokens: list[int | None]


class GeneratedInfo(TypedDict):
    """What the engine made of it: `sample_output` is the first of `outputs`."""

    type: str
    sample_output: str | None
    num_outputs: int
    outputs: list[str | None]
    output_tokens: list[int | None]


ComponentInfo = TypedDict(
    "ComponentInfo",
    {
        "name": str,
        "type": str,
        "class": str,
        "description": str,
        "vocabulary_size": NotRequired[int],
        "settings": Mapping[str, Json],
    },
)
ComponentInfo.__doc__ = "A part of the engine: what it is, the class that it is of, and its settings."


class EngineLayer(TypedDict):
    """The engine itself, with the parameters of the whole model."""

    layer_index: int
    name: str
    type: str
    parameters: int | None
    description: str
    components: list[ComponentInfo]


class PieceInfo(TypedDict):
    """One of several weights that lie side by side in a fused one: rows of it in all, and in this rank."""

    name: str | None
    size: int
    held: int


class Partition(TypedDict):
    """What the rank holds of a tensor: `dim` is divided by ranks, `padding` are elements without meaning."""

    tensor: str
    shape: list[int] | None
    whole_shape: list[int]
    dim: int | None
    pieces: list[PieceInfo]
    padding: int


class ServedLayer(Layer):
    """One module as the listed rank holds it, and how its tensors were cut."""

    partitions: list[Partition]


class EngineInfo(TypedDict):
    """The engine, where its modules were read, and how the model is divided."""

    version: str
    reached: str
    rank: int
    tensor_parallel: int
    pipeline_parallel: int
    data_parallel: int
    expert_parallel: bool


class ShareInfo(TypedDict):
    """What a rank holds, or the whole model takes (rank null): weights and padding are what it counts."""

    rank: int | None
    parameters: int
    padding: int
    held: int
    weight_nbytes: int | None
    nbytes: int | None
    tensors_of_unknown_size: int


class CacheGroupInfo(TypedDict):
    """Layers that keep the same of each token."""

    kind: str
    layers: int
    block_size: int
    block_nbytes: int
    window: int | None
    grows: bool


class CacheInfo(TypedDict):
    """What is kept of each token, in blocks; bytes are those of one rank, null is what nothing tells."""

    dtype: str
    block_size: int
    nbytes_per_token: int
    state_nbytes: int
    groups: list[CacheGroupInfo]
    blocks: int | None
    tokens: int | None
    nbytes: int | None
    max_model_len: int | None
    sequences: float | None
    device_nbytes: int | None
    utilization: float | None
    free_nbytes: int | None


class ServedModelDocument(TypedDict):
    """A model that an engine serves. `totals`, `memory` and the modules among `layers` are of one rank."""

    framework: str
    model_name: str
    model_type: str
    parameters: int | None
    input_info: PromptInfo | None
    output_info: GeneratedInfo | None
    totals: Totals
    memory: Memory
    engine: EngineInfo
    ranks: list[ShareInfo]
    whole: ShareInfo | None
    kv_cache: CacheInfo | None
    layers: list[EngineLayer | ServedLayer]
    notes: list[Remark]


def described(report: Report, engine: Engine, model_name: str | None = None) -> ServedModelDocument:
    """The document of an engine's report."""
    name = NAME if model_name is None else model_name
    whole = engine.whole
    parameters = None if whole is None or whole.unknown else whole.params
    ran = report.run.mode != "none"
    return {
        "framework": report.model.source,
        "model_name": name,
        "model_type": engine_name(report.model.source),
        "parameters": parameters,
        "input_info": _prompts(report.run.inputs) if ran else None,
        "output_info": _generate(report.run.outputs) if ran else None,
        "totals": totals_of(report),
        "memory": memory_of(report),
        "engine": _engine(engine),
        "ranks": [_share(each) for each in engine.ranks],
        "whole": None if whole is None else _share(whole),
        "kv_cache": _cache(engine),
        "layers": [_first_layer(report, engine, name, parameters), *_modules(report, engine)],
        "notes": remarks(report),
    }


def _prompts(values: Sequence[Value]) -> PromptInfo:
    texts, tokens = _texts(values), _tokens(values)
    return {
        "type": "text_or_sampling_params",
        "sample_input": texts[0] if texts else None,
        "num_inputs": len(texts),
        "inputs": texts,
        "input_tokens": tokens,
    }


def _generate(values: Sequence[Value]) -> GeneratedInfo:
    texts, tokens = _texts(values), _tokens(values)
    return {
        "type": "generated_text",
        "sample_output": texts[0] if texts else None,
        "num_outputs": len(texts),
        "outputs": texts,
        "output_tokens": tokens,
    }


def _texts(values: Sequence[Value]) -> list[str | None]:
    return [None if value.text is None else _bounded(value.text) for value in values]


def _bounded(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def _tokens(values: Sequence[Value]) -> list[int | None]:
    return [value.shape[0] if value.shape else None for value in values]


def _engine(engine: Engine) -> EngineInfo:
    return {
        "version": engine.version,
        "reached": engine.reached,
        "rank": engine.rank,
        "tensor_parallel": engine.tensor_parallel,
        "pipeline_parallel": engine.pipeline_parallel,
        "data_parallel": engine.data_parallel,
        "expert_parallel": engine.expert_parallel,
    }


def _share(share: Share) -> ShareInfo:
    return {
        "rank": share.rank,
        "parameters": share.params,
        "padding": share.padding,
        "held": share.held,
        "weight_nbytes": share.weight_nbytes,
        "nbytes": share.nbytes,
        "tensors_of_unknown_size": share.unknown,
    }


def _cache(engine: Engine) -> CacheInfo | None:
    if engine.cache is None:
        return None
    found = asdict(engine.cache)
    return cast("CacheInfo", found | {"groups": list(found["groups"])})


def _first_layer(report: Report, engine: Engine, name: str, parameters: int | None) -> EngineLayer:
    server = engine_name(report.model.source)
    return {
        "layer_index": 0,
        "name": name,
        "type": server,
        "parameters": parameters,
        "description": f"{report.model.name} as {server} {engine.version} serves it",
        "components": [_component(each) for each in engine.components],
    }


def _component(part: Component) -> ComponentInfo:
    found: ComponentInfo = {
        "name": part.name,
        "type": part.name.replace("_", " ").title().replace(" ", ""),
        "class": part.type,
        "description": part.description,
        "settings": part.settings,
    }
    known = [part.settings.get(key) for key in ("length", "vocab_size")] if part.name == "tokenizer" else []
    sizes = [size for size in known if isinstance(size, int)]
    return {**found, "vocabulary_size": sizes[0]} if sizes else found


def _modules(report: Report, engine: Engine) -> Iterator[ServedLayer]:
    """Every module below the model itself, as the listed rank holds it."""
    layers = Layers(report)
    tensors = {tensor.name: tensor for tensor in report.model.tensors}
    for index, module in enumerate(report.model.modules[1:], start=1):
        partitions: list[Partition] = [
            {
                "tensor": name,
                "shape": shape_of(tensors[name]),
                "whole_shape": list(shard.whole),
                "dim": shard.dim,
                "pieces": [{"name": p.name, "size": p.size, "held": p.held} for p in shard.pieces],
                "padding": shard.padding,
            }
            for name in module.tensors
            if (shard := engine.shards.get(name)) is not None
        ]
        yield cast("ServedLayer", {**layers.layer(index, module), "partitions": partitions})
