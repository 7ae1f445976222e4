"""Changes whose memory follows from a run by arithmetic."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
import torch
import transformers
from torch import nn

import build
import modelglass as mg
from modelglass.analyses.memory.timeline import memory
from modelglass.analyses.memory.what_if import (
    Units,
    apply_changes,
    is_estimate,
    needs_run,
    quantize_weights,
    shard,
    units_of,
)
from modelglass.errors import UsageError
from modelglass.report import Lifetimes, Model, Module, OptimizerStep, Step, Storage, Tensor, WhatIf

ONE, TWO = "layers.0", "layers.1"
MODULES = ("embed", f"{ONE}.fc", f"{TWO}.fc", "head")
SHAPES = {"embed": (100, 8), f"{ONE}.fc": (8, 8), f"{TWO}.fc": (8, 8), "head": (10, 8)}
NBYTES = {path: 4 * rows * columns for path, (rows, columns) in SHAPES.items()}
FORWARD, BACKWARD = range(4), range(4, 8)  # one kernel a module, forth and back
STEPS = tuple(
    Step(op="mm", module=module, phase="forward" if index in FORWARD else "backward")
    for index, module in enumerate((*MODULES, *reversed(MODULES)))
)
ROOT = NBYTES["embed"] + NBYTES["head"]
BLOCK = NBYTES[f"{ONE}.fc"]
ALL = sum(NBYTES.values())


def model() -> Model:
    """An embedding, a list of two blocks with a linear layer each, and a head."""
    linear = {"in_features": 8, "out_features": 8}
    children = {
        "": ("embed", "layers", "head"),
        "layers": (ONE, TWO),
        ONE: (f"{ONE}.fc",),
        TWO: (f"{TWO}.fc",),
    }
    types = {"": "Net", "layers": "ModuleList", ONE: "Block", TWO: "Block", "embed": "Embedding"}
    configs: dict[str, Any] = {
        "embed": {"num_embeddings": 100, "embedding_dim": 8},
        "head": linear | {"out_features": 10},
    }
    modules: list[Module] = []

    def add(path: str) -> None:
        held = (f"{path}.weight",) if path in SHAPES else ()
        config = configs.get(path, linear) if held else {}
        kind = types.get(path, "Linear")
        modules.append(build.module(path, kind, children=children.get(path, ()), tensors=held, config=config))
        for child in children.get(path, ()):
            add(child)

    add("")
    tensors = tuple(build.tensor(f"{path}.weight", shape) for path, shape in SHAPES.items())
    return build.model(*tensors, modules=tuple(modules))


def weight(path: str, category: str = "parameters", **more: Any) -> Storage:
    details = {"shape": SHAPES[path], "dtype": "float32", "name": f"{path}.weight"}
    return Storage(**{"nbytes": NBYTES[path], "category": category, **details, **more})


def step(*, train: bool = True) -> Lifetimes:
    """Weights all the time; each backward kernel makes a gradient, the optimizer a state for each weight."""
    weights = tuple(map(weight, MODULES))
    if not train:
        return Lifetimes(steps=STEPS[:4], storages=weights, forward_steps=4)
    gradients = tuple(
        weight(path, "gradients", born=index) for index, path in zip(BACKWARD, reversed(MODULES), strict=True)
    )
    saved = (
        Storage(nbytes=101, category="activations", born=1, died=6, saved_by=f"{ONE}.fc"),
        Storage(nbytes=103, category="activations", born=0, died=7, saved_by="embed"),
    )
    update = Step(op="_foreach_add_", module="", phase="optimizer")
    states = tuple(weight(path, "optimizer_state", born=8) for path in MODULES)
    count = Storage(nbytes=4, category="optimizer_state", born=8, shape=(), name="embed.weight")
    work = Storage(nbytes=BLOCK, category="temporaries", born=8, died=8, shape=(8, 8))
    tail = OptimizerStep(steps=(update,), storages=(*states, count, work))
    return Lifetimes(
        steps=STEPS, storages=(*weights, *gradients, *saved), forward_steps=4, tails={"adamw": tail}
    )


def held(lifetimes: Lifetimes) -> list[int]:
    """Bytes while each kernel runs, the optimizer's included."""
    optimizer = next(iter(lifetimes.tails), None)
    return [moment.nbytes for moment in memory(lifetimes, optimizer=optimizer).timeline]


