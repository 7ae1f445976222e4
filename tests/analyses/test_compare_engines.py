"""What an engine holds beside the model of transformers: fused, padded and divided weights are explained, and
the two numbers of parameters are made equal exactly."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import build
import build_engine
import modelglass as mg
from build_engine import TINY, Sizes
from differences import found
from modelglass.report import Comparison, Engine, Model, Module, Piece, Report, Shard, Tensor

PADDED = (320 - 259) * 128  # elements of one table


@cache
def original(*, tied: bool = False, bias: bool = False, inner: int = 128) -> tuple[Report, int]:
    """The same Llama as transformers builds it, and the parameters that torch counts in it."""
    config = LlamaConfig(
        vocab_size=259,
        hidden_size=128,
        intermediate_size=inner,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        rms_norm_eps=1e-5,
        tie_word_embeddings=tied,
        attention_bias=bias,
    )
    with torch.device("meta"):
        native = LlamaForCausalLM(config)
    return mg.inspect(native), sum(parameter.numel() for parameter in native.parameters())


def served(sizes: Sizes = TINY, *, ranks: int = 1, rank: int = 0, **more: Any) -> Report:
    held = build_engine.held(sizes, ranks=ranks, rank=rank, **more)
    engine = build_engine.engine(
        rank=rank,
        tensor_parallel=ranks,
        shards=held.shards,
        pipeline_parallel=more.get("stages", 1),
    )
    return Report(model=held.model, engine=engine)


def terms(comparison: Comparison) -> dict[str, int]:
    """What comes to the first number, or goes, by its reason."""
    return {term.code: term.params for term in comparison.reconciliation[1:-1]}


def ends(comparison: Comparison) -> tuple[int, int]:
    return comparison.reconciliation[0].params, comparison.reconciliation[-1].params


def small(source: str, *tensors: Tensor, types: dict[str, str] | None = None) -> Model:
    """A model of the modules that names of tensors speak of."""
    homes: dict[str, list[str]] = {"": []}
    for tensor in tensors:
        steps = tensor.name.split(".")[:-1]
        for count in range(1, len(steps) + 1):
            homes.setdefault(".".join(steps[:count]), [])
        homes[".".join(steps)].append(tensor.name)
    modules = tuple(
        Module(
            path=path,
            type=(types or {}).get(path, "Block"),
            qualified_type=f"{source}.Block",
            tensors=tuple(names),
            children=tuple(other for other in homes if other and other.rpartition(".")[0] == path),
        )
        for path, names in homes.items()
    )
    return Model(name="Net", source=source, modules=modules, tensors=tensors)


def beside(a: Model, b: Model, **shards: Shard) -> Comparison:
    """Two models, the second of which an engine serves."""
    named = {name.replace("__", "."): shard for name, shard in shards.items()}
    return mg.compare_structure(
        Report(model=a), Report(model=b, engine=Engine(version="0", reached="meta", shards=named))
    )


@pytest.mark.parametrize("turned", [False, True], ids=["first", "second"])
@pytest.mark.parametrize("tied", [False, True], ids=["own", "tied"])
def test_padding_is_the_only_difference_in_numbers(tied: bool, turned: bool) -> None:
    report, truth = original(tied=tied)
    sides = report, served(replace(TINY, tied=tied))
    comparison = mg.compare_structure(*(reversed(sides) if turned else sides))
    padding = PADDED * (1 if tied else 2)
    assert comparison.same
    assert comparison.reconciled
    assert terms(comparison) == {"padding": -padding if turned else padding}
    assert sorted(ends(comparison)) == [truth, truth + padding]
    assert (comparison.a.matched, comparison.b.matched) == (comparison.a.tensors, comparison.b.tensors)


def test_rows_of_padding_are_named() -> None:
    comparison = mg.compare_structure(original()[0], served())
    told = {
        pair.b: deviation
        for pair in comparison.pairs
        for deviation in pair.deviations
        if deviation.code == "padding"
    }
    assert set(told) == {"model.embed_tokens", "lm_head"}
    for deviation in told.values():
        assert deviation.text == "61 rows of padding: 320 = 259 + 61 (7,808 elements)"
        assert deviation.standing == "framework"
    (padding,) = [term for term in comparison.reconciliation if term.code == "padding"]
    assert padding.tensors_b == ("model.embed_tokens.weight", "lm_head.weight")


def test_fused_weights_are_their_parts() -> None:
    comparison = mg.compare_structure(original()[0], served())
    block = "model.layers.1"
    joined = {
        each.b: each.a for pair in comparison.pairs if pair.matched == "joined" for each in pair.tensors
    }
    assert joined[f"{block}.self_attn.qkv_proj.weight",] == tuple(
        f"{block}.self_attn.{name}_proj.weight" for name in "qkv"
    )
    assert joined[f"{block}.mlp.gate_up_proj.weight",] == (
        f"{block}.mlp.gate_proj.weight",
        f"{block}.mlp.up_proj.weight",
    )
    texts = {each.text for pair in comparison.pairs for each in pair.deviations if each.code == "joined"}
    assert texts == {
        "q_proj, k_proj, v_proj of a are joined in qkv_proj of b",
        "gate_proj, up_proj of a are joined in gate_up_proj of b",
    }


@pytest.mark.parametrize("form", ["plain", "emptied", "quantized"])
@pytest.mark.parametrize(("ranks", "rank"), [(2, 0), (2, 1), (4, 3)], ids=["0 of 2", "1 of 2", "3 of 4"])
def test_a_rank_is_compared_as_the_whole_model(ranks: int, rank: int, form: str) -> None:
    sizes = replace(TINY, emptied=form == "emptied", quantized=form == "quantized")
    report, truth = original()
    rank_report = served(sizes, ranks=ranks, rank=rank)
    comparison = mg.compare_structure(report, rank_report)
    held = sum(t.logical_numel or 0 for t in rank_report.model.tensors if t.kind != "buffer")
    assert rank_report.engine is not None
    padding = sum(shard.padding for shard in rank_report.engine.shards.values())
    assert comparison.same
    assert ends(comparison) == (truth, held)
    assert terms(comparison) == {
        code: params for code, params in (("ranks", held - padding - truth), ("padding", padding)) if params
    }
    assert comparison.reconciliation[-1].text == f"parameters of b, rank {rank} of {ranks}"


def test_an_engine_beside_one_with_more_ranks() -> None:
    comparison = mg.compare_structure(served(), served(ranks=2, rank=1))
    assert comparison.same
    # Both tables are padded by as much, which lies in the second half.
    assert list(terms(comparison)) == ["ranks"]


def test_what_only_one_has_is_told_and_counted() -> None:
    report, truth = original(bias=True)
    comparison = mg.compare_structure(report, served())
    assert not comparison.same
    assert not comparison.reconciled
    assert set(found(comparison)) >= {
        ("model.layers.0.self_attn.o_proj", "model.layers.0.self_attn.o_proj", "bias")
    }
    biases = 2 * (4 + 2 + 2 + 4) * 32
    assert terms(comparison) == {"missing-in-b": -biases, "padding": 2 * PADDED}
    assert ends(comparison) == (truth, truth - biases + 2 * PADDED)


def test_other_sizes_are_other_shapes() -> None:
    report, truth = original(inner=192)
    comparison = mg.compare_structure(report, served())
    fewer = 2 * 3 * 64 * 128
    assert terms(comparison) == {"shape": -fewer, "padding": 2 * PADDED}
    assert ends(comparison) == (truth, truth - fewer + 2 * PADDED)
    gate = ("model.layers.0.mlp", "model.layers.0.mlp.gate_up_proj", "shape")
    assert gate in found(comparison)


def test_a_head_that_has_its_own_memory_in_one_is_a_difference() -> None:
    comparison = mg.compare_structure(original(tied=True)[0], served())
    assert [code for *_, code in found(comparison)] == ["tied"]
    assert terms(comparison) == {"tied": 259 * 128, "padding": 2 * PADDED}
    assert not comparison.reconciled


def test_a_stage_of_a_pipeline_says_that_others_hold_the_rest() -> None:
    comparison = mg.compare_structure(original()[0], served(stages=2, stage=0))
    assert [note.code for note in comparison.notes] == ["stage"]
    assert not comparison.same
    assert terms(comparison)["missing-in-b"] < 0


def test_what_has_no_size_is_a_hole_and_no_zero() -> None:
    report = served()
    tensors = tuple(
        replace(each, shape=None) if each.name.endswith("0.mlp.down_proj.weight") else each
        for each in report.model.tensors
    )
    assert report.engine is not None
    shards = {name: each for name, each in report.engine.shards.items() if "0.mlp.down" not in name}
    hole = replace(
        report,
        model=replace(report.model, tensors=tensors),
        engine=replace(report.engine, shards=shards),
    )
    comparison = mg.compare_structure(original()[0], hole)
    assert comparison.b.params is None
    assert (comparison.reconciliation, comparison.reconciled) == ((), None)
    (note,) = [note for note in comparison.notes if note.code == "not-reconciled"]
    assert note.where == ("model.layers.0.mlp.down_proj.weight",)


EXPERTS = {
    "stacked": (
        build.tensor("mlp.experts.gate_up_proj", (4, 64, 32)),
        build.tensor("mlp.experts.down_proj", (4, 32, 32)),
    ),
    "stacked the other way round": (
        build.tensor("mlp.experts.gate_up_proj", (4, 32, 64)),
        build.tensor("mlp.experts.down_proj", (4, 32, 32)),
    ),
    "one by one": tuple(
        build.tensor(f"mlp.experts.{expert}.{name}_proj.weight", (32, 32))
        for expert in range(4)
        for name in ("gate", "up", "down")
    ),
    "one below the other": (
        build.tensor("mlp.experts.gate_proj", (128, 32)),
        build.tensor("mlp.experts.up_proj", (128, 32)),
        build.tensor("mlp.experts.down_proj", (128, 32)),
    ),
}


@pytest.mark.parametrize("form", EXPERTS)
def test_experts_in_whatever_form(form: str) -> None:
    halves = tuple(Piece(name=name, size=32, held=32) for name in ("gate_proj", "up_proj"))
    b = small(
        "vllm",
        build.tensor("mlp.gate.weight", (4, 32), trainable=False),
        build.tensor("mlp.experts.routed_experts.w13_weight", (4, 64, 32), trainable=False),
        build.tensor("mlp.experts.routed_experts.w2_weight", (4, 32, 32), trainable=False),
    )
    a = small("torch", build.tensor("mlp.gate.weight", (4, 32)), *EXPERTS[form])
    w13 = Shard(whole=(4, 64, 32), pieces=halves, pieces_dim=1)
    comparison = beside(a, b, mlp__experts__routed_experts__w13_weight=w13)
    assert found(comparison) == []
    assert comparison.reconciled
    assert comparison.a.matched == comparison.a.tensors
    held = {each.b: len(each.a) for pair in comparison.pairs for each in pair.tensors}
    assert held["mlp.experts.routed_experts.w13_weight",] == {"one by one": 8, "one below the other": 2}.get(
        form, 1
    )


def test_pieces_are_believed_and_not_guessed() -> None:
    """Two pairs of matrices of the same shapes: only names tell which lie side by side."""
    names = ("a_proj", "b_proj", "c_proj", "d_proj")
    a = small("torch", *(build.tensor(f"mix.{name}.weight", (8, 8)) for name in names))
    b = small(
        "vllm",
        build.tensor("mix.first.weight", (16, 8), trainable=False),
        build.tensor("mix.second.weight", (16, 8), trainable=False),
    )
    pieces = {
        "mix__first__weight": ("b_proj", "d_proj"),
        "mix__second__weight": ("c_proj", "a_proj"),
    }
    shards = {
        name: Shard(whole=(16, 8), pieces=tuple(Piece(name=each, size=8, held=8) for each in own))
        for name, own in pieces.items()
    }
    comparison = beside(a, b, **shards)
    assert comparison.same
    joined = {each.b: each.a for pair in comparison.pairs for each in pair.tensors}
    assert joined["mix.first.weight",] == ("mix.b_proj.weight", "mix.d_proj.weight")
    assert joined["mix.second.weight",] == ("mix.c_proj.weight", "mix.a_proj.weight")


def test_a_wrapper_that_only_one_has_around_the_pieces() -> None:
    """The engine keeps the projections right in the block, the other in a module of their own."""
    a = small(
        "torch",
        *(build.tensor(f"layers.0.self_attn.{name}.weight", (8, 8)) for name in ("q", "k", "v", "o")),
        build.tensor("layers.0.norm.weight", (8,)),
    )
    b = small(
        "vllm",
        build.tensor("layers.0.qkv.weight", (24, 8), trainable=False),
        build.tensor("layers.0.o.weight", (8, 8), trainable=False),
        build.tensor("layers.0.norm.weight", (8,), trainable=False),
    )
    pieces = tuple(Piece(name=name, size=8, held=8) for name in "qkv")
    comparison = beside(a, b, layers__0__qkv__weight=Shard(whole=(24, 8), pieces=pieces))
    assert found(comparison) == []


def test_a_buffer_that_the_engine_keeps_among_its_parameters() -> None:
    a = small(
        "torch",
        build.tensor("layers.0.gate.weight", (8, 32)),
        build.tensor("layers.0.expert_bias", (8,), kind="buffer"),
    )
    b = small(
        "vllm",
        build.tensor("layers.0.gate.weight", (8, 32), trainable=False),
        build.tensor("layers.0.gate.e_score_correction_bias", (8,), trainable=False),
        build.tensor("layers.0.attn._k_scale", (), kind="buffer"),
    )
    comparison = beside(a, b)
    assert found(comparison) == []
    assert terms(comparison) == {"buffer": 8}
    assert comparison.reconciled
    constant = next(pair for pair in comparison.pairs if pair.b == "layers.0.attn._k_scale")
    assert constant.deviations[0].text == "a constant that only the engine keeps"


def test_zeros_in_place_of_a_bias() -> None:
    """Whisper's keys have no bias, and what the engine joins has one."""
    a = small(
        "torch",
        *(build.tensor(f"attn.{name}.weight", (8, 8)) for name in "qkv"),
        *(build.tensor(f"attn.{name}.bias", (8,)) for name in "qv"),
    )
    b = small(
        "vllm",
        build.tensor("attn.qkv.weight", (24, 8), trainable=False),
        build.tensor("attn.qkv.bias", (24,), trainable=False),
    )
    pieces = tuple(Piece(name=name, size=8, held=8) for name in "qkv")
    shard = Shard(whole=(24, 8), pieces=pieces)
    comparison = beside(a, b, attn__qkv__weight=shard, attn__qkv__bias=Shard(whole=(24,), pieces=pieces))
    assert found(comparison) == []
    assert terms(comparison) == {"zeros": 8}
    assert comparison.reconciled
    texts = [each.text for pair in comparison.pairs for each in pair.deviations]
    assert "b has zeros for k, which has no bias" in texts


