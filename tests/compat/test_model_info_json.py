"""`model_info.json`: the documented keys with right numbers, for every kind of layer."""

from __future__ import annotations

import json
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch
from torch import nn

import modelglass as mg
from modelglass.compat.schemas import published
from models import SAMPLES, Answer, Apply, Structured, Tied, convolutional, llama

L, S = nn.Linear, nn.Sequential
SCHEMAS = Path(__file__).parents[2] / "docs" / "schema"
KEYS = ["framework", "model_name", "model_type", "parameters", "input_info", "output_info", "layers"]
LAYER_KEYS = """
layer_index name type parameters trainable parameter_shapes parameter_dtypes
""".split()
FLOAT = "torch.float32"


def parameters(document: Any) -> list[int]:
    return [layer["parameters"] for layer in document["layers"]]


def test_an_mlp() -> None:
    document = mg.model_info(S(L(10, 20), nn.ReLU(), L(20, 5), nn.Softmax(dim=-1)), torch.zeros(8, 10))
    assert set(KEYS) <= set(document)
    assert (document["framework"], document["model_type"], document["parameters"]) == (
        "torch",
        "Sequential",
        325,
    )
    assert document["input_info"] == {"shape": [8, 10], "dtype": FLOAT}
    assert document["output_info"] == {"shape": [8, 5], "dtype": FLOAT}
    first, relu, last, softmax = document["layers"]
    assert {key: first[key] for key in [*LAYER_KEYS, "in_features", "out_features", "bias"]} == {
        "layer_index": 0,
        "name": "0",
        "type": "Linear",
        "parameters": 220,
        "trainable": True,
        "parameter_shapes": [[20, 10], [20]],
        "parameter_dtypes": [FLOAT, FLOAT],
        "in_features": 10,
        "out_features": 20,
        "bias": True,
    }
    assert last["parameters"] == 105
    for layer in (relu, softmax):
        assert (layer["parameters"], layer["trainable"], layer["parameter_shapes"]) == (0, False, [])
    assert relu["inplace"] is False
    assert softmax["dim"] == -1
    assert relu["input_info"] == {"shape": [8, 20], "dtype": FLOAT}
    assert document["totals"]["macs"] == 8 * (10 * 20 + 20 * 5)
    assert document["memory"]["nbytes"] == 4 * 325


@pytest.mark.parametrize(("bias", "expected"), [(True, 448), (False, 432)])
def test_a_convolution(bias: bool, expected: int) -> None:
    layer = mg.model_info(S(nn.Conv2d(3, 16, 3, padding=1, bias=bias)), torch.zeros(1, 3, 8, 8))["layers"][0]
    assert layer["parameters"] == expected
    settings = ("in_channels", "out_channels", "kernel_size", "stride", "padding", "bias", "groups")
    assert [layer[key] for key in settings] == [3, 16, [3, 3], [1, 1], [1, 1], bias, 1]


def test_a_batch_norm_has_buffers_beside_its_parameters() -> None:
    layer = mg.model_info(S(nn.BatchNorm2d(16)), torch.zeros(1, 16, 2, 2))["layers"][0]
    assert (layer["parameters"], layer["buffers"]) == (32, 33)
    assert layer["parameter_shapes"] == [[16], [16]]
    settings = ("num_features", "eps", "momentum", "affine", "track_running_stats")
    assert [layer[key] for key in settings] == [16, 1e-05, 0.1, True, True]


def test_a_convolutional_network() -> None:
    document = mg.model_info(convolutional(), torch.zeros(4, 3, 32, 32))
    assert parameters(document) == [448, 32, 0, 4_640, 0, 0, 330]
    assert document["parameters"] == 5_450
    assert document["output_info"]["shape"] == [4, 10]


def test_containers_hold_what_is_in_them_and_totals_count_it_once() -> None:
    model = S(S(L(10, 15), nn.ReLU(), L(15, 20)), S(L(20, 25), nn.ReLU()), L(25, 5))
    document = mg.model_info(model, torch.zeros(1, 10))
    by_name = {layer["name"]: layer for layer in document["layers"]}
    assert (by_name["0"]["parameters"], by_name["1"]["parameters"]) == (485, 525)
    assert (by_name["0"]["num_layers"], by_name["0"]["own_parameters"]) == (3, 0)
    assert document["parameters"] == 1_140
    assert sum(layer["own_parameters"] for layer in document["layers"]) == 1_140
    assert 2_150 not in {document["parameters"], document["totals"]["parameters"]}


