"""Models as the ranks of an engine hold them: a Llama, cut and padded by vLLM's rules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from modelglass.report import (
    CacheGroup,
    Component,
    Engine,
    Model,
    Module,
    Note,
    Observation,
    Packing,
    PagedCache,
    Piece,
    RankModel,
    Run,
    Shard,
    Tensor,
    Value,
)

PADDED_TO = 64  # rows of an embedding


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """A Llama; the defaults are those of the tiny one."""

    hidden: int = 128
    inner: int = 128
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    head: int = 32
    vocabulary: int = 259
    dtype: str = "bfloat16"
    tied: bool = False
    quantized: bool = False
    emptied: bool = False


TINY = Sizes()
LLAMA_70B = Sizes(hidden=8192, inner=28672, layers=80, heads=64, kv_heads=8, head=128, vocabulary=128_256)


def held(sizes: Sizes = TINY, *, ranks: int = 1, rank: int = 0, stages: int = 1, stage: int = 0) -> RankModel:
    """What one rank of one stage holds."""
    builder = _Builder(sizes, ranks, rank, stages, stage)
    builder.build()
    model = Model(
        name="LlamaForCausalLM",
        source="vllm",
        modules=tuple(builder.modules),
        tensors=tuple(builder.tensors),
    )
    return RankModel(rank=stage * ranks + rank, model=model, shards=builder.shards)


def engine(**more: Any) -> Engine:
    return Engine(**{"version": "0.32.0", "reached": "meta", **more})


def cache(**more: Any) -> PagedCache:
    group = CacheGroup(kind="FullAttentionSpec", layers=80, block_size=16, block_nbytes=8192)
    defaults = {
        "dtype": "bfloat16",
        "block_size": 16,
        "nbytes_per_token": 40_960,
        "groups": (group,),
        "max_model_len": 8192,
    }
    return PagedCache(**{**defaults, **more})


COMPONENTS = (
    Component(
        name="tokenizer",
        type="LlamaTokenizerFast",
        description="turns text into tokens and back",
        settings={"vocab_size": 259, "mode": "auto"},
    ),
    Component(
        name="model_engine",
        type="LLMEngine",
        description="runs the model",
        settings={"dtype": "bfloat16", "quantization": None},
    ),
    Component(
        name="scheduler",
        type="Scheduler",
        description="decides which requests run next",
        settings={"max_num_seqs": 256, "max_num_batched_tokens": 8192, "policy": "fcfs"},
    ),
)


def observation(
    sizes: Sizes = TINY, *, ranks: int = 1, rank: int = 0, whole: bool = True, **more: Any
) -> Observation:
    """As an adapter or a build without an engine gives it: one rank, and the whole model beside it."""
    one = held(sizes, ranks=ranks, rank=rank)
    defaults: dict[str, Any] = {
        "model": one.model,
        "run": Run(mode="none"),
        "notes": (Note(code="vllm-meta", text="built without weights and without an engine"),),
        "engine": engine(rank=rank, tensor_parallel=ranks, cache=cache(), components=COMPONENTS),
        "ranks": (one,),
        "whole": held(sizes) if whole else None,
    }
    return Observation(**{**defaults, **more})


def generated(observed: Observation, *texts: str, prompt: str = "hello") -> Observation:
    """The same, after an engine has answered a prompt."""
    run = Run(
        mode="real",
        inputs=(Value(name="0", text=prompt),),
        outputs=tuple(Value(name=str(index), text=text) for index, text in enumerate(texts)),
    )
    return replace(observed, run=run)


class _Builder:
    def __init__(self, sizes: Sizes, ranks: int, rank: int, stages: int, stage: int) -> None:
        self.sizes, self.ranks, self.rank = sizes, ranks, rank
        self.first, self.last = stage == 0, stage == stages - 1
        share = sizes.layers // stages
        self.own = range(stage * share, (stage + 1) * share)
        self.modules: list[Module] = []
        self.tensors: list[Tensor] = []
        self.shards: dict[str, Shard] = {}

    def build(self) -> None:
        size = self.sizes
        blocks = [f"model.layers.{index}" for index in range(size.layers)]
        self.module("", "LlamaForCausalLM", children=("model", "lm_head"))
        self.module("model", "LlamaModel", children=("model.embed_tokens", "model.layers", "model.norm"))
        self.vocabulary("model.embed_tokens", "VocabParallelEmbedding", here=self.first)
        self.module("model.layers", "ModuleList", children=tuple(blocks))
        for index, path in enumerate(blocks):
            if index in self.own:
                self.block(path)
            else:
                self.module(path, "PPMissingLayer")
        self.norm("model.norm") if self.last else self.module("model.norm", "PPMissingLayer")
        self.vocabulary("lm_head", "ParallelLMHead", here=self.last, tied=size.tied)

    def block(self, path: str) -> None:
        size, inner = self.sizes, ("self_attn", "mlp", "input_layernorm", "post_attention_layernorm")
        self.module(path, "LlamaDecoderLayer", children=tuple(f"{path}.{name}" for name in inner))
        attention, mlp = f"{path}.self_attn", f"{path}.mlp"
        self.module(attention, "LlamaAttention", children=(f"{attention}.qkv_proj", f"{attention}.o_proj"))
        heads = (("q_proj", size.heads), ("k_proj", size.kv_heads), ("v_proj", size.kv_heads))
        pieces = tuple(
            Piece(name=name, size=count * size.head, held=max(1, count // self.ranks) * size.head)
            for name, count in heads
        )
        self.linear(f"{attention}.qkv_proj", "QKVParallelLinear", pieces, size.hidden)
        self.row_linear(f"{attention}.o_proj", size.hidden, size.heads * size.head)
        self.module(mlp, "LlamaMLP", children=(f"{mlp}.gate_up_proj", f"{mlp}.down_proj"))
        halves = tuple(
            Piece(name=name, size=size.inner, held=size.inner // self.ranks)
            for name in ("gate_proj", "up_proj")
        )
        self.linear(f"{mlp}.gate_up_proj", "MergedColumnParallelLinear", halves, size.hidden)
        self.row_linear(f"{mlp}.down_proj", size.hidden, size.inner)
        for name in inner[2:]:
            self.norm(f"{path}.{name}")

    def linear(self, path: str, kind: str, pieces: tuple[Piece, ...], inputs: int) -> None:
        whole = (sum(piece.size for piece in pieces), inputs)
        mine = (sum(piece.held for piece in pieces), inputs)
        self.weight(path, kind, mine, Shard(whole=whole, dim=0, pieces=pieces))

    def row_linear(self, path: str, outputs: int, inputs: int) -> None:
        shard = Shard(whole=(outputs, inputs), dim=1)
        self.weight(path, "RowParallelLinear", (outputs, inputs // self.ranks), shard)

    def norm(self, path: str) -> None:
        name = f"{path}.weight"
        self.module(path, "RMSNorm", tensors=(name,), config={"eps": 1e-05})
        self.tensor(name, (self.sizes.hidden,))

    def vocabulary(self, path: str, kind: str, *, here: bool, tied: bool = False) -> None:
        size, name = self.sizes, f"{path}.weight"
        if not here:
            self.module(path, "PPMissingLayer")
            return
        padded = -(-size.vocabulary // PADDED_TO) * PADDED_TO
        rows = padded // self.ranks
        real = max(0, min(rows, size.vocabulary - self.rank * rows))
        self.module(path, kind, tensors=(name,), config={"org_vocab_size": size.vocabulary})
        self.tensor(name, (rows, size.hidden), storage="model.embed_tokens.weight" if tied else name)
        self.shards[name] = Shard(
            whole=(size.vocabulary, size.hidden), dim=0, padding=(rows - real) * size.hidden
        )

    def weight(self, path: str, kind: str, shape: tuple[int, int], shard: Shard) -> None:
        name = f"{path}.weight"
        config = {"tp_size": self.ranks, "params_dtype": self.sizes.dtype}
        names = dict(self.stored(name, shape, shard))
        self.module(path, kind, tensors=tuple(names), config=config)
        self.shards |= names

    def stored(self, name: str, shape: tuple[int, int], shard: Shard) -> Iterator[tuple[str, Shard]]:
        """The tensors of a weight: itself, and of a quantized one a scale for each row."""
        if self.sizes.emptied:
            packing = Packing(scheme="onednn", logical_shape=shape, nbytes=2 * prod(shape))
            self.tensor(name, (0,), kind="packed", packing=packing)
        elif self.sizes.quantized:
            packing = Packing(scheme="fp8", logical_shape=shape, nbytes=prod(shape), side_nbytes=4 * shape[0])
            self.tensor(name, shape, dtype="float8_e4m3fn", packing=packing)
            self.tensor(f"{name}_scale", (shape[0], 1), dtype="float32", kind="buffer")
            rows = shard.dim if shard.dim == 0 else None
            yield f"{name}_scale", Shard(whole=(shard.whole[0], 1), dim=rows)
        else:
            self.tensor(name, shape)
        yield name, shard

    def module(self, path: str, kind: str, **more: Any) -> None:
        self.modules.append(Module(path=path, type=kind, qualified_type=f"vllm.{kind}", **more))

    def tensor(self, name: str, shape: tuple[int, ...], **more: Any) -> None:
        defaults = {"kind": "parameter", "dtype": self.sizes.dtype, "storage": name, "trainable": None}
        self.tensors.append(Tensor(name=name, shape=shape, device="meta", **{**defaults, **more}))
