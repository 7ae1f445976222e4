"""Calls and operators as a plain graph, beside what `torch.export` finds in the same models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.fx import Node

import build
import modelglass as mg
from contracted_flow import contracted
from example_models import example
from modelglass.report import Dataflow, Run

Edges = set[tuple[str, str]]


def test_calls_are_one_place_and_operators_outside_them_their_own() -> None:
    """input → (a: 0 → 1) → 2 → (b: 3, with c: 4 in it) → output, and 2 is also an output."""
    modules = ("", "a", "b", "b.c")
    calls = (
        build.call(),
        build.call("a", index=1, parent=0),
        build.call("b", index=2, parent=0),
        build.call("b.c", index=3, parent=2),
    )
    owners = (1, 1, 0, 2, 3)
    model = build.model(
        modules=tuple(build.module(path) for path in modules),
        calls=calls,
        ops=tuple(
            build.op(index=index, call=owner, module=modules[owner]) for index, owner in enumerate(owners)
        ),
    )
    run = Run(mode="fake", inputs=(build.value("0", 2),), outputs=(build.value("0", 2), build.value("1", 2)))
    dataflow = Dataflow(
        names=("x",),
        inputs=(0,),
        outputs=((5,), (3,)),
        reads=((0,), (1,), (2,), (3,), (4, 3)),
        writes=((1,), (2,), (3,), (4,), (5,)),
    )
    assert contracted(model, run, dataflow, 1) == {
        (("input", 0), ("call", 1)),
        (("call", 1), ("op", 2)),
        (("op", 2), ("call", 2)),
        (("call", 2), ("output", 0)),
        (("op", 2), ("output", 1)),
    }
    assert contracted(model, run, dataflow, 2) == {
        (("input", 0), ("call", 1)),
        (("call", 1), ("op", 2)),
        (("op", 2), ("op", 3)),
        (("op", 3), ("call", 3)),
        (("op", 2), ("call", 3)),
        (("call", 3), ("output", 0)),
        (("op", 2), ("output", 1)),
    }


def diffusion() -> tuple[nn.Module, dict[str, torch.Tensor]]:
    module = example("diffusion")
    return module.SensorDiT(5160, 16, 3, 8, 0.1, 6, 128, 4.0).eval(), module.batch()


def unet() -> tuple[nn.Module, dict[str, torch.Tensor]]:
    return example("models").unet(), {"x": torch.zeros(1, 3, 64, 64)}


def resnet() -> tuple[nn.Module, dict[str, torch.Tensor]]:
    return example("models").resnet50(), {"input": torch.zeros(1, 3, 64, 64)}


def bert() -> tuple[nn.Module, dict[str, torch.Tensor]]:
    import transformers

    config = transformers.BertConfig(
        hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=64, vocab_size=90
    )
    return transformers.BertModel(config).eval(), {"input_ids": torch.ones(1, 8, dtype=torch.long)}


@pytest.mark.slow
@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("sample", [diffusion, unet, resnet, bert], ids=lambda sample: sample.__name__)
@pytest.mark.filterwarnings("ignore")
def test_modules_hand_to_modules_what_they_do_in_torchs_graph(
    sample: Callable[[], tuple[nn.Module, dict[str, torch.Tensor]]], depth: int
) -> None:
    """Edges between calls, through however many operators that no module of that depth owns."""
    model, inputs = sample()
    assert _ours(model, inputs, depth) == _theirs(model, inputs, depth)


def _ours(model: nn.Module, inputs: dict[str, torch.Tensor], depth: int) -> Edges:
    report = mg.inspect(model, inputs)
    assert report.dataflow is not None
    names = {}
    for name, number in zip(report.dataflow.names, report.dataflow.inputs, strict=True):
        names["input", number] = f"input {name}"
    for call in report.model.calls:
        names["call", call.index] = call.module
    edges = contracted(report.model, report.run, report.dataflow, depth)
    outputs = {("output", index): "output" for index in range(len(report.run.outputs))}
    return _between(edges, {**names, **outputs})


def _theirs(model: nn.Module, inputs: dict[str, torch.Tensor], depth: int) -> Edges:
    graph = torch.export.export(model, (), inputs).graph
    owners = {each: _owner(model, each, depth) for each in graph.nodes}
    edges = set()
    names: dict[Any, str] = {}
    for each in graph.nodes:
        place = owners[each] or each
        if owners[each]:
            names[place] = owners[each]
        for source in each.all_input_nodes:
            start = owners[source] or source
            if start != place:
                edges.add((start, place))
    return _between(edges, names)


def _owner(model: nn.Module, each: Node, depth: int) -> str:
    """The module that is drawn for a node: nested that deep, or one that calls no other."""
    if each.op == "placeholder":
        return "" if each.name.startswith(("p_", "b_", "c_")) else f"input {each.name}"
    if each.op == "output":
        return "output"
    if each.target is torch.ops.aten.dropout.default and each.args[2] is False:
        return ""  # it hands its input on
    stack = [path for path, _ in each.meta.get("nn_module_stack", {}).values()]
    paths = [path.removeprefix("L['self']").lstrip(".") for path in stack]
    if len(paths) > depth:
        return paths[depth]
    return paths[-1] if len(paths) > 1 and _is_leaf(model, each, paths[-1]) else ""


def _is_leaf(model: nn.Module, each: Node, path: str) -> bool:
    inner = [
        other
        for other in each.graph.nodes
        if any(p.startswith(f"{path}.") for p, _ in other.meta.get("nn_module_stack", {}).values())
    ]
    return not inner


def _between(edges: set[tuple[Any, Any]], names: dict[Any, str]) -> Edges:
    """Which named places reach which others through places without a name."""
    after: dict[Any, list[Any]] = {}
    for source, target in edges:
        after.setdefault(source, []).append(target)
    found = set()
    for start, name in names.items():
        waiting, seen = list(after.get(start, [])), set()
        while waiting:
            place = waiting.pop()
            if place in seen:
                continue
            seen.add(place)
            if place in names:
                found.add((name, names[place]))
            else:
                waiting.extend(after.get(place, []))
    return {(source, target) for source, target in found if source != target}
