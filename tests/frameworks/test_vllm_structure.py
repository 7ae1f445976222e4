"""The rules that read vLLM's layers, on stand-ins that have what such layers have."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from modelglass.frameworks.vllm.meta.rank_report import correct_shards
from modelglass.frameworks.vllm.structure.modules import Reading, read
from modelglass.frameworks.vllm.structure.stored_tensor import StoredTensor, orient
from modelglass.report import Engine, Model, Note, Piece, Report, Shard, Tensor


class UnquantizedMethod:
    pass


class SomeMethod:
    pass


class Linear(nn.Module):
    """A linear layer as vLLM describes one: rows of each piece here, and of all ranks."""

    def __init__(
        self, held: list[int], inputs: int, *, ranks: int = 1, shape: Any = None, **more: Any
    ) -> None:
        super().__init__()
        self.input_size = self.input_size_per_partition = inputs
        self.output_partition_sizes = held
        self.output_size = sum(held) * ranks
        self.tp_size = ranks
        self.params_dtype = torch.bfloat16
        self.quant_method: Any = UnquantizedMethod()
        for name, value in more.items():
            setattr(self, name, value)
        self.weight = parameter(*(shape or (sum(held), inputs)))


class Holder(nn.Module):
    packed_modules_mapping = {"fused": ["a", "b"]}  # noqa: RUF012 - as vLLM's models have it


def parameter(*shape: int, dtype: torch.dtype = torch.bfloat16) -> nn.Parameter:
    return nn.Parameter(torch.empty(shape, dtype=dtype, device="meta"), requires_grad=False)


def holding(**children: nn.Module) -> Holder:
    holder = Holder()
    for name, child in children.items():
        holder.add_module(name, child)
    return holder


def only(reading: Reading) -> Tensor:
    (tensor,) = (tensor for tensor in reading.model.tensors if tensor.kind != "buffer")
    return tensor


def codes(reading: Reading) -> list[str]:
    return [note.code for note in reading.notes]


def test_pieces_are_named_by_the_model_around_their_layer() -> None:
    reading = read(holding(fused=Linear([4, 2], 8, ranks=2)))
    assert reading.model.source == "vllm"
    assert reading.shards["fused.weight"] == Shard(
        whole=(12, 8),
        dim=0,
        pieces=(Piece(name="a", size=8, held=4), Piece(name="b", size=4, held=2)),
    )


def test_pieces_that_nobody_names_have_no_names() -> None:
    shard = read(holding(other=Linear([4, 2], 8))).shards["other.weight"]
    assert [piece.name for piece in shard.pieces] == [None, None]
    assert shard.dim is None


def test_heads_that_several_ranks_hold_count_once() -> None:
    heads = {"total_num_heads": 8, "total_num_kv_heads": 1, "head_size": 16, "num_heads": 2}
    shard = read(holding(qkv=Linear([32, 16, 16], 8, ranks=4, **heads))).shards["qkv.weight"]
    assert shard.whole == (8 * 16 + 2 * 16, 8)
    assert [(piece.size, piece.held) for piece in shard.pieces] == [(128, 32), (16, 16), (16, 16)]


def test_an_emptied_weight_has_the_shape_and_type_of_its_layer() -> None:
    reading = read(holding(one=Linear([4], 8, shape=(0,))))
    tensor = only(reading)
    assert (tensor.kind, tensor.shape, tensor.params, tensor.nbytes) == ("packed", (0,), 32, 64)
    assert codes(reading) == ["packed-weights"]


def test_a_weight_may_stand_on_its_side_or_have_ones_between() -> None:
    turned = read(holding(one=Linear([4], 8, ranks=2, shape=(8, 4))))
    assert turned.shards["one.weight"] == Shard(whole=(8, 8), dim=1)
    convolution = read(holding(one=Linear([4], 8, ranks=2, shape=(4, 1, 8))))
    assert convolution.shards["one.weight"] == Shard(whole=(8, 1, 8), dim=0)


def test_a_shape_that_does_not_fit_is_not_turned() -> None:
    assert orient(StoredTensor((4, 8)), (2, 16)) is None


def test_a_quantized_weight_counts_as_what_it_stands_for() -> None:
    layer = Linear(
        [16], 8, quant_method=SomeMethod(), quant_config=SimpleNamespace(get_name=lambda: "awq_marlin")
    )
    del layer.weight
    layer.qweight = parameter(8, 2, dtype=torch.int32)
    layer.scales, layer.bias = parameter(1, 16), parameter(16)
    reading = read(holding(one=layer))
    tensors = {tensor.name: tensor for tensor in reading.model.tensors}
    assert tensors["one.qweight"].params == 16 * 8
    packing = tensors["one.qweight"].packing
    assert packing is not None
    assert (packing.scheme, packing.side_nbytes) == ("awq-4bit", 32)
    assert tensors["one.scales"].kind == "buffer"
    assert tensors["one.bias"].kind == "parameter"


def test_a_weight_that_is_gone_and_that_nothing_tells_of_is_a_hole() -> None:
    layer = Linear([16], 8, quant_method=SomeMethod())
    del layer.weight
    reading = read(holding(one=layer))
    assert only(reading).shape is None
    assert codes(reading) == ["empty-parameter"]


def test_an_empty_parameter_of_an_unknown_module_is_a_hole() -> None:
    holder = holding()
    holder.something = parameter(0)
    reading = read(holder)
    assert only(reading).shape is None
    assert codes(reading) == ["empty-parameter"]


def test_a_layer_around_another_one_has_no_weight_of_its_own() -> None:
    outer = Linear([4], 8)
    del outer.weight
    outer.base_layer = Linear([4], 8)
    assert [tensor.name for tensor in read(holding(one=outer)).model.tensors] == ["one.base_layer.weight"]


def test_loaders_tell_along_which_dimension_ranks_divide() -> None:
    def along(shard_axis: int) -> Any:
        def loader(param: Any, loaded: Any, rank: int = 1) -> None:
            size = param.shape[shard_axis]
            param.data.copy_(loaded.narrow(shard_axis, rank * size, size))

        return loader

    def second_half(param: Any, loaded: Any, tp_rank: int) -> None:
        param.data.copy_(loaded.split(loaded.shape[1] // 2, dim=1)[tp_rank])

    def as_it_is(param: Any, loaded: Any, tp_rank: int = 1) -> None:
        if param.dim() > 1:
            loaded = loaded.narrow(0, tp_rank * param.shape[0], param.shape[0])
        assert param.shape == loaded.shape

    holder = holding(one=Linear([4], 8, ranks=2))
    holder.first, holder.second, holder.norm = parameter(3, 5), parameter(3, 5), parameter(7)
    holder.first.weight_loader = along(0)  # type: ignore[attr-defined]
    holder.second.weight_loader = partial(second_half, tp_rank=1)  # type: ignore[attr-defined]
    holder.norm.weight_loader = as_it_is  # type: ignore[attr-defined]
    reading = read(holder)
    assert reading.shards["first"] == Shard(whole=(6, 5), dim=0)
    assert reading.shards["second"] == Shard(whole=(3, 10), dim=1)
    assert "norm" not in reading.shards
    assert codes(reading) == []


def test_a_loader_that_tells_too_little_is_said_so_and_the_whole_completes_it() -> None:
    def loader(param: Any, loaded: Any, name: str, tp_rank: int) -> None:
        raise NotImplementedError

    holder = holding(one=Linear([4], 8, ranks=2))
    holder.strange = parameter(3, 5)
    holder.strange.weight_loader = loader  # type: ignore[attr-defined]
    held = read(holder)
    assert codes(held) == ["unclear-shard"]
    alone = holding(one=Linear([8], 8))
    alone.strange = parameter(6, 5)
    found = correct_shards(_report(held), _report(read(alone)))
    assert found.engine is not None
    assert found.engine.shards["strange"] == Shard(whole=(6, 5), dim=0)
    assert [note.code for note in found.notes] == ["shard-corrected"]


def test_completing_keeps_notes_that_are_of_no_place() -> None:
    note = Note(code="x", text="y")
    nothing = _report(Reading(Model(name="m", source="vllm"), {}, (note,)))
    assert correct_shards(nothing, nothing).notes == (note,)


def _report(reading: Reading) -> Report:
    engine = Engine(version="0", reached="meta", shards=reading.shards)
    return Report(model=reading.model, engine=engine, notes=reading.notes)


def test_one_row_for_each_head_of_this_rank_is_divided() -> None:
    attention = holding(qkv=Linear([8], 8, ranks=2, num_heads=4, total_num_heads=8))
    attention.sinks = parameter(4)
    assert read(holding(attention=attention)).shards["attention.sinks"] == Shard(whole=(8,), dim=0)


def test_padding_of_experts_is_no_weight() -> None:
    layer = nn.Module()
    layer.local_num_experts = 4
    layer.hidden_size, layer.intermediate_size_per_partition = 64, 32
    layer.ckpt_gate_proj_name, layer.ckpt_up_proj_name = "gate", "up"
    layer.moe_config = SimpleNamespace(
        num_experts=8,
        num_logical_experts=8,
        num_local_experts=4,
        hidden_dim_unpadded=60,
        intermediate_size=30,
        w13_num_shards=2,
        moe_parallel_config=SimpleNamespace(tp_size=1, tp_rank=0, ep_size=2),
    )
    layer.w13_weight, layer.w2_weight = parameter(4, 64, 64), parameter(4, 64, 32)
    reading = read(holding(experts=layer))
    first, second = reading.shards["experts.w13_weight"], reading.shards["experts.w2_weight"]
    assert (first.whole, first.dim, first.padding) == ((8, 60, 60), 0, 4 * 2 * (32 * 64 - 30 * 60))
    assert (second.whole, second.dim, second.padding) == ((8, 60, 30), 0, 4 * (64 * 32 - 60 * 30))
    assert [piece.name for piece in first.pieces] == ["gate", "up"]


def test_a_view_of_a_weight_is_no_memory_of_its_own() -> None:
    holder = holding(conv=Linear([4], 8))
    holder.register_buffer("view", holder.conv.weight.view(8, 4), persistent=False)  # type: ignore[union-attr,operator]
    reading = read(holder)
    assert {tensor.storage for tensor in reading.model.tensors} == {"conv.weight"}
    assert reading.model.tensors[0].name == "conv.weight"  # which comes first, and so counts


def test_lists_of_modules_that_hang_elsewhere_are_nothing_odd() -> None:
    holder = holding(one=Linear([4], 8))
    holder.listed = [holder.one]
    assert codes(read(holder)) == []
    holder.listed.append(Linear([4], 8))
    assert codes(read(holder)) == ["unregistered-module"]


def test_nothing_is_said_of_training() -> None:
    norm = nn.LayerNorm(8, device="meta")
    reading = read(holding(one=Linear([4], 8), norm=norm))
    assert {tensor.trainable for tensor in reading.model.tensors} == {None}


class Experts(nn.Module):
    """A layer of transformers', which has sizes of the names that vLLM's linear layers have."""

    def __init__(self) -> None:
        super().__init__()
        self.num_experts, self.output_size, self.input_size = 4, 6, 8
        self.weight = parameter(4, 6, 8)


def test_a_layer_that_is_not_vllms_is_taken_as_it_is() -> None:
    reading = read(holding(experts=Experts(), one=Linear([4], 8, ranks=2)))
    assert "experts.weight" not in reading.shards
    assert reading.model.tensors[0].shape == (4, 6, 8)


class LeftOut(nn.Module):
    """What vLLM puts where a layer was that a model does without."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.stage_name = "output"
        self.__dict__["module"] = layer

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["module"], name)


def test_a_layer_that_the_model_does_without_holds_nothing() -> None:
    reading = read(holding(one=Linear([4], 8), head=LeftOut(Linear([100], 8))))
    assert [tensor.name for tensor in reading.model.tensors] == ["one.weight"]
    assert reading.notes == ()
