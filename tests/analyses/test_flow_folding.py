"""What is repeated is drawn once, and only what is."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import nn

import build
import modelglass as mg
from flow_checks import flow_of, node, wires
from modelglass.analyses.flow import flow
from modelglass.report import Dataflow, Flow, Report, Run
from models import Apply

X = torch.zeros(2, 4)


class Block(nn.Module):
    """A residual around two layers."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.norm, self.layer = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor, *more: torch.Tensor) -> torch.Tensor:
        for each in more:
            x = x + each
        return x + self.layer(self.norm(x)).relu()


def drawn(module: nn.Module, inputs: Any = X, depth: int | None = 1) -> Flow:
    return flow_of(mg.inspect(module.eval(), inputs), depth)


def blocks(count: int) -> nn.ModuleList:
    return nn.ModuleList(Block() for _ in range(count))


def test_equal_blocks_in_a_row_are_drawn_once() -> None:
    found = drawn(nn.Sequential(*blocks(5), nn.Linear(4, 1)))
    block = node(found, "0")
    assert (block.kind, block.count, block.paths) == ("module", 5, ("0", "1", "2", "3", "4"))
    assert block.params == 5 * (8 + 20)
    assert wires(found) == {("input", "0"), ("0", "5"), ("5", "output")}
    assert wires(found, carried=True) == {("0", "0")}


def test_one_of_them_can_be_drawn_from_inside() -> None:
    found = drawn(nn.Sequential(*blocks(5)), depth=2)
    group = node(found, "0", kind="group")
    assert (group.count, len(group.paths)) == (5, 5)
    assert {n.label for n in found.nodes if n.group == group.id} == {"norm", "layer", "relu → add"}
    assert wires(found) == {
        ("input", "norm"),
        ("input", "relu → add"),
        ("norm", "layer"),
        ("layer", "relu → add"),
        ("relu → add", "output"),
    }
    assert wires(found, carried=True) == {("relu → add", "norm"), ("relu → add", "relu → add")}


def test_what_all_of_them_read_is_drawn_once() -> None:
    def forward(self: Any, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        condition = self.embed(condition)
        for block in self.blocks:
            x = block(x, condition)
        return x

    found = drawn(Apply(forward, embed=nn.Linear(4, 4), blocks=blocks(3)), (X, torch.ones(2, 4)))
    assert node(found, "blocks.0").count == 3
    assert ("embed", "blocks.0") in wires(found)


def test_blocks_of_other_sizes_or_classes_are_not_the_same() -> None:
    class Other(Block):
        pass

    found = drawn(nn.Sequential(Block(), Other(), nn.Linear(4, 6), Block(6), Block(6)))
    assert [(n.label, n.count) for n in found.nodes[1:-1]] == [("0", 1), ("1", 1), ("2", 1), ("3", 2)]


def test_skips_from_one_to_another_keep_blocks_apart() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for block in self.down:
            x = block(x)
            kept.append(x)
        for block in self.up:
            x = block(x, kept.pop())
        return x

    found = drawn(Apply(forward, down=blocks(3), up=blocks(3)))
    assert [n.count for n in found.nodes if n.kind == "module"] == [1] * 6
    assert {("down.0", "up.2"), ("down.1", "up.1"), ("down.2", "up.0")} <= wires(found)


def test_two_equal_levels_with_a_skip_each_are_not_folded() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        a = self.down[0](x)
        b = self.down[1](a)
        return self.last(b * 2 + self.side(a))

    found = drawn(Apply(forward, down=blocks(2), side=nn.Linear(4, 4), last=nn.Linear(4, 1)))
    assert [n.count for n in found.nodes if n.path.startswith("down")] == [1, 1]


def test_each_that_reads_all_before_it_is_drawn() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        found = [x]
        for block in self.blocks:
            found.append(block(*found))
        return found[-1]

    found = drawn(Apply(forward, blocks=blocks(4)))
    assert [n.count for n in found.nodes if n.kind == "module"] == [1] * 4
    assert {source for source, target in wires(found) if target == "blocks.3"} == {
        "args.0",
        "blocks.0",
        "blocks.1",
        "blocks.2",
    }


def test_alternating_blocks_are_a_group_of_two() -> None:
    layers = [nn.Sequential(nn.Linear(4, 4), nn.Tanh() if i % 2 else nn.ReLU()) for i in range(6)]
    found = drawn(nn.Sequential(*layers))
    group = node(found, "0, 1")
    assert (group.kind, group.count, group.paths) == ("group", 3, ("0", "1", "2", "3", "4", "5"))
    assert [(n.label, n.count, n.group) for n in found.nodes if n.kind == "module"] == [
        ("0", 1, group.id),
        ("1", 1, group.id),
    ]
    assert wires(found, carried=True) == {("1", "0")}
    assert wires(found) == {("input", "0"), ("0", "1"), ("1", "output")}


def test_a_repetition_begins_with_weights() -> None:
    layers = [layer for _ in range(3) for layer in (nn.Linear(4, 4), nn.ReLU())]
    found = drawn(nn.Sequential(nn.Linear(4, 4, bias=False), nn.ReLU(), *layers, nn.Linear(4, 1)))
    assert node(found, "2, 3").count == 3


def test_operators_between_modules_are_repeated_with_them() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + layer(x)
        return x

    layers = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(4))
    found = drawn(Apply(forward, layers=layers))
    group = next(n for n in found.nodes if n.kind == "group")
    assert group.count == 4
    assert [n.label for n in found.nodes if n.group == group.id] == ["layers.0", "add"]
    assert wires(found, carried=True) == {("add", "layers.0"), ("add", "add")}