def test_a_buffer_that_looks_at_a_weight_ties_nothing() -> None:
    a = small("torch", build.tensor("mixer.conv1d.weight", (16, 1, 4)))
    b = small(
        "vllm",
        build.tensor("mixer.conv_weights", (16, 4), kind="buffer", storage="memory"),
        build.tensor("mixer.conv1d.weight", (16, 1, 4), storage="memory", trainable=False),
    )
    comparison = beside(a, b)
    assert found(comparison) == []
    assert ends(comparison) == (64, 64)


def test_statistics_that_mlx_keeps_among_its_parameters_are_a_term() -> None:
    from mlx import nn as mnn

    comparison = mg.compare_structure(torch.nn.BatchNorm2d(8), mnn.BatchNorm(8))
    assert comparison.same
    assert terms(comparison) == {"buffer": 16}
    assert comparison.reconciled


def test_models_that_are_the_same_need_no_terms() -> None:
    comparison = mg.compare_structure(torch.nn.Linear(3, 4), torch.nn.Linear(3, 4))
    assert (comparison.reconciliation, comparison.reconciled) == ((), True)


def test_two_biases_and_their_sum() -> None:
    from mlx import nn as mnn

    comparison = mg.compare_structure(torch.nn.LSTM(10, 20), mnn.LSTM(10, 20))
    assert comparison.same
    assert terms(comparison) == {"folded": 2_480 - 2_560}


def test_terms_must_add_up() -> None:
    comparison = mg.compare_structure(original()[0], served())
    first, *rest = comparison.reconciliation
    with pytest.raises(ValueError, match="do not add up"):
        replace(comparison, reconciliation=(replace(first, params=1), *rest))


def test_what_nothing_explains_makes_them_differ() -> None:
    comparison = mg.compare_structure(original()[0], served())
    first, padding, last = comparison.reconciliation
    odd = replace(padding, code="unexplained", text="unexplained", standing="different")
    other = replace(comparison, reconciliation=(first, odd, last))
    assert not other.same
    assert dict(other.codes) == {"unexplained": 1}
    assert mg.render(other).startswith("different: 1 difference;")
