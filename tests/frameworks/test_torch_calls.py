"""Each execution of each module: what went in, what came out, in which order."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import pytest
import torch
from torch import nn

import modelglass as mg
from modelglass.report import Value
from models import Answer, Apply, Checkpointed, Structured, gpt2, ids

Pair = namedtuple("Pair", ["left", "right"])


def told(values: tuple[Value, ...]) -> list[tuple[str, Any]]:
    return [(value.name, value.shape if value.dtype else value.text) for value in values]


OUTPUTS = {
    "tensor": (lambda x: x, [("", (2, 4))]),
    "tuple": (lambda x: (x, x[0], None), [("0", (2, 4)), ("1", (4,)), ("2", "None")]),
    "named tuple": (lambda x: Pair(x, 1), [("left", (2, 4)), ("right", "1")]),
    "dict": (lambda x: {"a": x, "b": [x.sum()]}, [("a", (2, 4)), ("b.0", ())]),
    "dataclass": (
        Answer,
        [("logits", (2, 4)), ("note", "'fine'"), ("count", "3"), ("missing", "None")],
    ),
    "nothing": (lambda x: None, [("", "None")]),
    "number": (lambda x: 7, [("", "7")]),
    "text": (lambda x: "done", [("", "'done'")]),
}


@pytest.mark.parametrize("kind", OUTPUTS)
def test_outputs_of_any_kind_are_described(kind: str) -> None:
    output, expected = OUTPUTS[kind]
    report = mg.inspect(Structured(output), inputs=torch.randn(2, 4))
    call = next(call for call in report.model.calls if call.module == "inner")
    assert told(call.outputs) == expected
    assert told(call.inputs) == [("0", (2, 4)), ("scale", "2.0")]


def test_a_module_called_twice_has_two_calls() -> None:
    layer = nn.Linear(4, 4)
    model = Apply(lambda self, x: self.layer(x[:1]) + self.other(x[:2]).sum(), layer=layer, other=layer)
    report = mg.inspect(model, inputs=torch.randn(2, 4))
    assert [(c.module, told(c.inputs)) for c in report.model.calls[1:]] == [
        ("layer", [("0", (1, 4))]),
        ("layer", [("0", (2, 4))]),
    ]
    assert next(m for m in report.model.modules if m.path == "layer").aliases == ("other",)


def test_calls_by_keyword_and_through_forward_are_seen() -> None:
    model = Apply(lambda self, x: self.a(input=x) + self.b.forward(x), a=nn.Linear(4, 4), b=nn.Linear(4, 4))
    report = mg.inspect(model, inputs=torch.randn(2, 4))
    assert [(c.module, told(c.inputs)) for c in report.model.calls[1:]] == [
        ("a", [("input", (2, 4))]),
        ("b", [("0", (2, 4))]),
    ]
    assert report.cost.by_module["b"].own_macs == 32


def test_modules_that_are_never_called_have_no_call() -> None:
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2)
    report = mg.inspect(encoder, inputs=torch.randn(2, 5, 16))
    called = {call.module for call in report.model.calls}
    silent = [module.path for module in report.model.modules if module.path not in called]
    assert len(report.model.modules) == 22
    assert silent == ["layers", "layers.0.self_attn.out_proj", "layers.1.self_attn.out_proj"]


def test_observation_does_not_switch_off_fused_paths() -> None:
    """A hook on any module would make the encoder take its slow path."""
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0).eval()
    ops = mg.inspect(layer, inputs=torch.randn(2, 5, 16)).model.ops
    assert [op.name for op in ops] == ["torch.ops.aten._transformer_encoder_layer_fwd"]


def test_calls_nest() -> None:
    model = nn.Sequential(nn.Sequential(nn.ReLU()), nn.ReLU())
    calls = mg.inspect(model, inputs=torch.randn(2)).model.calls
    assert [(c.module, c.parent) for c in calls] == [("", None), ("0", 0), ("0.0", 1), ("1", 0)]


def test_model_outputs_and_cache_objects_of_transformers() -> None:
    report = mg.inspect(gpt2(), inputs={"input_ids": ids(), "use_cache": True})
    assert told(report.run.inputs) == [("input_ids", (1, 16)), ("use_cache", "True")]
    assert told(report.run.outputs) == [("logits", (1, 16, 1000)), ("past_key_values", "DynamicCache")]


def test_recomputed_calls_are_told_from_forward_ones() -> None:
    report = mg.inspect(Checkpointed(reentrant=False), inputs=torch.randn(8, 16), train=True)
    phases = [call.phase for call in report.model.calls if call.module == "body.0"]
    assert phases == ["forward", "recompute"]
    # Two products forward, the first again; backward stops at the input: 3 products.
    assert (report.cost.forward_macs, report.cost.backward_macs) == (2 * 2048, 3 * 2048)
    assert report.cost.recompute_macs == 2048


def test_reentrant_checkpointing_counts_what_really_runs() -> None:
    x = torch.randn(8, 16, requires_grad=True)
    cost = mg.inspect(Checkpointed(reentrant=True), inputs=x, train=True).cost
    assert (cost.forward_macs, cost.recompute_macs, cost.backward_macs) == (4096, 4096, 8192)


def test_backward_work_belongs_to_the_layer_whose_gradient_it_is() -> None:
    model = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4))
    cost = mg.inspect(model, inputs=torch.randn(2, 16), train=True).cost
    assert cost.by_module["0"].own_macs == 2 * (2 * 16 * 8)  # forward, weight
    assert cost.by_module["2"].own_macs == 3 * (2 * 8 * 4)  # forward, weight, input


def test_compiled_modules_run_as_written() -> None:
    model = torch.compile(nn.Sequential(nn.Linear(16, 32), nn.ReLU()))
    report = mg.inspect(model, inputs=torch.randn(4, 16))
    assert report.run.mode == "fake"
    assert [op.name for op in report.model.ops] == ["torch.nn.functional.linear", "torch.relu"]


def test_the_users_own_loss_is_the_one_that_goes_backward() -> None:
    report = mg.inspect(gpt2(), inputs={"input_ids": ids(), "labels": ids()}, train=True)
    scores_again = 2 * 4 * 16 * 16 * 16  # the attention kernel computes its scores anew, in both layers
    assert report.cost.backward_macs == 2 * report.cost.forward_macs + scores_again
    assert "loss" in {value.name for value in report.run.outputs}