def at(lifetimes: Lifetimes, index: int, category: str) -> int:
    whole = lifetimes.with_optimizer("adamw") if lifetimes.tails else lifetimes
    return sum(
        each.nbytes
        for each in whole.storages
        if each.category == category
        and (each.born or 0) <= index
        and (each.died is None or each.died >= index)
    )


def test_blocks_and_large_weights_of_a_model() -> None:
    units = units_of(model())
    assert units.blocks == {ONE, TWO}
    assert units.patterns == ("layers.*",)
    assert units.matrices == {f"{path}.weight" for path in MODULES}
    assert units.linear == {f"{ONE}.fc.weight": 8, f"{TWO}.fc.weight": 8}
    assert units.block_of(f"{TWO}.fc.weight") == units.block_of(TWO) == TWO
    assert units.block_of("layers") is units.block_of("") is units.block_of(None) is None


def two_levels() -> nn.Module:
    """Stages that differ, of blocks that are alike, save for those that change the width."""

    def block(width: int, inside: int) -> nn.Module:
        return nn.Sequential(nn.Linear(width, inside), nn.GELU(), nn.Linear(inside, width))

    stages = [(4, (8, 8)), (8, (16, 24)), (16, (32,))]
    return nn.ModuleDict(
        {f"stage{i}": nn.ModuleList(block(w, x) for x in each) for i, (w, each) in enumerate(stages)}
    )


def experts() -> nn.Module:
    """A list of layers with more experts in each than there are layers."""

    def layer() -> nn.Module:
        bank = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(5))
        return nn.ModuleDict({"router": nn.Linear(4, 5), "experts": bank})

    return nn.Sequential(nn.Embedding(10, 4), nn.ModuleList(layer() for _ in range(3)))


def hugging_face(name: str, **sizes: int) -> nn.Module:
    config = transformers.AutoConfig.for_model(name, **sizes)
    with torch.device("meta"):
        return transformers.AutoModel.from_config(config)


T5 = {"d_model": 8, "d_kv": 4, "num_heads": 2, "d_ff": 16, "num_layers": 3}
LLAMA = {"hidden_size": 8, "intermediate_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1}

PATTERNS = {
    "differing stages": (two_levels, ("stage0.*", "stage1.*", "stage2.*")),
    "experts in layers": (experts, ("1.*",)),
    "a list alone": (lambda: nn.Sequential(*(nn.Sequential(nn.Linear(2, 2)) for _ in range(3))), ("*",)),
    "leaves": (lambda: nn.Sequential(*(nn.Linear(2, 2) for _ in range(3))), ()),
    "different things": (lambda: nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)), ()),
    "llama": (lambda: hugging_face("llama", num_hidden_layers=3, **LLAMA), ("layers.*",)),
    "gpt2": (lambda: hugging_face("gpt2", n_embd=8, n_head=2, n_layer=3), ("h.*",)),
    "t5": (lambda: hugging_face("t5", **T5), ("encoder.block.*", "decoder.block.*")),
}


@pytest.mark.parametrize(("make", "patterns"), PATTERNS.values(), ids=PATTERNS)
def test_patterns_match_the_repeated_blocks(make: Any, patterns: tuple[str, ...]) -> None:
    assert units_of(mg.inspect(make()).model).patterns == patterns


def test_gpt2_has_linear_layers_that_are_transposed() -> None:
    units = units_of(mg.inspect(hugging_face("gpt2", n_embd=8, n_head=2, n_layer=2)).model)
    assert units.linear["h.0.attn.c_attn.weight"] == 24
    assert {"wte.weight", "wpe.weight"} <= units.matrices - units.linear.keys()