def test_dropouts_keep_their_settings() -> None:
    model = S(L(50, 100), nn.Dropout(0.3, inplace=True), nn.ReLU(), nn.Dropout(0.5), L(100, 10))
    document = mg.model_info(model, torch.zeros(1, 50))
    assert document["parameters"] == 6_110
    dropouts = [layer for layer in document["layers"] if layer["type"] == "Dropout"]
    assert [(layer["p"], layer["inplace"]) for layer in dropouts] == [(0.3, True), (0.5, False)]
    small = S(L(5, 10), nn.ReLU(), nn.Dropout(0.2), L(10, 1))
    assert mg.model_info(small, torch.zeros(1, 5))["parameters"] == 71


def runnable() -> list[str]:
    return [name for name in SAMPLES if name != "failing"]


@pytest.mark.parametrize("sample", runnable())
def test_every_sample_adds_up_and_follows_the_schema(sample: str, tmp_path: Path) -> None:
    model, inputs = SAMPLES[sample]()
    document = mg.model_info(model, inputs, path=tmp_path / "model_info.json")
    assert json.loads((tmp_path / "model_info.json").read_text()) == document
    jsonschema.validate(document, json.loads((SCHEMAS / "model-info-1.json").read_text()))
    own = [document["totals"]["own_parameters"], *(layer["own_parameters"] for layer in document["layers"])]
    if document["parameters"] is None:
        assert sample == "lazy"
        assert own == [0, None, None]
    else:
        assert sum(own) == document["parameters"]
    modules = dict(model.named_modules())
    names = [layer["name"] for layer in document["layers"]]
    assert names == [name for name in modules if name]
    assert [layer["layer_index"] for layer in document["layers"]] == list(range(len(names)))
    for layer in document["layers"]:
        if layer["parameters"] is not None and sample != "quantized":
            assert layer["parameters"] == sum(p.numel() for p in modules[layer["name"]].parameters())
            assert layer["parameters"] == sum(prod(shape) for shape in layer["parameter_shapes"])


def test_the_published_schemas_are_those_in_force() -> None:
    found = {path.name: json.loads(path.read_text()) for path in SCHEMAS.glob("*.json")}
    assert found == published(), "run make schema"


def test_a_tied_layer_shows_its_weights_and_the_total_has_them_once() -> None:
    document = mg.model_info(Tied(), torch.zeros(1, 2, dtype=torch.long))
    assert parameters(document) == [64_000, 64_000]
    assert [layer["own_parameters"] for layer in document["layers"]] == [64_000, 0]
    assert document["parameters"] == 64_000


def test_a_frozen_layer_is_not_trainable_and_a_half_frozen_one_is() -> None:
    model = S(L(2, 2).requires_grad_(False), L(2, 2))
    model[1].bias.requires_grad_(False)
    document = mg.model_info(model, torch.zeros(1, 2))
    assert [layer["trainable"] for layer in document["layers"]] == [False, True]
    assert (document["totals"]["trainable_parameters"], document["totals"]["frozen_parameters"]) == (4, 8)


def test_uninitialised_is_unknown_not_nothing() -> None:
    document = mg.model_info(S(nn.LazyLinear(8)), torch.zeros(4, 16))
    assert document["parameters"] is None
    assert document["memory"]["nbytes"] is None
    assert mg.model_info(nn.LazyLinear(8))["totals"]["own_parameters"] is None
    layer = document["layers"][0]
    assert (layer["parameters"], layer["parameter_shapes"]) == (None, [None, None])
    assert layer["output_info"] == {"shape": [4, 8], "dtype": FLOAT}


def test_layers_never_called_and_called_again() -> None:
    model = Apply(lambda self, x: (self.a(x), self.a(x), self.a(x[:1])), a=L(3, 3), b=L(3, 3))
    called, never = mg.model_info(model, torch.zeros(2, 3))["layers"]
    assert called["times_called"] == 3
    assert called["input_info"]["shape"] == [2, 3]
    assert [(call["input_info"]["shape"], call["times"]) for call in called["further_calls"]] == [([1, 3], 1)]
    assert (never["times_called"], never["input_info"], never["macs"]) == (0, None, 0)


