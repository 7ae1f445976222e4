"""Counting: each memory once, unknown stays unknown."""

from __future__ import annotations

import build
from modelglass.analyses.cost.cost import cost
from modelglass.analyses.counts import count
from modelglass.analyses.notes import figure_notes


def test_tied_weights_count_once() -> None:
    model = build.model(
        build.tensor("embed.weight", shape=(1000, 64), storage="E"),
        build.tensor("head.weight", shape=(1000, 64), storage="E"),
    )
    counts = count(model)
    assert (counts.params, counts.nbytes) == (64_000, 256_000)
    assert counts.tied == {"head.weight": "embed.weight"}


def test_an_unknown_trainable_makes_the_sum_unknown() -> None:
    counts = count(build.model(build.tensor("a"), build.tensor("b", trainable=None)))
    assert (counts.params, counts.trainable, counts.frozen) == (12, None, None)


def test_frozen_and_buffers_are_apart() -> None:
    counts = count(
        build.model(
            build.tensor("a"),
            build.tensor("b", trainable=False),
            build.tensor("c", kind="buffer", dtype="int64"),
        )
    )
    assert (counts.params, counts.trainable, counts.frozen, counts.buffers) == (12, 6, 6, 6)
    assert (counts.param_nbytes, counts.buffer_nbytes) == (48, 48)


def routed(config: dict[str, int], *, router: dict[str, int] | None = None) -> object:
    experts = build.module("moe.experts", "Experts", config=config, tensors=("moe.experts.w",))
    gate = build.module("moe.gate", "Router", config=router or {})
    moe = build.module("moe", "Moe", children=("moe.experts", "moe.gate"))
    root = build.module("", children=("moe",))
    return build.model(build.tensor("moe.experts.w", shape=(8, 4, 4)), modules=(root, moe, experts, gate))


def test_active_parameters_need_to_know_how_many_are_chosen() -> None:
    assert count(routed({"num_experts": 8}, router={"top_k": 2})).active_params == 32
    assert count(routed({"num_experts": 8})).active_params is None
    assert count(routed({"global_num_experts": 8, "top_k": 2})).active_params == 32
    assert count(routed({"num_experts": 4}, router={"top_k": 2})).active_params == 128, (
        "not a stack of experts"
    )


def test_a_rank_with_some_of_the_experts_does_not_know_what_a_token_meets_there() -> None:
    part = {"num_experts": 32, "num_local_experts": 8}
    assert count(routed(part, router={"top_k": 2})).active_params is None
    assert count(routed({"num_experts": 8, "num_local_experts": 8, "top_k": 2})).active_params == 32


def test_an_unknown_size_is_a_hole_not_a_zero() -> None:
    model = build.model(build.tensor("a"), build.tensor("b", dtype="float6_weird"))
    counts = count(model)
    assert (counts.nbytes, counts.unsized) == (24, ("b",))
    assert [note.code for note in figure_notes(counts, cost(model))] == ["unknown-size"]


def test_experts_held_one_by_one_are_a_bank() -> None:
    children = tuple(f"moe.experts.{i}" for i in range(4))
    tensors = [build.tensor(f"{path}.up.w", shape=(2, 3)) for path in children]
    modules = (
        build.module("", children=("moe",)),
        build.module("moe", "Moe", config={"top_k": 1}, children=("moe.experts",)),
        build.module("moe.experts", "ModuleList", children=children),
        *(build.module(path, "Expert", children=(f"{path}.up",)) for path in children),
        *(build.module(f"{path}.up", "Linear", tensors=(f"{path}.up.w",)) for path in children),
    )
    assert count(build.model(*tensors, modules=modules)).active_params == 6


def test_a_model_without_modules_has_nothing() -> None:
    counts = count(build.model(modules=(build.module(""),)))
    assert (counts.params, counts.trainable, counts.nbytes, counts.active_params) == (0, 0, 0, 0)
