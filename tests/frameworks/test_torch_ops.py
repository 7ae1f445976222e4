"""Operators at the level `torch.export` shows, by the names users call them by."""

from __future__ import annotations

import math
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import modelglass as mg
from modelglass.frameworks.torch import levels
from models import Apply


def conv_net() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(72, 5),
    ).eval()


EXPORTED: dict[str, tuple[Any, Any]] = {
    "cnn": (conv_net, lambda: (torch.randn(2, 3, 14, 14),)),
    "encoder layer": (
        lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).train(),
        lambda: (torch.randn(2, 5, 16),),
    ),
    "lstm": (lambda: nn.LSTM(4, 6), lambda: (torch.randn(3, 2, 4),)),
    "einsum": (
        lambda: Apply(lambda self, a, b: torch.einsum("ij,jk->ik", a, b).softmax(-1)),
        lambda: (torch.randn(2, 3), torch.randn(3, 4)),
    ),
    "attention": (
        lambda: Apply(lambda self, q: F.scaled_dot_product_attention(q, q, q, is_causal=True)),
        lambda: (torch.randn(1, 2, 5, 8),),
    ),
}


@pytest.mark.parametrize("case", EXPORTED)
def test_operators_are_those_of_export(case: str) -> None:
    build, inputs = EXPORTED[case]
    model, args = build(), inputs()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # export's own, about weights that an LSTM keeps in a list
        graph = torch.export.export(model, args, strict=False).graph
    expected = [str(node.target) for node in graph.nodes if isinstance(node.target, torch._ops.OpOverload)]
    observed = [op.overload for op in mg.inspect(model, inputs=args).model.ops]
    assert observed == expected


def test_attributes_have_their_schema_names_and_defaults() -> None:
    op = mg.inspect(nn.Conv2d(3, 8, 3, padding=1), inputs=torch.randn(1, 3, 8, 8)).model.ops[0]
    assert op.name == "torch.conv2d"
    assert op.attributes == {"stride": [1, 1], "padding": [1, 1], "dilation": [1, 1], "groups": 1}
    assert [(v.name, v.shape, v.tensor) for v in op.inputs] == [
        ("input", (1, 3, 8, 8), None),
        ("weight", (8, 3, 3, 3), "weight"),
        ("bias", (8,), "bias"),
    ]
    assert [(v.shape, v.dtype) for v in op.outputs] == [((1, 8, 8, 8), "float32")]
    assert op.nbytes == 4 * (192 + 216 + 8 + 512)
    assert op.macs == 512 * 27


NAMES = [
    (lambda x: F.linear(x, x), "torch.nn.functional.linear"),
    (lambda x: F.gelu(x), "torch.nn.functional.gelu"),
    (lambda x: torch.linalg.vector_norm(x), "torch.linalg.vector_norm"),
    (lambda x: torch.fft.rfft(x), "torch.fft.rfft"),
    (lambda x: x.view(-1), "torch.Tensor.view"),
    (lambda x: x.add_(1), "torch.Tensor.add_"),
    (lambda x: torch.special.expm1(x), "torch.special.expm1"),
]


@pytest.mark.parametrize(("body", "name"), NAMES, ids=[name for _, name in NAMES])
def test_operators_have_public_names(body: Any, name: str) -> None:
    model = Apply(lambda self, x: body(x))
    names = [op.name for op in mg.inspect(model, inputs=torch.randn(4, 4)).model.ops]
    assert name in names or name.replace("special.", "") in names


def test_infinite_attributes_survive_json(tmp_path: Any) -> None:
    model = Apply(lambda self, x: x.masked_fill(x > 0, -math.inf))
    report = mg.inspect(model, inputs=torch.randn(3))
    mg.save(report, tmp_path / "r.json")
    assert mg.load(tmp_path / "r.json") == report
    assert "-inf" in {op.attributes.get("value") for op in report.model.ops}


def test_in_place_shapes_are_those_before_and_after() -> None:
    op = mg.inspect(Apply(lambda self, x: x.clone().t_()), inputs=torch.randn(2, 3)).model.ops[-1]
    assert (op.inputs[0].shape, op.outputs[0].shape) == ((2, 3), (3, 2))


@pytest.fixture
def custom_operator() -> Any:
    library = torch.library.Library("modelglass_test", "FRAGMENT")
    library.define("mystery(Tensor x) -> Tensor")
    library.impl("mystery", lambda x: x @ x, "CompositeExplicitAutograd")
    torch.library.register_fake("modelglass_test::mystery", lambda x: x.new_empty(x.shape), lib=library)
    yield torch.ops.modelglass_test.mystery
    library._destroy()


def test_an_operator_without_a_formula_is_a_hole_not_a_zero(custom_operator: Any) -> None:
    model = Apply(lambda self, x: custom_operator(self.fc(x)), fc=nn.Linear(4, 4))
    report = mg.inspect(model, inputs=torch.randn(4, 4))
    assert report.cost.unknown_ops == {"modelglass_test::mystery": 1}
    assert report.cost.coverage == 0.5
    assert report.cost.macs == 64
    assert not report.cost.by_module[""].complete
    assert report.cost.by_module["fc"].complete
    assert "≥ 64" in mg.render(report, "text")
    assert "unknown-ops" in {note.code for note in report.notes}


def test_users_can_register_a_formula(custom_operator: Any) -> None:
    model = Apply(lambda self, x: custom_operator(x))
    mg.register_formula("modelglass_test::mystery", lambda kernel: kernel.input("x").numel * 4)
    try:
        cost = mg.inspect(model, inputs=torch.randn(4, 4)).cost
    finally:
        mg.register_formula("modelglass_test::mystery", None)
    assert (cost.macs, cost.coverage, cost.unknown_ops) == (64, 1.0, {})


@pytest.mark.parametrize("formula", [lambda kernel: 1.5, lambda kernel: -1, lambda kernel: 1 / 0])
def test_a_formula_that_gives_no_count_is_told(custom_operator: Any, formula: Any) -> None:
    mg.register_formula("modelglass_test::mystery", formula)
    try:
        with pytest.raises(mg.InspectError, match="the formula registered for"):
            mg.inspect(Apply(lambda self, x: custom_operator(x)), inputs=torch.randn(4, 4))
    finally:
        mg.register_formula("modelglass_test::mystery", None)


def test_transforms_are_other_arithmetic() -> None:
    report = mg.inspect(Apply(lambda self, x: torch.fft.rfft(x)), inputs=torch.randn(2, 64))
    assert report.cost.other_ops == {"aten::_fft_r2c": 1}
    assert report.cost.coverage == 1.0
    assert "other-arithmetic" in {note.code for note in report.notes}


def test_inference_mode_inside_forward_hides_nothing() -> None:
    @torch.inference_mode()
    def body(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x) @ x.t()

    report = mg.inspect(Apply(body, fc=nn.Linear(8, 8)), inputs=torch.randn(4, 8))
    assert report.run.failure is None
    assert report.cost.macs == 4 * 8 * 8 + 4 * 8 * 4


def test_without_torchs_internals_public_functions_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(levels, "PreDispatchBase", None)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))
    report = mg.inspect(model, inputs=torch.randn(4, 16))
    assert report.cost.macs == 4096
    assert [op.name for op in report.model.ops] == [
        "torch.nn.functional.linear",
        "torch.nn.functional.relu",
        "torch.nn.functional.linear",
    ]
