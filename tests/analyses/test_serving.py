"""What ranks hold, and the whole they make up: against arithmetic on the configuration."""

from __future__ import annotations

from dataclasses import replace

import pytest

import build
import build_engine
from build_engine import LLAMA_70B, TINY, Sizes, held
from modelglass.analyses.counts import count
from modelglass.analyses.serving import share, unite_ranks, whole_model, with_shares
from modelglass.report import RankModel, Shard, Share


def weights(sizes: Sizes) -> int:
    """The parameters of a Llama."""
    attention = sizes.hidden * sizes.head * (2 * sizes.heads + 2 * sizes.kv_heads)
    layer = attention + 3 * sizes.hidden * sizes.inner + 2 * sizes.hidden
    tables = (1 if sizes.tied else 2) * sizes.vocabulary * sizes.hidden
    return sizes.layers * layer + tables + sizes.hidden


def whole_of(sizes: Sizes, *, ranks: int, stages: int = 1) -> Share | None:
    every = [
        held(sizes, ranks=ranks, rank=rank, stages=stages, stage=stage)
        for stage in range(stages)
        for rank in range(ranks)
    ]
    return with_shares(build_engine.engine(tensor_parallel=ranks, pipeline_parallel=stages), every).whole


def test_padding_is_apart_from_parameters() -> None:
    found = share(held().model, held().shards, 0)
    assert (found.params, found.padding, found.held) == (263_552, 2 * 61 * 128, 279_168)
    assert found.weight_nbytes == found.nbytes == 2 * 279_168


def test_one_rank_of_eight_and_the_whole_of_a_large_model() -> None:
    observed = build_engine.observation(LLAMA_70B, ranks=8, rank=3)
    assert observed.engine is not None
    engine = with_shares(observed.engine, observed.ranks, observed.whole)
    assert [(each.rank, each.params, each.padding) for each in engine.ranks] == [(3, 8_820_367_360, 0)]
    assert engine.whole is not None
    assert (engine.whole.rank, engine.whole.params) == (None, 70_553_706_496)
    assert engine.whole.params == weights(LLAMA_70B)
    assert engine.ranks[0].weight_nbytes == 2 * 8_820_367_360
    assert engine.shards["model.layers.0.self_attn.qkv_proj.weight"].whole == (10_240, 8192)


@pytest.mark.parametrize("tied", [False, True], ids=["two tables", "tied"])
@pytest.mark.parametrize(("ranks", "stages"), [(1, 1), (2, 1), (4, 1), (1, 2), (2, 2)])
def test_all_ranks_together_are_what_one_alone_would_hold(ranks: int, stages: int, tied: bool) -> None:
    sizes = replace(TINY, tied=tied and stages == 1)
    whole = whole_of(sizes, ranks=ranks, stages=stages)
    assert whole == share(held(sizes).model, held(sizes).shards, None)
    assert whole.params == weights(sizes)
    assert whole.padding == (1 if sizes.tied else 2) * 61 * 128


def test_copied_heads_count_once() -> None:
    """Four ranks share two heads of keys and values: each rank has one."""
    each = [held(TINY, ranks=4, rank=rank) for rank in range(4)]
    copied = 2 * 2 * 2 * TINY.head * TINY.hidden  # layers, keys and values, heads too many
    norms = (2 * TINY.layers + 1) * TINY.hidden * 3
    assert sum(share(one.model, one.shards, 0).params for one in each) == weights(TINY) + copied + norms
    assert whole_of(TINY, ranks=4) == whole_of(TINY, ranks=1)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_scales_are_bytes_of_weights_and_no_parameters(ranks: int) -> None:
    sizes = replace(TINY, quantized=True)
    whole = whole_of(sizes, ranks=ranks)
    assert whole is not None
    alone = share(held(sizes).model, held(sizes).shards, None)
    assert whole == alone
    assert whole.params == weights(TINY)
    rows = (TINY.heads + 2 * TINY.kv_heads) * TINY.head + 2 * TINY.inner + 2 * TINY.hidden
    cut = TINY.layers * (TINY.hidden * TINY.head * 12 + 3 * TINY.hidden * TINY.inner)
    plain = weights(TINY) - cut + whole.padding
    assert whole.weight_nbytes == whole.nbytes == cut + 4 * TINY.layers * rows + 2 * plain


def test_weights_that_an_engine_emptied_count() -> None:
    emptied = held(replace(TINY, emptied=True))
    assert share(emptied.model, emptied.shards, None) == share(held().model, held().shards, None)
    assert whole_of(replace(TINY, emptied=True), ranks=2) == whole_of(TINY, ranks=1)


