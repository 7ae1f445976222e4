"""Nothing that differs merges, nothing equal stays apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath
from typing import Any

import numpy
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import build
import modelglass as mg
from modelglass.analyses.unique import unique
from modelglass.report import Unique
from models import Apply, conv_stack, gpt2, ids, transformers_model

S, L = nn.Sequential, nn.Linear


def distinct(model: nn.Module, inputs: Any) -> Unique:
    report = mg.inspect(model, inputs=inputs)
    assert report.run.failure is None
    return mg.unique(report)


def paths(found: Unique) -> list[tuple[str, ...]]:
    return [module.paths for module in found.modules]


@pytest.mark.parametrize("training", [False, True])
def test_a_convolutional_stack(training: bool) -> None:
    report = mg.inspect(conv_stack().train(training), inputs=torch.randn(1, 3, 224, 224))
    found = mg.unique(report)
    assert paths(found) == [("",), ("0",), ("1", "4"), ("2", "5"), ("3",)]
    names = [report.model.ops[op.ops[0]].name for op in found.ops]
    assert names == ["torch.conv2d", "torch.batch_norm", "torch.relu", "torch.conv2d"]
    assert [op.count for op in found.ops] == [1, 2, 2, 1]
    assert found.total_ops == 6
    assert len(found.counters) == (2 if training else 0), "a batch norm counts batches in training"
    assert 2 * sum(op.total_macs for op in found.ops) == 3_872_784_384
    assert found.modules[0].macs == sum(op.total_macs for op in found.ops)


def test_linear_layers_of_other_sizes_are_distinct() -> None:
    found = distinct(S(L(10, 20), nn.ReLU(), L(20, 10)), torch.randn(1, 10))
    assert paths(found) == [("",), ("0",), ("1",), ("2",)]


class Two(nn.Module):
    """Two members called one after the other by a function."""

    def __init__(self, a: nn.Module, b: nn.Module, run: Callable[..., Any]) -> None:
        super().__init__()
        self.a, self.b = a, b
        self.run = run

    def forward(self, *args: Any) -> Any:
        return self.run(self, *args)


class Block(nn.Module):
    """A block whose settings say nothing of what it contains."""

    def __init__(self, inside: nn.Module) -> None:
        super().__init__()
        self.inside = inside

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inside(x)


@dataclass
class Slope:
    slope: float


class Set(nn.Module):
    """A module with a setting that changes nothing that runs."""

    def __init__(self, setting: Any) -> None:
        super().__init__()
        self.setting = setting

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class Pick(nn.Module):
    """A setting that changes the answer, though not what runs."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self.index = index

    def forward(self, several: list[torch.Tensor]) -> torch.Tensor:
        return several[self.index]


class Shifted(nn.Module):
    """A tensor that is not a parameter and no buffer."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.shift = torch.ones(length)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.shift.sum()


class Scaled(nn.Module):
    """A module with a setting that nothing generic can see."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self._factor = factor

    def forward(self, x: torch.Tensor, *, mask: Any = None, other: Any = None) -> torch.Tensor:
        return x * self._factor


def both(self: Two, x: torch.Tensor) -> Any:
    return self.a(x), self.b(x)


def numbers(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.long)


def in_eval(module: nn.Module) -> nn.Module:
    return module.eval()


def renamed(module: nn.Module) -> nn.Module:
    """The same class by name, from elsewhere."""
    module.__class__ = type(type(module).__name__, (type(module),), {"__module__": "elsewhere"})
    return module