def test_tied_weights_keep_their_type() -> None:
    tensors = tuple(
        replace(each, storage="E") if each.name.startswith("layers") else each for each in model().tensors
    )
    tied = replace(model(), tensors=tensors)
    assert units_of(tied).linear == {}


def test_without_blocks_every_linear_layer_counts() -> None:
    plain = mg.inspect(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 4))).model
    assert units_of(plain).linear == {"0.weight": 3, "2.weight": 4}


def test_int8_is_a_byte_per_element_and_a_scale_per_output_feature() -> None:
    found = quantize_weights(step(train=False), "int8", units_of(model()))
    assert [each.nbytes for each in found.storages] == [3200, 64 + 4 * 8, 64 + 4 * 8, 320]
    assert [each.dtype for each in found.storages] == ["float32", "int8", "int8", "float32"]


def test_int4_is_half_a_byte_per_element_and_a_scale_per_64() -> None:
    units = Units(frozenset(), (), frozenset(), {"head.weight": 10, "embed.weight": 100})
    found = quantize_weights(step(train=False), "int4", units)
    assert [each.nbytes for each in found.storages] == [400 + 4 * 13, 256, 256, 40 + 4 * 2]


def test_weights_that_train_cannot_be_quantized() -> None:
    units = units_of(model())
    with pytest.raises(UsageError, match=r"cannot train, and layers\.0\.fc\.weight does"):
        quantize_weights(step(), "int8", units)
    frozen = replace(step(), storages=tuple(each for each in step().storages if each.category != "gradients"))
    assert quantize_weights(frozen, "int8", units).storages[1].nbytes == 96
    with pytest.raises(UsageError, match="weights cannot be 'int3' here"):
        quantize_weights(step(), "int3", units)


def test_weights_that_are_already_packed_stay() -> None:
    packed = tuple(replace(each, dtype="uint8") for each in step(train=False).storages)
    lifetimes = replace(step(train=False), storages=packed)
    assert quantize_weights(lifetimes, "int8", units_of(model())) == lifetimes


def test_data_parallel_keeps_all_and_has_buckets_as_large_as_the_gradients() -> None:
    found = shard(step(), "ddp", 4, units_of(model()))
    assert [now - before for now, before in zip(held(found), held(step()), strict=True)] == [ALL] * 9
    inference = step(train=False)
    assert shard(inference, "ddp", 4, units_of(model())) == inference