STRUCTURES: dict[str, tuple[Callable[[torch.Tensor], Any], list[tuple[str, Any, Any]]]] = {
    "dict": (
        lambda x: {"logits": x, "aux": x.sum()},
        [("logits", [2, 3], FLOAT), ("aux", [], FLOAT)],
    ),
    "nested": (lambda x: (x, [x, {"y": x}]), [(n, [2, 3], FLOAT) for n in ("0", "1.0", "1.1.y")]),
    "dataclass": (
        lambda x: Answer(x),
        [("logits", [2, 3], FLOAT), ("note", None, None), ("count", None, None), ("missing", None, None)],
    ),
    "number": (lambda x: 7, [("", None, None)]),
}


@pytest.mark.parametrize("case", STRUCTURES)
def test_nested_outputs_are_described(case: str) -> None:
    make, expected = STRUCTURES[case]
    layer = mg.model_info(Structured(make), torch.zeros(2, 3))["layers"][0]
    info = layer["output_info"]
    assert (info["shape"], info["dtype"]) == (None, None)
    assert [(each["name"], each["shape"], each["dtype"]) for each in info["values"]] == expected
    given = layer["input_info"]["values"]
    assert [(each["name"], each["shape"], each["value"]) for each in given] == [
        ("0", [2, 3], None),
        ("scale", None, "2.0"),
    ]


def test_inputs_by_keyword_are_named() -> None:
    document = mg.model_info(llama(), {"input_ids": torch.zeros(1, 4, dtype=torch.long)})
    assert document["input_info"] == {"shape": [1, 4], "dtype": "torch.int64", "name": "input_ids"}


def test_without_inputs_what_a_run_would_tell_is_none() -> None:
    document = mg.model_info(S(L(3, 3)), None, model_name="small one")
    assert document["model_name"] == "small one"
    assert document["input_info"] is None
    assert document["totals"]["macs"] is None
    layer = document["layers"][0]
    assert (layer["macs"], layer["times_called"], layer["input_info"]) == (None, None, None)
    assert document["parameters"] == 12


def test_an_operator_without_a_formula_makes_the_sum_unknown() -> None:
    with torch.library._scoped_library("modelglass_info", "FRAGMENT") as library:
        library.define("mystery(Tensor x) -> Tensor")
        library.impl("mystery", lambda x: x @ x, "CompositeExplicitAutograd")
        torch.library.register_fake("modelglass_info::mystery", torch.empty_like, lib=library)
        model = S(L(2, 2), Apply(lambda self, x: torch.ops.modelglass_info.mystery(x)))
        document = mg.model_info(model, torch.zeros(2, 2))
    assert document["totals"]["macs"] is None
    assert [layer["macs"] for layer in document["layers"]] == [8, None]
    assert "unknown-ops" in {note["code"] for note in document["notes"]}


def test_settings_never_hide_what_the_document_says_of_a_layer() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.name, self.parameters_, self.type, self.config = "mine", 3, "a type", {"depth": 2}

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    layer = mg.model_info(S(Odd()), torch.zeros(1))["layers"][0]
    assert (layer["name"], layer["type"], layer["parameters"]) == ("0", "Odd", 0)
    assert (layer["config"]["name"], layer["config"]["type"]) == ("mine", "a type")


def test_a_forward_pass_that_raises_leaves_no_file(tmp_path: Path) -> None:
    model, inputs = SAMPLES["failing"]()
    with pytest.raises(mg.InspectError, match="2 raised RuntimeError") as trouble:
        mg.model_info(model, inputs, path=tmp_path / "model_info.json")
    assert trouble.value.exit_code == 3
    assert "was given" in trouble.value.hint
    assert not list(tmp_path.iterdir())


GOLDEN: dict[str, tuple[Callable[[], nn.Module], Callable[[], Any]]] = {
    "cnn": (lambda: convolutional().eval(), lambda: torch.zeros(4, 3, 32, 32)),
    "transformer-block": (
        lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).train(),
        lambda: torch.zeros(2, 5, 16),
    ),
    "recurrent": (
        lambda: Apply(lambda self, x: self.head(self.lstm(x)[0]), lstm=nn.LSTM(4, 6), head=L(6, 2)),
        lambda: torch.zeros(3, 2, 4),
    ),
}


@pytest.mark.parametrize("case", GOLDEN)
def test_golden_documents(case: str, tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    load, inputs = GOLDEN[case]
    mg.model_info(load(), inputs(), path=tmp_path / "model_info.json")
    golden(f"model_info/{case}.json", (tmp_path / "model_info.json").read_text())