APART: dict[str, tuple[Callable[[], nn.Module], Callable[[], Any]]] = {
    "rows of an embedding": (
        lambda: Two(nn.Embedding(100, 4), nn.Embedding(50_000, 4), both),
        lambda: numbers(2, 3),
    ),
    "types": (
        lambda: Two(nn.Identity(), nn.Identity(), lambda self, x: (self.a(x), self.b(x.half()))),
        lambda: torch.ones(3),
    ),
    "order of shapes": (
        lambda: Two(
            Apply(lambda self, x, y: (x, y)),
            Apply(lambda self, x, y: (x, y)),
            lambda self, x, y: (self.a(x, y), self.b(y, x)),
        ),
        lambda: (torch.ones(2), torch.ones(3)),
    ),
    "names of keywords": (
        lambda: Two(Scaled(1.0), Scaled(1.0), lambda self, x: (self.a(x, mask=x), self.b(x, other=x))),
        lambda: torch.ones(3),
    ),
    "shapes by keyword": (
        lambda: Two(Scaled(1.0), Scaled(1.0), lambda self, x: (self.a(x, mask=x), self.b(x, mask=x[:1]))),
        lambda: torch.ones(3),
    ),
    "mode of a dropout": (
        lambda: Two(nn.Dropout(0.5), in_eval(nn.Dropout(0.5)), both),
        lambda: torch.ones(3),
    ),
    "mode of a batch norm": (
        lambda: Two(nn.BatchNorm1d(3), in_eval(nn.BatchNorm1d(3)), both),
        lambda: torch.ones(2, 3),
    ),
    "settings of a record": (
        lambda: Two(Set(Slope(0.1)), Set(Slope(0.5)), both),
        lambda: torch.ones(3),
    ),
    "numbers of numpy": (
        lambda: Two(Set(numpy.float32(1.5)), Set(numpy.float32(2.5)), both),
        lambda: torch.ones(3),
    ),
    "arguments of a partial": (
        lambda: Two(Set(partial(F.leaky_relu, negative_slope=0.1)), Set(partial(F.leaky_relu)), both),
        lambda: torch.ones(3),
    ),
    "settings that are text": (
        lambda: Two(Set(PurePosixPath("a")), Set(PurePosixPath("b")), both),
        lambda: torch.ones(3),
    ),
    "a number that is not a place among layers": (
        lambda: Two(Pick(0), Pick(1), lambda self, x: (self.a([x, x + 1]), self.b([x, x + 1]))),
        lambda: torch.ones(3),
    ),
    "contents": (lambda: Two(Block(nn.ReLU()), Block(nn.GELU()), both), lambda: torch.ones(3)),
    "contents of a container": (lambda: Two(S(nn.ReLU()), S(nn.GELU()), both), lambda: torch.ones(3)),
    "shapes that only what runs inside shows": (
        lambda: Two(Shifted(2), Shifted(3), both),
        lambda: torch.ones(3),
    ),
    "what a hidden setting does": (lambda: Two(Scaled(2.0), Scaled(3.0), both), lambda: torch.ones(3)),
    "where the class is from": (lambda: Two(nn.ReLU(), renamed(nn.ReLU()), both), lambda: torch.ones(3)),
    "dimension that happens to be its place": (
        lambda: S(nn.Identity(), nn.Softmax(dim=1), nn.Softmax(dim=2)),
        lambda: torch.ones(2, 3, 3),
    ),
}


@pytest.mark.parametrize("case", APART)
def test_what_differs_stays_apart(case: str) -> None:
    make, inputs = APART[case]
    found = distinct(make(), inputs())
    own = [module for module in found.modules if module.paths[0] in ("a", "b", "1", "2")]
    assert [len(module.paths) for module in own] == [1, 1]


TOGETHER: dict[str, tuple[Callable[[], nn.Module], Callable[[], Any]]] = {
    "probability of a dropout": (lambda: Two(nn.Dropout(0.1), nn.Dropout(0.9), both), lambda: torch.ones(3)),
    "a linear layer in either mode": (lambda: Two(L(3, 3), in_eval(L(3, 3)), both), lambda: torch.ones(3)),
    "containers of the same": (lambda: Two(S(L(3, 3)), S(L(3, 3)), both), lambda: torch.ones(3)),
    "frozen or not": (lambda: Two(L(3, 3), L(3, 3).requires_grad_(False), both), lambda: torch.ones(3)),
    "hooked or not": (lambda: Two(nn.ReLU(), _hooked(nn.ReLU()), both), lambda: torch.ones(3)),
}


def _hooked(module: nn.Module) -> nn.Module:
    module.register_forward_hook(lambda *args: None)
    return module


@pytest.mark.parametrize("case", TOGETHER)
def test_what_is_equal_merges(case: str) -> None:
    make, inputs = TOGETHER[case]
    found = distinct(make(), inputs())
    assert [module.paths for module in found.modules if module.paths[0] == "a"] == [("a", "b")]


def test_one_module_under_two_names_called_with_two_shapes() -> None:
    shared = L(4, 4)
    model = Two(shared, shared, lambda self, x: (self.a(x), self.b(x[:1])))
    report = mg.inspect(model, inputs=torch.randn(2, 4))
    found = mg.unique(report)
    assert paths(found) == [("",), ("a", "b"), ("a", "b")]
    calls = [report.model.calls[module.calls[0]] for module in found.modules[1:]]
    assert [call.inputs[0].shape for call in calls] == [(2, 4), (1, 4)]


def test_a_module_called_twice_alike_is_one_entry_with_two_calls() -> None:
    found = distinct(Apply(lambda self, x: self.fc(self.fc(x)), fc=L(4, 4)), torch.randn(2, 4))
    assert [(module.paths, module.count) for module in found.modules] == [(("",), 1), (("fc",), 2)]


