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
from modelglass.frameworks.torch.observing import levels
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


def timm_model(name: str, **settings: Any) -> nn.Module:
    import timm

    return timm.create_model(name, **settings).eval()


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
    "gru": (
        lambda: nn.GRU(4, 6, 2, bidirectional=True, batch_first=True),
        lambda: (torch.randn(3, 2, 4),),
    ),
    "shapes": (
        lambda: Apply(lambda self, x: torch.cat([x.view(3, -1).t()[1:], x.new_zeros(1, 3)]).chunk(2, 1)[0]),
        lambda: (torch.randn(3, 4),),
    ),
    "mask": (
        lambda: Apply(lambda self, x: x.masked_fill(x.tril() == 0, -math.inf).to(torch.float64).softmax(-1)),
        lambda: (torch.randn(3, 3),),
    ),
    "upsampling": (
        lambda: nn.Sequential(
            nn.ConvTranspose2d(3, 4, 2, stride=2),
            nn.Upsample(scale_factor=2, mode="bilinear"),
            nn.GroupNorm(2, 4),
            nn.AdaptiveAvgPool2d(3),
        ),
        lambda: (torch.randn(1, 3, 4, 4),),
    ),
    "vit": (
        lambda: timm_model("vit_tiny_patch16_224", img_size=32, patch_size=8, depth=2),
        lambda: (torch.randn(1, 3, 32, 32),),
    ),
    "resnet": (lambda: timm_model("resnet18"), lambda: (torch.randn(1, 3, 64, 64),)),
    "mobilenet": (lambda: timm_model("mobilenetv3_small_050"), lambda: (torch.randn(1, 3, 64, 64),)),
    "attention": (
        lambda: Apply(lambda self, q: F.scaled_dot_product_attention(q, q, q, is_causal=True)),
        lambda: (torch.randn(1, 2, 5, 8),),
    ),
}


@pytest.mark.parametrize("case", EXPORTED)
def test_operators_are_those_of_export(case: str) -> None:
    """In name, attributes and order."""
    build, inputs = EXPORTED[case]
    model, args = build(), inputs()
    kwargs = args if isinstance(args, dict) else {}
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # export's own, about weights that an LSTM keeps in a list
        try:
            graph = torch.export.export(model, () if kwargs else args, kwargs, strict=False).graph
        except ValueError as error:
            if "were assigned during export" not in str(error):
                raise
            pytest.skip("this torch does not export recurrent layers")
    operators = [node for node in graph.nodes if isinstance(node.target, torch._ops.OpOverload)]
    # Export adds assertions of its own, that types stay what they were when it looked.
    nodes = [node for node in operators if "_assert_tensor_metadata" not in str(node.target)]
    observed = mg.inspect(model, inputs=args).model.ops
    assert [op.overload for op in observed] == [str(node.target) for node in nodes]
    for op, node in zip(observed, nodes, strict=True):
        # Export switches cuDNN off while it looks, which some operators have as an attribute.
        attributes = {key: item for key, item in op.attributes.items() if not key.startswith("cudnn_enable")}
        assert attributes == exported_attributes(node), op.overload


def exported_attributes(node: torch.fx.Node) -> dict[str, Any]:
    """The arguments of a node that are no tensors, with the defaults that it leaves out."""
    found: dict[str, Any] = {}
    for index, argument in enumerate(node.target._schema.arguments):
        default = argument.default_value if argument.has_default_value() else None
        value = node.args[index] if index < len(node.args) else node.kwargs.get(argument.name, default)
        tensors: list[torch.fx.Node] = []
        torch.fx.node.map_arg(value, tensors.append)
        if not tensors and not argument.name.startswith("cudnn_enable"):
            found[argument.name] = as_json(value)
    if node.target is torch.ops.aten.contiguous.default:
        found["memory_format"] = found["memory_format"] or "contiguous_format"  # by number in the schema
    return found


def as_json(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [as_json(item) for item in value]
    if isinstance(value, (torch.dtype, torch.memory_format, torch.layout)):
        return str(value).removeprefix("torch.")
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return str(value) if isinstance(value, torch.device) else value


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


def test_what_becomes_sparse_depends_on_values() -> None:
    """Fake tensors would keep no element at all, and every product with them would cost nothing."""
    model = Apply(lambda self, x: torch.sparse.mm(x.to_sparse(), x))
    report = mg.inspect(model, inputs=torch.eye(3))
    assert report.run.mode == "real"
    assert report.cost.macs == 3 * 3
    product = report.model.ops[-1]
    assert [(value.text, value.nnz) for value in product.inputs[:1]] == [("sparse_coo tensor", 3)]


def test_jagged_tensors_made_on_the_way_are_described() -> None:
    model = Apply(lambda self, x: torch.nested.nested_tensor([x, x[:2]], layout=torch.jagged) * 2)
    report = mg.inspect(model, inputs=torch.randn(3, 4))
    assert report.run.failure is None
    assert report.run.outputs[0].parts == ((3, 4), (2, 4))