def test_stage_3_divides_all_and_gathers_the_block_at_work_and_the_next() -> None:
    found = shard(step(), "fsdp3", 2, units_of(model()))
    assert {at(found, index, "parameters") for index in range(9)} == {ALL // 2}
    gathered = [at(found, index, "temporaries") for index in range(9)]
    #     embed, one, two, head, and back; the first block of backward is needed when that begins
    blocks = (0, 2, 1, 0, 1, 2, 1, 0)
    assert gathered == [*(ROOT + each * BLOCK for each in blocks), BLOCK // 2]  # the optimizer's own work


def test_stage_2_keeps_a_block_gathered_from_forward_to_backward() -> None:
    found = shard(step(), "fsdp2", 2, units_of(model()))
    assert {at(found, index, "parameters") for index in range(9)} == {ALL // 2}
    gathered = [at(found, index, "temporaries") for index in range(9)]
    assert gathered == [*(ROOT + each * BLOCK for each in (0, 2, 2, 2, 2, 2, 1, 0)), BLOCK // 2]


def test_several_passes_gather_several_times() -> None:
    once = step()
    twice = replace(once, steps=STEPS * 2, tails={})
    found = shard(twice, "fsdp2", 2, units_of(model()))
    gathered = [at(found, index, "temporaries") for index in range(16)]
    assert gathered == [ROOT + each * BLOCK for each in (0, 2, 2, 2, 2, 2, 1, 0) * 2]


@pytest.mark.parametrize("sharding", ["fsdp2", "fsdp3"])
def test_gradients_are_whole_until_their_block_is_through_and_then_shards(sharding: str) -> None:
    found = shard(step(), sharding, 4, units_of(model()))
    shards = {"embed": 25 * 8 * 4, ONE: 2 * 8 * 4, TWO: 2 * 8 * 4, "head": 3 * 8 * 4}  # whole rows
    assert at(found, 6, "gradients") == NBYTES["head"] + shards[TWO] + (BLOCK + shards[ONE])
    assert at(found, 7, "gradients") == ROOT + sum(shards.values())  # what is in no block, to the end
    assert at(found, 8, "gradients") == sum(shards.values())
    assert at(found, 8, "optimizer_state") == sum(shards.values()) + 4  # a single number is not divided


def test_stage_3_works_without_training() -> None:
    found = shard(step(train=False), "fsdp3", 2, units_of(model()))
    assert held(found) == [ALL // 2 + ROOT + each * BLOCK for each in (0, 2, 1, 0)]


def test_tensor_parallel_divides_matrices_and_what_blocks_save() -> None:
    found = shard(step(), "tensor", 2, units_of(model()))
    assert at(found, 0, "parameters") == ALL // 2
    assert at(found, 8, "gradients") == ALL // 2
    assert at(found, 8, "optimizer_state") == ALL // 2 + 4
    assert at(found, 2, "activations") == 51 + 103
    assert at(found, 8, "temporaries") == BLOCK // 2


@pytest.mark.parametrize("sharding", ["ddp", "fsdp2", "fsdp3", "tensor"])
def test_one_device_shares_nothing(sharding: str) -> None:
    assert shard(step(), sharding, 1, units_of(model())) == step()


@pytest.mark.parametrize("sharding", ["fsdp2", "fsdp3", "tensor"])
def test_more_devices_need_no_more_while_there_are_rows_for_all(sharding: str) -> None:
    peaks = [max(held(shard(step(), sharding, devices, units_of(model())))) for devices in (1, 2, 4, 8)]
    assert peaks[1:] == sorted(peaks[1:], reverse=True)


def test_a_gathered_tensor_has_a_row_of_each_device_at_least() -> None:
    found = shard(step(train=False), "fsdp3", 64, units_of(model()))
    rows = {"embed": 128, f"{ONE}.fc": 64, f"{TWO}.fc": 64, "head": 64}
    assert at(found, 1, "temporaries") == 4 * 8 * sum(rows.values())


def test_places_of_the_runs_storages_are_kept_for_the_optimizer() -> None:
    """An optimizer's part says by place what it gives back."""
    tail = replace(step().tails["adamw"], freed={4: 8})
    found = shard(replace(step(), tails={"adamw": tail}), "fsdp3", 2, units_of(model()))
    assert found.storages[4].name == "head.weight"
    assert found.storages[4].category == "gradients"
    assert found.with_optimizer("adamw").storages[4].died == 8


def test_wrong_sharding_is_wrong_usage() -> None:
    with pytest.raises(UsageError, match="no sharding 'pipeline'"):
        shard(step(), "pipeline", 2, units_of(model()))
    with pytest.raises(UsageError, match="0 devices"):
        shard(step(), "ddp", 0, units_of(model()))


def test_what_needs_a_run_and_what_does_not() -> None:
    change = WhatIf(batch_size=2, seq_len=3, weights="bfloat16", autocast="float16", master_weights=True)
    change = replace(change, accumulate=4, recompute=("a.*",))
    assert needs_run(replace(change, optimizer="sgd", sharding="fsdp3", devices=8)) == change
    assert needs_run(WhatIf(weights="int8", sharding="ddp", devices=2)) == WhatIf()
    assert not is_estimate(change)
    assert not is_estimate(WhatIf(optimizer="sgd"))
    assert not is_estimate(WhatIf(sharding="fsdp3", devices=1))
    assert is_estimate(WhatIf(optimizer="adam8bit"))
    assert is_estimate(WhatIf(), "adam8bit")
    assert not is_estimate(WhatIf(optimizer="sgd"), "adam8bit")
    assert is_estimate(WhatIf(weights="int4"))
    assert is_estimate(WhatIf(sharding="fsdp3", devices=2))


def test_changes_add_up() -> None:
    lifetimes, units = step(train=False), units_of(model())
    both = WhatIf(weights="int8", sharding="tensor", devices=2)
    assert apply_changes(lifetimes, both, model()) == shard(
        quantize_weights(lifetimes, "int8", units), "tensor", 2, units
    )
    assert apply_changes(lifetimes, WhatIf(batch_size=2), model()) is lifetimes


BLOCKS = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 63), nn.Linear(63, 16)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(self.norm(x))))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(50, 16), nn.Linear(16, 50)
        self.blocks = nn.ModuleList(Block() for _ in range(5))

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        logits = self.head(x)
        return {"loss": nn.functional.cross_entropy(logits.flatten(0, 1), ids.flatten()), "logits": logits}

IDS = torch.zeros(8, 32, dtype=torch.int64)
"""
# torch's own sharding with a group of processes of which only one is there, measured by torch's profiler.
TRUTH = (
    BLOCKS
    + """
import json, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.profiler import ProfilerActivity, profile
from torch.testing._internal.distributed.fake_pg import FakeStore

def taken(work):
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        work()
    now = most = 0
    for event in profiled.profiler.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            most = max(most, now)
    return now, most

def peak(again):
    model, mesh = Net(), init_device_mesh("cpu", (4,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh, reshard_after_forward=again)
    fully_shard(model, mesh=mesh, reshard_after_forward=False)
    optimizer = torch.optim.AdamW(model.parameters())
    shards = {name: each.to_local().untyped_storage().nbytes() for name, each in model.named_parameters()}

    def step():
        output = model(IDS)
        output["loss"].backward()
        optimizer.step()
        optimizer.zero_grad()

    base = sum(shards.values()) + IDS.nbytes
    state, first = taken(step)
    _, later = taken(step)
    return base + first, base + state + later, shards

dist.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
native = Net()
wrapped = []
buckets, _ = taken(lambda: wrapped.append(nn.parallel.DistributedDataParallel(native)))
print(json.dumps({"ddp": buckets, "fsdp2": peak(False), "fsdp3": peak(True)}))
dist.destroy_process_group()
"""
)


@pytest.fixture(scope="module")
def truth() -> dict[str, Any]:
    command = [sys.executable, "-W", "ignore", "-c", TRUTH]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def native() -> tuple[nn.Module, torch.Tensor]:
    names: dict[str, Any] = {"__name__": "blocks"}
    exec(BLOCKS, names)
    return names["Net"](), names["IDS"]


@pytest.mark.slow
@pytest.mark.parametrize("sharding", ["fsdp2", "fsdp3"])
def test_torch_itself_takes_as_much(sharding: Any, truth: Any, native: Any) -> None:
    """To the byte here, where buffers of communication are not what the peak is made of."""
    change = WhatIf(sharding=sharding, devices=4)
    found = mg.inspect(native[0], native[1], train=True, optimizer="adamw", what_if=change).memory
    assert found is not None
    first, later, shards = truth[sharding]
    assert (found.first_peak_nbytes, found.later_peak_nbytes) == (first, later)
    assert found.base_nbytes == sum(shards.values()) + native[1].nbytes


@pytest.mark.slow
def test_torch_itself_makes_such_buckets(truth: Any, native: Any) -> None:
    alone, wrapped = (
        mg.inspect(native[0], native[1], train=True, optimizer="adamw", what_if=change).memory
        for change in (None, WhatIf(sharding="ddp", devices=4))
    )
    assert alone is not None
    assert wrapped is not None
    assert wrapped.peak_nbytes - alone.peak_nbytes == truth["ddp"]


def test_torch_itself_makes_such_shards(truth: Any, native: Any) -> None:
    described = mg.inspect(native[0]).model
    weights = tuple(map(_parameter, described.tensors))
    lifetimes = Lifetimes(steps=STEPS[:1], storages=weights, forward_steps=1)
    found = shard(lifetimes, "fsdp3", 4, units_of(described)).storages[: len(weights)]
    assert {each.name: each.nbytes for each in found} == truth["fsdp3"][2]


def _parameter(tensor: Tensor) -> Storage:
    return Storage(nbytes=tensor.nbytes or 0, category="parameters", shape=tensor.shape, name=tensor.name)


def language_model(name: str, **sizes: Any) -> nn.Module:
    config = transformers.AutoConfig.for_model(name, vocab_size=200, **sizes)
    with torch.device("meta"):
        return transformers.AutoModelForCausalLM.from_config(config)


SMALL = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2}
EXPERTS = {
    "mixtral": ("mixtral", {**SMALL, "num_local_experts": 4}),
    "qwen": ("qwen3_moe", {**SMALL, "num_experts": 4, "num_experts_per_tok": 2, "head_dim": 16}),
    "deepseek": (
        "deepseek_v3",
        {
            **SMALL,
            "num_key_value_heads": 4,
            "n_routed_experts": 4,
            "n_group": 1,
            "topk_group": 1,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "first_k_dense_replace": 0,
        },
    ),
}
TOKENS = {"input_ids": torch.zeros(2, 16, dtype=torch.int64)}


def int4(numel: int) -> int:
    """The documented formula."""
    return -(-numel // 2) + 4 * -(-numel // 64)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize(("name", "sizes"), EXPERTS.values(), ids=EXPERTS)
def test_experts_and_routers_are_in_few_bits_whatever_the_number_of_blocks(
    name: str, sizes: Any, layers: int
) -> None:
    native = language_model(name, **sizes, num_hidden_layers=layers)
    expected = sum(
        int4(each.numel()) if "layers." in path and each.dim() > 1 else 4 * each.numel()
        for path, each in native.named_parameters()
    )
    report = mg.inspect(native, TOKENS, what_if=WhatIf(weights="int4"))
    assert report.memory.by_category["parameters"] == expected
    [coverage] = report.memory.coverage
    assert {"lm_head.weight", "model.embed_tokens.weight"} <= set(coverage.unchanged)
    assert coverage.of_nbytes == sum(4 * each.numel() for each in native.parameters())


ONE_BLOCK = {
    "llama": ("llama", {**SMALL, "num_hidden_layers": 1}),
    "gpt2": ("gpt2", {"n_embd": 64, "n_head": 4, "n_layer": 1, "tie_word_embeddings": False}),
}


@pytest.mark.parametrize(("name", "sizes"), ONE_BLOCK.values(), ids=ONE_BLOCK)
def test_with_one_block_the_output_layer_keeps_its_type(name: str, sizes: Any) -> None:
    native = language_model(name, **sizes)
    units = units_of(mg.inspect(native).model)
    assert units.linear
    assert all(".0." in path for path in units.linear)


def test_without_blocks_the_output_layer_of_a_vocabulary_keeps_its_type() -> None:
    layers = {"embed": nn.Embedding(50, 8), "rnn": nn.LSTM(8, 8), "head": nn.Linear(8, 50)}
    units = units_of(mg.inspect(nn.ModuleDict(layers)).model)
    assert units.linear.keys() == {"rnn.weight_ih_l0", "rnn.weight_hh_l0"}


PACKED = {
    "lstm": (nn.LSTM(64, 64), (4, 2, 64), 2 * int4(256 * 64) + 4 * 512),
    "gru": (nn.GRU(32, 64), (4, 2, 32), int4(192 * 32) + int4(192 * 64) + 4 * 384),
    "conv1d": (nn.Conv1d(16, 8, 3), (2, 16, 20), int4(8 * 16 * 3) + 4 * 8),
    "conv2d": (nn.Conv2d(3, 8, 3), (1, 3, 8, 8), int4(8 * 3 * 9) + 4 * 8),
    "attention": (
        nn.TransformerEncoderLayer(32, 4, 64),
        (5, 2, 32),
        int4(96 * 32) + int4(32 * 32) + 2 * int4(64 * 32) + 4 * (96 + 32 + 64 + 32 + 4 * 32),
    ),
}


@pytest.mark.parametrize(("native", "shape", "nbytes"), PACKED.values(), ids=PACKED)
def test_every_weight_of_products_is_in_few_bits(
    native: nn.Module, shape: tuple[int, ...], nbytes: int
) -> None:
    report = mg.inspect(native, torch.zeros(shape), what_if=WhatIf(weights="int4"))
    assert report.memory.by_category["parameters"] == nbytes
    assert "what-if-without-effect" not in {note.code for note in report.notes}


class OwnMatrix(nn.Module):
    """A weight that no layer holds, and one that is only added."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix, self.positions = nn.Parameter(torch.zeros(8, 4)), nn.Parameter(torch.zeros(3, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.matrix + self.positions


def test_what_the_run_multiplies_is_a_matrix_and_what_it_adds_is_none() -> None:
    report = mg.inspect(OwnMatrix(), torch.zeros(2, 3, 8), what_if=WhatIf(weights="int8"))
    [coverage] = report.memory.coverage
    assert coverage.unchanged == ("positions",)
    assert report.memory.by_category["parameters"] == (32 + 4 * 4) + 4 * 12
    found = mg.fit(OwnMatrix(), torch.zeros(2, 3, 8), device_nbytes=60)
    assert {each.coverage[0].unchanged for each in found.options if each.what_if.weights == "int8"} == {
        ("positions",)
    }


@pytest.mark.parametrize(
    ("native", "change"),
    [
        (nn.LayerNorm(8), WhatIf(weights="int4")),
        (nn.LayerNorm(8), WhatIf(sharding="tensor", devices=2)),
        (nn.Linear(8, 8), WhatIf(sharding="ddp", devices=2)),
        (nn.Linear(8, 8), WhatIf(sharding="fsdp3", devices=1)),
    ],
)
def test_a_change_that_changes_nothing_has_a_note(native: nn.Module, change: WhatIf) -> None:
    report = mg.inspect(native, torch.zeros(2, 8), what_if=change)
    assert "what-if-without-effect" in {note.code for note in report.notes}
    assert report.memory.peak_nbytes == mg.inspect(native, torch.zeros(2, 8)).memory.peak_nbytes


def test_tensor_parallel_shares_experts_and_heads() -> None:
    name, sizes = EXPERTS["mixtral"]
    native = language_model(name, **sizes, num_hidden_layers=2)
    report = mg.inspect(native, TOKENS, what_if=WhatIf(sharding="tensor", devices=4))
    nbytes = {path: 4 * each.numel() for path, each in native.named_parameters()}
    parts = {"norm": 1, "k_proj": 2, "v_proj": 2}  # two heads of keys and values, each held twice
    expected = sum(
        each // next((by for part, by in parts.items() if part in path), 4) for path, each in nbytes.items()
    )
    assert report.memory.by_category["parameters"] == expected
    assert all("norm" in path for path in report.memory.coverage[0].unchanged)
    with pytest.raises(UsageError, match="8 devices cannot share 4 heads"):
        mg.inspect(native, TOKENS, what_if=WhatIf(sharding="tensor", devices=8))


def test_more_devices_than_rows_are_refused_and_a_weight_with_fewer_stays_whole() -> None:
    mlp = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(16, 32))
    with pytest.raises(UsageError, match="1,024 devices cannot share 128 rows or columns"):
        mg.inspect(mlp[:2], torch.zeros(4, 64), what_if=WhatIf(sharding="tensor", devices=1024))
    found = shard(step(), "tensor", 16, units_of(model()))
    assert [each.nbytes for each in found.storages[:4]] == [200, 256, 256, 320]
    assert mlp[2].weight.shape == (32, 16)