def test_paths_lead_through_every_name_of_a_shared_parent() -> None:
    block = S(L(4, 4), nn.ReLU())
    model = nn.ModuleDict({"a": block, "b": block, "c": S(block)})
    found = mg.unique(mg.inspect(model))
    shown = {path for module in found.modules for path in module.paths}
    assert shown == {name for name, _ in model.named_modules(remove_duplicate=False)}


def test_a_module_that_contains_its_parent_ends() -> None:
    model = S(L(2, 2))
    model[0].above = model
    found = mg.unique(mg.inspect(model))
    assert [each[0] for each in paths(found)] == ["", "0"]


def test_never_called_is_an_entry_of_its_own() -> None:
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2, enable_nested_tensor=False
    )
    found = distinct(encoder, torch.randn(2, 5, 16))
    uncalled = [module for module in found.modules if not module.calls]
    assert {path for module in uncalled for path in module.paths} == {
        "layers",
        "layers.0.self_attn.out_proj",
        "layers.1.self_attn.out_proj",
    }
    assert all(module.macs is None for module in uncalled)


def test_containers_never_called_are_told_apart_by_what_their_contents_did() -> None:
    lists = {"a": nn.ModuleList([nn.ReLU()]), "b": nn.ModuleList([nn.ReLU()])}
    same = distinct(Apply(lambda self, x: (self.a[0](x), self.b[0](x)), **lists), torch.ones(3))
    assert ("a", "b") in paths(same)
    other = distinct(Apply(lambda self, x: (self.a[0](x), self.b[0](x[:1])), **lists), torch.ones(3))
    assert {("a",), ("b",)} <= set(paths(other))


@pytest.mark.parametrize("name", ["Llama", "Qwen2", "Phi3", "Gemma"])
def test_more_layers_of_the_same_kind_add_nothing_distinct(name: str) -> None:
    small = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "vocab_size": 50,
        "pad_token_id": 0,
    }
    few, many = (
        distinct(transformers_model(name, **small, num_hidden_layers=layers), {"input_ids": ids()})
        for layers in (2, 5)
    )
    assert len(few.modules) == len(many.modules)
    assert len(few.ops) == len(many.ops)
    assert many.total_ops > few.total_ops


@pytest.mark.parametrize("by_place", [False, True])
def test_layers_that_know_their_place_are_distinct_where_it_changes_what_runs(by_place: bool) -> None:
    found = distinct(gpt2(scale_attn_by_inverse_layer_idx=by_place), ids())
    attention = ("transformer.h.0.attn", "transformer.h.1.attn")
    assert (attention in paths(found)) != by_place
    assert (("transformer.h.0", "transformer.h.1") in paths(found)) != by_place, (
        "and so is what contains them"
    )


def test_operators_differ_by_attributes_shapes_and_types() -> None:
    def body(self: nn.Module, x: torch.Tensor) -> Any:
        return (
            F.softmax(x, 0),
            F.softmax(x, 1),
            F.softmax(x.half(), 1),
            F.softmax(x[:1], 1),
            F.softmax(x + 1, 1),
        )

    report = mg.inspect(Apply(body), inputs=torch.ones(2, 3))
    softmaxes = [op for op in mg.unique(report).ops if report.model.ops[op.ops[0]].name == "torch.softmax"]
    assert [op.count for op in softmaxes] == [1, 2, 1, 1]


def test_an_operator_belongs_to_the_module_it_ran_in() -> None:
    model = Apply(lambda self, x: self.fc(x).relu(), fc=S(L(3, 3), nn.ReLU()))
    found = distinct(model, torch.ones(2, 3))
    ids_of = {module.paths[0]: module.id for module in found.modules}
    assert [op.modules for op in found.ops] == [(ids_of["fc.0"],), (ids_of["fc.1"], ids_of[""])]


def test_unknown_cost_is_none_for_whoever_contains_it() -> None:
    calls = (
        build.call("", index=0),
        build.call("a", index=1, parent=0),
        build.call("b", index=2, parent=0),
    )
    ops = (
        build.op(index=0, module="a", call=1, macs=None),
        build.op(index=1, module="b", call=2, macs=7),
    )
    modules = (build.module("", children=("a", "b")), build.module("a"), build.module("b", type="Other"))
    found = unique(build.model(modules=modules, calls=calls, ops=ops))
    assert [module.macs for module in found.modules] == [None, None, 7]


def test_only_whole_number_buffers_are_counters() -> None:
    class Averaging(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(()))
            self.register_buffer("steps", torch.zeros((), dtype=torch.long))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.mean += x.mean()
            self.steps += 1
            return x - self.mean

    report = mg.inspect(Averaging(), inputs=torch.ones(3))
    found = mg.unique(report)
    assert [report.model.ops[index].inputs[0].tensor for index in found.counters] == ["steps"]
    assert found.total_ops == len(report.model.ops) - 1
