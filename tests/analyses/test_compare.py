"""Ports of small torch networks to MLX: right ones line up, and each wrong one is found where it is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import pytest
import torch
from mlx import nn as mnn
from mlx_lm.models.switch_layers import SwitchLinear
from torch import nn

import build
import modelglass as mg
from differences import found
from modelglass.analyses.compare import compare
from modelglass.analyses.compare.alignment.sequences import align_sequences


class Cnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.fc1 = nn.Linear(3136, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(self.conv1(x).relu())
        x = self.pool(self.conv2(x).relu()).flatten(1)
        found: torch.Tensor = self.fc2(self.fc1(x).relu())
        return found


class Port(mnn.Module):
    """The port of `Cnn`, with what a test wants to be wrong with it."""

    def __init__(
        self,
        names: tuple[str, ...] = ("conv1", "conv2", "fc1", "fc2"),
        kernel: int = 3,
        stride: int = 1,
        width: int = 128,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.names = names
        self[names[0]] = mnn.Conv2d(3, 32, 3, padding=1)
        self[names[1]] = mnn.Conv2d(32, 64, kernel, stride=stride, padding=1)
        self.pool = mnn.MaxPool2d(2)
        self[names[2]] = mnn.Linear(3136, width)
        self[names[3]] = mnn.Linear(width, 10, bias=bias)

    def __call__(self, x: mx.array) -> mx.array:
        conv1, conv2, fc1, fc2 = (self[name] for name in self.names)
        x = self.pool(mnn.relu(conv1(x)))
        x = self.pool(mnn.relu(conv2(x))).flatten(1)
        return fc2(mnn.relu(fc1(x)))


class Several(mnn.Module):
    """Modules in a list."""

    def __init__(self, *members: mnn.Module) -> None:
        super().__init__()
        self.members = list(members)


class Named(mnn.Module):
    """Modules by name."""

    def __init__(self, **members: mnn.Module) -> None:
        super().__init__()
        for name, member in members.items():
            self[name] = member


def seq(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(*layers)


def port(*layers: Any) -> mnn.Sequential:
    return mnn.Sequential(*layers)


def encoder() -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(16, 2, 32, norm_first=True)
    return nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(16), enable_nested_tensor=False)


def packed(model: mnn.Module) -> mnn.Module:
    mnn.quantize(model)
    return model


RIGHT: dict[str, tuple[Callable[[], nn.Module], Callable[[], mnn.Module]]] = {
    "layers in a row": (
        lambda: seq(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)),
        lambda: port(mnn.Linear(4, 8), mnn.ReLU(), mnn.Linear(8, 2)),
    ),
    "functions for layers": (
        lambda: seq(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 2)),
        lambda: port(mnn.Linear(4, 8), mnn.relu, mnn.Linear(8, 2)),
    ),
    "convolutions": (Cnn, Port),
    "other names": (Cnn, lambda: Port(("stem", "body", "hidden", "out"))),
    "transposed convolutions": (
        lambda: seq(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.ConvTranspose2d(8, 3, 3, 2)),
        lambda: port(mnn.Conv2d(3, 8, 3, 2), mnn.ReLU(), mnn.ConvTranspose2d(8, 3, 3, 2)),
    ),
    "convolutions of other ranks": (
        lambda: seq(nn.Conv1d(4, 6, 5), nn.Conv3d(6, 8, (1, 2, 3)), nn.ConvTranspose1d(8, 4, 2)),
        lambda: port(mnn.Conv1d(4, 6, 5), mnn.Conv3d(6, 8, (1, 2, 3)), mnn.ConvTranspose1d(8, 4, 2)),
    ),
    "groups": (lambda: nn.Conv2d(8, 8, 3, groups=4), lambda: mnn.Conv2d(8, 8, 3, groups=4)),
    "LSTM": (lambda: nn.LSTM(10, 20), lambda: mnn.LSTM(10, 20)),
    "GRU": (lambda: nn.GRU(10, 20), lambda: mnn.GRU(10, 20)),
    "RNN": (lambda: nn.RNN(10, 20), lambda: mnn.RNN(10, 20)),
    "recurrent without bias": (lambda: nn.GRU(4, 6, bias=False), lambda: mnn.GRU(4, 6, bias=False)),
    "two recurrent layers": (
        lambda: nn.LSTM(10, 20, num_layers=2),
        lambda: Several(mnn.LSTM(10, 20), mnn.LSTM(20, 20)),
    ),
    "both directions": (
        lambda: nn.GRU(10, 20, bidirectional=True),
        lambda: Named(forward=mnn.GRU(10, 20), backward=mnn.GRU(10, 20)),
    ),
    "batch norm": (
        lambda: seq(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU()),
        lambda: port(mnn.Conv2d(3, 8, 3, bias=False), mnn.BatchNorm(8), mnn.ReLU()),
    ),
    "group norm": (
        lambda: nn.GroupNorm(2, 8),
        lambda: mnn.GroupNorm(2, 8, pytorch_compatible=True),
    ),
    "RMS norm": (lambda: nn.RMSNorm(8, eps=1e-5), lambda: mnn.RMSNorm(8)),
    "attention": (lambda: nn.MultiheadAttention(16, 2), lambda: mnn.MultiHeadAttention(16, 2, bias=True)),
    "packed weights": (
        lambda: seq(nn.Embedding(32, 64), nn.Linear(64, 64)),
        lambda: packed(port(mnn.Embedding(32, 64), mnn.Linear(64, 64))),
    ),
    "other precision": (
        lambda: seq(nn.Linear(4, 8)).to(torch.bfloat16),
        lambda: port(mnn.Linear(4, 8)),
    ),
    "queries, keys and values joined": (
        lambda: nn.ModuleDict({"qkv": nn.Linear(8, 24), "out": nn.Linear(8, 8)}),
        lambda: Named(q=mnn.Linear(8, 8), k=mnn.Linear(8, 8), v=mnn.Linear(8, 8), out=mnn.Linear(8, 8)),
    ),
    "weight norm": (
        lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 8)),
        lambda: mnn.Linear(4, 8),
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_port_is_the_same(name: str) -> None:
    original, ported = RIGHT[name]
    comparison = mg.compare_structure(original(), ported())
    assert comparison.same, found(comparison)
    assert (comparison.a.matched, comparison.b.matched) == (comparison.a.tensors, comparison.b.tensors)
    backwards = mg.compare_structure(ported(), original())
    assert backwards.same, found(backwards)


def left_in_torch_layout() -> mnn.Module:
    model = Port()
    model.conv2.weight = mx.zeros((64, 32, 3, 3))
    return model


def frozen() -> mnn.Module:
    model = Port()
    model.fc1.freeze()
    return model


BLOCK = (nn.Linear(4, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))

WRONG: dict[str, tuple[Callable[[], nn.Module], Callable[[], mnn.Module], list[Any]]] = {
    "no bias": (Cnn, lambda: Port(bias=False), [("fc2", "fc2", "bias")]),
    "kernel": (Cnn, lambda: Port(kernel=5), [("conv2", "conv2", "shape")]),
    "stride": (Cnn, lambda: Port(stride=2), [("conv2", "conv2", "config")]),
    "width": (
        Cnn,
        lambda: Port(width=64),
        [("fc1", "fc1", "shape"), ("fc1", "fc1", "shape"), ("fc2", "fc2", "shape")],
    ),
    "width, under other names": (
        Cnn,
        lambda: Port(("stem", "body", "hidden", "out"), width=64),
        [("fc1", "hidden", "shape"), ("fc1", "hidden", "shape"), ("fc2", "out", "shape")],
    ),
    "layout": (Cnn, left_in_torch_layout, [("conv2", "conv2", "layout")]),
    "frozen": (Cnn, frozen, [("fc1", "fc1", "trainable"), ("fc1", "fc1", "trainable")]),
    "a layer is missing": (
        lambda: seq(*BLOCK),
        lambda: port(mnn.Linear(4, 8), mnn.ReLU(), mnn.Linear(8, 8), mnn.ReLU(), mnn.Linear(8, 2)),
        [("2", None, "missing-in-b")],
    ),
    "a layer too many": (
        lambda: seq(*BLOCK),
        lambda: port(
            *(mnn.Linear(4, 8), mnn.ReLU(), mnn.LayerNorm(8), mnn.Linear(8, 8), mnn.RMSNorm(8)),
            *(mnn.ReLU(), mnn.Linear(8, 2)),
        ),
        [(None, "layers.4", "extra-in-b")],
    ),
    "another function": (
        lambda: seq(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)),
        lambda: port(mnn.Linear(4, 8), mnn.GELU(), mnn.Linear(8, 2)),
        [("1", "layers.1", "kind")],
    ),
    "another function, not as a module": (
        lambda: seq(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)),
        lambda: port(mnn.Linear(4, 8), mnn.gelu, mnn.Linear(8, 2)),
        [("1", "layers.1", "kind")],
    ),
    "another norm": (
        lambda: seq(nn.Linear(4, 8, bias=False), nn.LayerNorm(8, bias=False)),
        lambda: port(mnn.Linear(4, 8, bias=False), mnn.RMSNorm(8)),
        [("1", "layers.1", "kind")],
    ),
    "layers exchanged in a list": (
        lambda: seq(nn.Linear(4, 8), nn.Linear(8, 4)),
        lambda: port(mnn.Linear(8, 4), mnn.Linear(4, 8)),
        [("1", "layers.0", "order")],
    ),
    "eps": (lambda: nn.LayerNorm(8, eps=1e-6), lambda: mnn.LayerNorm(8), [("", "", "config")]),
    "groups of channels": (lambda: nn.GroupNorm(2, 8), lambda: mnn.GroupNorm(2, 8), [("", "", "config")]),
    "attention without biases": (
        lambda: nn.MultiheadAttention(16, 2),
        lambda: mnn.MultiHeadAttention(16, 2),
        [
            *(("", "query_proj", "bias"), ("", "key_proj", "bias"), ("", "value_proj", "bias")),
            ("out_proj", "out_proj", "bias"),
        ],
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_port_is_told_where_it_is_wrong(name: str) -> None:
    original, ported, expected = WRONG[name]
    comparison = mg.compare_structure(original(), ported())
    assert found(comparison) == expected
    assert not comparison.same
    assert sum(comparison.codes.values()) == len(expected)


def test_layers_that_are_exchanged_by_name_are_told_so() -> None:
    original = nn.ModuleDict({"first": nn.Linear(4, 8), "second": nn.Linear(8, 4)})
    ported = Named(first=mnn.Linear(8, 4), second=mnn.Linear(4, 8))
    comparison = mg.compare_structure(original, ported)
    assert comparison.codes["order"] == 2
    text = next(each.text for each in comparison.pairs[0].deviations if each.code == "order")
    assert text == "it fits second, and second fits first: they are exchanged"


def test_the_encoder_of_mlx_has_no_biases_in_its_attention_and_all_else_of_torch() -> None:
    comparison = mg.compare_structure(encoder(), mnn.TransformerEncoder(2, 16, 2, 32))
    parts = ("query_proj", "key_proj", "value_proj", "out_proj")
    places = {f"layers.{layer}.attention.{part}" for layer in range(2) for part in parts}
    assert {(b, code) for _, b, code in found(comparison)} == {(place, "bias") for place in places}


def test_what_frameworks_do_in_their_own_ways_is_explained_and_not_counted() -> None:
    comparison = mg.compare_structure(nn.LSTM(10, 20), mnn.LSTM(10, 20))
    assert (comparison.a.params, comparison.b.params) == (2_560, 2_480)
    (pair,) = comparison.pairs
    assert [(each.code, each.standing) for each in pair.deviations] == [("folded", "framework")]
    bias = next(each for each in pair.tensors if each.b == ("bias",))
    assert bias.a == ("bias_ih_l0", "bias_hh_l0")
    norms = mg.compare_structure(nn.BatchNorm2d(4), mnn.BatchNorm(4))
    codes = [(each.code, each.standing) for pair in norms.pairs for each in pair.deviations]
    assert codes == [("buffer", "framework")] * 3  # two statistics, and a counter that only torch has


def test_tied_weights_may_be_one_module_and_must_not_be_two_memories() -> None:
    tied = nn.ModuleDict({"embed": nn.Embedding(10, 4), "head": nn.Linear(4, 10, bias=False)})
    tied["head"].weight = tied["embed"].weight
    right = mg.compare_structure(tied, Named(embed=mnn.Embedding(10, 4)))
    assert right.same
    assert [each.code for pair in right.pairs for each in pair.deviations] == ["tied"]
    wrong = mg.compare_structure(tied, Named(embed=mnn.Embedding(10, 4), head=mnn.Linear(4, 10, bias=False)))
    assert found(wrong) == [("head", "head", "tied")]


def test_experts_in_a_list_line_up_with_stacked_ones() -> None:
    experts = nn.ModuleDict({"experts": nn.ModuleList(nn.Linear(8, 4, bias=False) for _ in range(3))})
    comparison = mg.compare_structure(experts, Named(experts=SwitchLinear(8, 4, 3, bias=False)))
    assert comparison.same
    (tensors,) = comparison.pairs[0].tensors
    assert tensors.a == tuple(f"experts.{n}.weight" for n in range(3))
    assert tensors.shape_a == tensors.shape_b == (3, 4, 8)
    assert not mg.compare_structure(experts, Named(experts=SwitchLinear(8, 4, 2, bias=False))).same


def test_both_runs_are_compared_with_channels_where_each_has_them() -> None:
    comparison = mg.compare_structure(
        Cnn(), Port(), inputs_a=torch.zeros(1, 3, 28, 28), inputs_b=mx.zeros((1, 28, 28, 3))
    )
    assert comparison.same
    assert comparison.a.macs == comparison.b.macs == 4_692_736
    assert comparison.first is None
    (note,) = comparison.notes
    assert (note.code, note.where) == ("flattened", ("fc1",))


def test_the_first_difference_is_the_first_that_is_called() -> None:
    class Turned(Cnn):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.conv1(self.conv2(x))
            return found

    one, other = Turned(), Turned()
    for model in (one, other):
        model.conv2 = nn.Conv2d(4, 3, 1)
    other.conv1.bias = None
    other.conv2.bias = None
    comparison = mg.compare_structure(one, other, inputs=torch.zeros(1, 4, 8, 8))
    assert [pair.a for pair in comparison.differing] == ["conv1", "conv2"]
    assert comparison.first is not None
    assert comparison.pairs[comparison.first].a == "conv2"


def test_a_part_that_gives_less_is_found_in_the_run() -> None:
    a, b = seq(nn.Linear(4, 4), nn.AvgPool1d(2)), seq(nn.Linear(4, 4), nn.AvgPool1d(4))
    comparison = mg.compare_structure(a, b, inputs=torch.zeros(1, 2, 4))
    assert {code for _, _, code in found(comparison)} == {"config", "output"}


def test_inputs_of_different_sizes_are_not_compared() -> None:
    layer = seq(nn.Linear(4, 4))
    comparison = mg.compare_structure(layer, layer, inputs_a=torch.zeros(1, 4), inputs_b=torch.zeros(2, 4))
    assert comparison.same
    assert [note.code for note in comparison.notes] == ["inputs-differ"]


def test_layers_without_weights_that_only_one_has_are_noted() -> None:
    comparison = mg.compare_structure(
        seq(nn.Linear(4, 4), nn.ReLU(), nn.Dropout()), Several(mnn.Linear(4, 4))
    )
    assert comparison.same
    (note,) = comparison.notes
    assert (note.code, note.where, note.details) == ("without-weights", ("1",), ("ReLU",))


def test_nothing_is_everything_that_differs_from_something() -> None:
    comparison = compare(build.model(), build.model(build.tensor("weight")))
    assert found(comparison) == [(None, "", "extra-in-b")]
    assert compare(build.model(), build.model()).same


@pytest.mark.parametrize(
    ("left", "right", "pairs"),
    [
        ("abc", "abc", [(0, 0), (1, 1), (2, 2)]),
        ("abcd", "abd", [(0, 0), (1, 1), (3, 2)]),
        ("abd", "abcd", [(0, 0), (1, 1), (2, 3)]),
        ("ab", "ba", [(0, 1)]),
        ("aXb", "axb", [(0, 0), (1, 1), (2, 2)]),
        ("", "ab", []),
    ],
    ids=["equal", "one missing", "one more", "exchanged", "alike", "none"],
)
def test_lists_line_up(left: str, right: str, pairs: list[tuple[int, int]]) -> None:
    def likeness(one: str, other: str) -> float:
        return 0.4 * (one.lower() == other.lower())

    assert align_sequences(left, right, key=str, likeness=likeness) == pairs