def test_the_whole_stays_unknown_when_ranks_are_missing() -> None:
    found = with_shares(build_engine.engine(tensor_parallel=2), [held(ranks=2)])
    assert found.whole is None
    assert len(found.ranks) == 1


def test_a_weight_counts_rather_than_a_buffer_that_shows_it_further_up() -> None:
    weight = build.tensor("mixer.weight", (4, 1, 3))
    view = build.tensor("view", (4, 3), kind="buffer", storage="mixer.weight")
    root = build.module("", children=("mixer",), tensors=("view",))
    mixer = build.module("mixer", tensors=("mixer.weight",))
    model = build.model(weight, view, modules=(root, mixer))
    whole = with_shares(build_engine.engine(), [RankModel(0, model)]).whole
    assert whole is not None
    assert (whole.params, whole.weight_nbytes, whole.nbytes) == (12, 48, 48)


def test_bytes_of_the_whole_stay_unknown_when_nothing_says_how_scales_are_cut() -> None:
    every = [held(replace(TINY, quantized=True), ranks=2, rank=rank) for rank in range(2)]
    untold = [
        replace(one, shards={name: shard for name, shard in one.shards.items() if "scale" not in name})
        for one in every
    ]
    whole = with_shares(build_engine.engine(tensor_parallel=2), untold).whole
    assert whole is not None
    assert (whole.params, whole.padding, whole.weight_nbytes, whole.nbytes) == (263_552, 15_616, None, None)


def test_bytes_of_the_whole_stay_unknown_when_nothing_says_what_scales_are() -> None:
    every = []
    for rank in range(2):
        one = held(replace(TINY, quantized=True), ranks=2, rank=rank)
        name = "model.layers.0.self_attn.qkv_proj"
        modules = tuple(
            replace(module, tensors=(*module.tensors, "stray")) if module.path == name else module
            for module in one.model.modules
        )
        stray = build.tensor("stray", kind="buffer")
        model = replace(one.model, modules=modules, tensors=(*one.model.tensors, stray))
        every.append(replace(one, model=model))
    whole = with_shares(build_engine.engine(tensor_parallel=2), every).whole
    assert whole is not None
    assert (whole.params, whole.weight_nbytes) == (263_552, None)


def test_a_tensor_without_a_size_is_a_hole_in_its_rank_and_in_the_whole() -> None:
    model = build.model(build.tensor("a"), build.tensor("b", shape=None))
    found = with_shares(build_engine.engine(), [RankModel(0, model)])
    assert [(each.params, each.unknown) for each in (*found.ranks, found.whole) if each] == [(6, 1), (6, 1)]


def test_the_whole_model_has_whole_shapes_without_padding() -> None:
    last = held(TINY, ranks=2, rank=1)
    whole = whole_model(last.model, last.shards)
    shapes = {tensor.name: tensor.shape for tensor in whole.tensors}
    assert shapes["model.embed_tokens.weight"] == (259, 128)
    assert shapes["model.layers.1.self_attn.qkv_proj.weight"] == (256, 128)
    assert count(whole).params == weights(TINY)
    emptied = held(replace(TINY, emptied=True), ranks=2)
    again = whole_model(emptied.model, emptied.shards)
    assert (count(again).logical_params, count(again).nbytes) == (weights(TINY), 2 * weights(TINY))


def test_stages_are_put_together_in_the_order_of_the_tree() -> None:
    stages = [held(TINY, stages=2, stage=stage) for stage in range(2)]
    model = unite_ranks(stages)
    assert [module.path for module in model.modules] == [module.path for module in held().model.modules]
    assert [tensor.name for tensor in model.tensors] == [tensor.name for tensor in held().model.tensors]
    assert "PPMissingLayer" not in {module.type for module in model.modules}


def test_what_a_stage_calls_its_memory_means_nothing_to_another() -> None:
    def stage(rank: int, name: str) -> RankModel:
        path = name.partition(".")[0]
        modules = (
            build.module("", children=("a", "b")),
            *(build.module(each, tensors=(name,) if each == path else ()) for each in ("a", "b")),
        )
        return RankModel(rank, build.model(build.tensor(name, storage="0"), modules=modules))

    pair = [stage(0, "a.weight"), stage(1, "b.weight")]
    whole = with_shares(build_engine.engine(pipeline_parallel=2), pair).whole
    assert whole is not None
    assert whole.params == 12


def test_a_divided_buffer_has_its_whole_bytes() -> None:
    every = [
        RankModel(
            rank, build.model(build.tensor("b", shape=(4,), kind="buffer")), {"b": Shard(whole=(8,), dim=0)}
        )
        for rank in range(2)
    ]
    whole = with_shares(build_engine.engine(tensor_parallel=2), every).whole
    assert whole is not None
    assert (whole.nbytes, whole.weight_nbytes) == (32, 0)