class Recurrent(nn.Module):
    """A cell over the time steps of a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.out = nn.GRUCell(4, 8), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        state, states = torch.zeros(len(x), 8), []
        for step in range(x.shape[1]):
            state = self.cell(x[:, step], state)
            states.append(state)
        return {"y": self.out(torch.stack(states)), "state": state}


def test_a_cell_over_time_steps_is_drawn_once() -> None:
    found = drawn(Recurrent(), torch.zeros(2, 20, 4))
    group = next(n for n in found.nodes if n.kind == "group")
    assert (group.count, group.paths, group.params) == (20, ("cell",), 3 * 8 * (4 + 8 + 2))
    assert wires(found, carried=True) == {("cell", "cell")}
    assert {
        ("x", "select"),
        ("select", "cell"),
        ("cell", "stack"),
        ("stack", "out"),
        ("cell", "state"),
    } <= wires(found)


def test_time_steps_cut_at_once_are_alike() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        state = torch.zeros(len(x), 8)
        for step in x.unbind(1):
            state = self.cell(step, state)
        return state

    found = drawn(Apply(forward, cell=nn.GRUCell(4, 8)), torch.zeros(2, 20, 4))
    assert [(n.label, n.count) for n in found.nodes if n.kind == "module"] == [("cell", 20)]


class Cached(nn.Module):
    """Each layer has a state of its own, which is given and returned in a list."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.blocks = blocks(count)

    def forward(self, x: torch.Tensor, cache: list[torch.Tensor]) -> dict[str, Any]:
        new = []
        for block, state in zip(self.blocks, cache, strict=True):
            x = block(x, state)
            new.append(x.relu())
        return {"y": x, "cache": new}


def test_states_of_repeated_layers_are_one_input_and_one_output() -> None:
    cache = [torch.full((2, 4), float(index)) for index in range(6)]
    found = drawn(Cached(6), {"x": X, "cache": cache})
    ends = [(n.label, n.kind, n.count) for n in found.nodes if n.kind in ("input", "output")]
    assert ends == [("x", "input", 1), ("cache.*", "input", 6), ("y", "output", 1), ("cache.*", "output", 6)]
    assert not found.notes
    assert node(found, "cache.*", kind="input").paths == tuple(f"cache.{index}" for index in range(6))


