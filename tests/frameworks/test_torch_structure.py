"""The module tree, its tensors and its settings."""

from __future__ import annotations

import json
from dataclasses import make_dataclass
from enum import Enum
from typing import Any

import pytest
import torch
from torch import nn

import modelglass as mg
from models import Apply, Stateful, Tied, quantized, scripted

CONFIGS = [
    (
        nn.Conv1d(4, 8, 3, stride=2, groups=2, bias=False),
        {"in_channels": 4, "kernel_size": [3], "stride": [2], "groups": 2, "bias": False},
    ),
    (nn.Conv3d(2, 4, (1, 2, 3)), {"kernel_size": [1, 2, 3], "bias": True, "padding_mode": "zeros"}),
    (nn.ConvTranspose2d(2, 4, 2, output_padding=0), {"transposed": True, "output_padding": [0, 0]}),
    (nn.Linear(3, 8, bias=False), {"in_features": 3, "out_features": 8, "bias": False}),
    (nn.BatchNorm1d(7, momentum=0.2), {"num_features": 7, "momentum": 0.2, "affine": True}),
    (nn.LayerNorm((3, 4), eps=1e-3), {"normalized_shape": [3, 4], "eps": 1e-3, "elementwise_affine": True}),
    (nn.GroupNorm(2, 4), {"num_groups": 2, "num_channels": 4}),
    (nn.RMSNorm(4), {"normalized_shape": [4], "eps": None}),
    (nn.Embedding(10, 4, padding_idx=0), {"num_embeddings": 10, "embedding_dim": 4, "padding_idx": 0}),
    (
        nn.LSTM(3, 4, 2, bidirectional=True),
        {"mode": "LSTM", "hidden_size": 4, "num_layers": 2, "bidirectional": True},
    ),
    (nn.MultiheadAttention(8, 2, dropout=0.1), {"embed_dim": 8, "num_heads": 2, "dropout": 0.1}),
    (nn.Dropout(0.3, inplace=True), {"p": 0.3, "inplace": True}),
    (nn.Softmax(dim=-1), {"dim": -1}),
    (nn.GELU("tanh"), {"approximate": "tanh"}),
    (nn.LeakyReLU(0.1), {"negative_slope": 0.1}),
    (nn.MaxPool2d(3, 2, padding=1), {"kernel_size": 3, "stride": 2, "padding": 1}),
    (nn.AdaptiveAvgPool2d((None, 7)), {"output_size": [None, 7]}),
    (nn.Upsample(scale_factor=2, mode="nearest"), {"scale_factor": 2.0, "mode": "nearest"}),
    (nn.Flatten(2), {"start_dim": 2, "end_dim": -1}),
    (nn.PReLU(3), {"num_parameters": 3}),
    (nn.Bilinear(2, 3, 4), {"in1_features": 2, "in2_features": 3, "out_features": 4, "bias": True}),
]


@pytest.mark.parametrize(("module", "expected"), CONFIGS, ids=lambda x: type(x).__name__)
def test_settings_of_any_layer_are_found(module: nn.Module, expected: dict[str, object]) -> None:
    config = mg.inspect(module).model.modules[0].config
    assert {key: config.get(key, "absent") for key in expected} == expected
    json.dumps(config, allow_nan=False)


class Colour(Enum):
    RED = 1


class Odd(nn.Module):
    def __init__(self, activation: object, groups: nn.ModuleList, limit: float) -> None:
        super().__init__()
        self.activation, self.groups, self.limit = activation, groups, limit
        self.colour, self.precision, self.place = Colour.RED, torch.float16, torch.device("cpu")
        self.table = list(range(1000))
        self.callback = lambda: None
        self._secret = 3


def test_settings_of_user_classes_are_json_safe() -> None:
    module = Odd(torch.relu, nn.ModuleList([nn.ReLU()]), float("inf"))
    config = mg.inspect(module).model.modules[0].config
    assert config == {
        "activation": "relu",
        "limit": "inf",
        "colour": "RED",
        "precision": "float16",
        "place": "cpu",
    }


def test_shared_modules_appear_once_with_their_other_paths() -> None:
    shared = nn.Linear(4, 4)
    model = nn.ModuleDict({"a": shared, "b": nn.Sequential(shared, nn.ReLU())})
    report = mg.inspect(model)
    paths = {module.path: module.aliases for module in report.model.modules}
    assert paths == {"": (), "a": ("b.0",), "b": (), "b.1": ()}
    assert report.counts.params == 20


def test_a_module_that_contains_itself_ends() -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    model.add_module("again", model)
    report = mg.inspect(model)
    assert [module.path for module in report.model.modules] == ["", "0"]
    assert report.model.modules[0].aliases == ("again",)