def test_heads_side_by_side_are_drawn_once_and_projections_are_not() -> None:
    def heads(self: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([head(x) for head in self.heads], dim=-1)

    found = drawn(Apply(heads, heads=blocks(4)))
    assert node(found, "heads.0").count == 4
    assert not wires(found, carried=True)

    def attention(self: Any, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(self.q(x), self.k(x), self.v(x))

    found = drawn(Apply(attention, q=nn.Linear(4, 4), k=nn.Linear(4, 4), v=nn.Linear(4, 4)))
    assert [n.label for n in found.nodes if n.kind == "module"] == ["q", "k", "v"]


def chain(widths: list[int]) -> Report:
    """One layer after another, from each width to the next, as a run would tell."""
    layers = list(pairwise(widths))
    paths = [str(index) for index in range(len(layers))]
    modules = (build.module(children=tuple(paths)), *(build.module(path, "Linear") for path in paths))
    calls = [build.call()]
    ops = []
    for index, (before, after) in enumerate(layers):
        calls.append(build.call(paths[index], index=index + 1, parent=0))
        op = build.op("torch.nn.functional.linear", index=index, module=paths[index], call=index + 1)
        ends = {"inputs": (build.value("0", 2, before),), "outputs": (build.value("", 2, after),)}
        ops.append(replace(op, **ends))
    return Report(
        model=build.model(modules=modules, calls=tuple(calls), ops=tuple(ops)),
        run=Run(
            mode="fake",
            inputs=(build.value("0", 2, widths[0]),),
            outputs=(build.value("", 2, widths[-1]),),
        ),
        dataflow=Dataflow(
            names=("x",),
            inputs=(0,),
            outputs=((len(layers),),),
            reads=tuple((index,) for index in range(len(layers))),
            writes=tuple((index + 1,) for index in range(len(layers))),
        ),
    )


def test_a_thousand_equal_layers_are_one() -> None:
    found = flow_of(chain([4] * 1001))
    assert [(n.label, n.count) for n in found.nodes] == [("x", 1), ("0", 1000), ("output", 1)]
    assert not found.notes


@pytest.mark.slow
def test_a_thousand_layers_of_growing_sizes_stay_readable_and_say_so() -> None:
    report = chain(list(range(4, 1005)))
    found = flow_of(report)
    assert len(found.nodes) <= 60
    assert [note.code for note in found.notes] == ["flow-sizes-differ"]
    assert node(found, "x").dims == (("2", "4"),)
    assert node(found, "output").dims == (("2", "1004"),)
    assert len(flow_of(report, 1).nodes) == 1002  # a depth is taken at its word


def test_few_layers_of_growing_sizes_are_all_drawn() -> None:
    assert len(flow_of(chain(list(range(4, 44)))).nodes) == 41


@pytest.mark.slow
def test_ten_thousand_operators_take_no_time() -> None:
    report = chain([4] * 5000 + list(range(4, 5004)))
    assert report.dataflow is not None
    start = time.process_time()
    flow(report.model, report.run, report.dataflow)
    assert time.process_time() - start < 3  # a third of a second where nothing else runs


def test_blocks_in_blocks_are_folded_at_every_depth() -> None:
    def stack() -> nn.Module:
        return nn.Sequential(*(Block() for _ in range(3)), nn.Linear(4, 4))

    found = drawn(nn.Sequential(*(stack() for _ in range(4))), depth=3)
    assert [n.count for n in found.nodes if n.kind == "group"] == [4, 3]
    assert wires(found, carried=True) >= {("relu → add", "norm"), ("3", "norm")}


def test_what_comes_from_each_repetition_is_told_from_what_comes_from_the_last() -> None:
    def of_all(self: Any, x: torch.Tensor) -> torch.Tensor:
        given = [x := block(x) for block in self.blocks]
        return torch.stack(given).sum(0)

    def of_the_last(self: Any, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return torch.stack([x] * len(self.blocks)).sum(0)

    for forward, each in ((of_all, True), (of_the_last, False)):
        found = drawn(Apply(forward, blocks=blocks(6)))
        stacked = node(found, "stack → sum")
        assert [edge.each for edge in found.edges if edge.target == stacked.id] == [each]
        assert ("each of blocks.0" in mg.render(found)) == each
        assert ("from each" in mg.render(found, "mermaid")) == each