def test_tied_tensors_count_once_and_name_their_owner() -> None:
    counts = mg.inspect(Tied()).counts
    assert counts.params == 64_000
    assert counts.tied == {"head.weight": "embed.weight"}
    assert counts.by_module["head"].own.params == 0


def test_parameters_in_the_memory_of_another_are_told() -> None:
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    model[1].weight = nn.Parameter(model[0].weight.data)
    report = mg.inspect(model)
    assert report.counts.params == 16
    assert [note.where for note in report.notes if note.code == "shared-memory"] == [("1.weight",)]


def test_views_of_one_memory_that_do_not_overlap_are_two() -> None:
    flat = torch.zeros(8)
    model = nn.Module()
    model.a, model.b = nn.Parameter(flat[:4]), nn.Parameter(flat[4:])
    assert mg.inspect(model).counts.params == 8


def test_uninitialised_parameters_are_named_not_counted() -> None:
    report = mg.inspect(nn.Sequential(nn.LazyLinear(8), nn.Linear(8, 2)))
    assert report.counts.params == 18
    assert report.counts.uninitialised == ("0.weight", "0.bias")
    assert "uninitialised" in {note.code for note in report.notes}


def test_buffers_are_apart_from_parameters() -> None:
    counts = mg.inspect(nn.BatchNorm2d(16)).counts
    assert (counts.params, counts.buffers, counts.nbytes) == (32, 33, 4 * 64 + 8)


def test_modules_in_a_plain_list_are_warned_about() -> None:
    model = nn.Module()
    model.layers = [nn.Linear(2, 2)]
    note = next(n for n in mg.inspect(model).notes if n.code == "unregistered-module")
    assert (note.severity, note.where) == ("warning", ("layers",))


def test_hidden_quantized_weights_are_logical_parameters() -> None:
    report = mg.inspect(quantized(nn.Sequential(nn.Linear(16, 32)), nn.Linear))
    weight = next(t for t in report.model.tensors if t.name.endswith("weight"))
    assert (weight.kind, weight.dtype, weight.shape, weight.bits_per_weight) == (
        "packed",
        "qint8",
        (32, 16),
        8,
    )
    assert report.counts.logical_params == report.counts.params == 544
    assert report.counts.nbytes == 512 + 4 * 32
    assert "hidden-weights" in {note.code for note in report.notes}


def test_weights_frozen_into_torchscript_are_counted() -> None:
    model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2)).eval()
    report = mg.inspect(torch.jit.freeze(torch.jit.script(model)), torch.zeros(4, 3))
    assert (report.counts.params, report.counts.trainable, report.cost.macs) == (50, 0, 160)
    assert {tensor.name for tensor in report.model.tensors} == {"0.weight", "0.bias", "2.weight", "2.bias"}
    assert "hidden-weights" in {note.code for note in report.notes}


def test_scripted_modules_show_their_original_types() -> None:
    modules = mg.inspect(scripted(nn.Sequential(nn.Linear(16, 32), nn.ReLU()))).model.modules
    assert [module.type for module in modules] == ["Sequential", "Linear", "ReLU"]
    assert modules[1].config == {"in_features": 16, "out_features": 32}


def test_exported_programs_are_models_too() -> None:
    program = torch.export.export(nn.Sequential(nn.Linear(16, 32), nn.ReLU()), (torch.randn(4, 16),))
    report = mg.inspect(program, inputs=torch.randn(4, 16))
    assert (report.counts.params, report.cost.macs) == (544, 2_048)


def test_order_is_the_order_of_definition() -> None:
    model = Apply(None, z=nn.Linear(1, 1), a=nn.Sequential(nn.ReLU(), nn.Linear(1, 1)), m=nn.ReLU())
    assert [module.path for module in mg.inspect(model).model.modules] == ["", "z", "a", "a.0", "a.1", "m"]


def test_modes_are_reported_per_module() -> None:
    model = Stateful()
    model.norm.eval()
    training = {module.path: module.training for module in mg.inspect(model).model.modules}
    assert training == {"": True, "layer": True, "norm": False}


def test_the_configuration_of_a_whole_model_is_named_and_not_read() -> None:
    """Some refuse to be asked for a field that differs from layer to layer."""
    names = [f"field_{number}" for number in range(30)]
    made = make_dataclass("Large", [(name, int, 0) for name in names])

    class Refusing(made):  # type: ignore[misc, valid-type]
        def __getattribute__(self, name: str) -> Any:
            if name.startswith("field_"):
                raise ValueError("it differs from layer to layer")
            return super().__getattribute__(name)

    layer = nn.Identity()
    layer.config = Refusing.__new__(Refusing)
    layer.small = make_dataclass("Small", [("slope", float)])(0.5)
    assert mg.inspect(layer).model.modules[0].config == {"small": {"slope": 0.5}}
