"""Inputs and outputs in lists of pairs: drawn once for each side of the pair, into what reads that side."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import modelglass as mg
from flow_checks import flow_of, node, wires
from modelglass.report import Flow
from models import Apply

X = torch.zeros(2, 4)


def drawn(module: nn.Module, inputs: Any) -> Flow:
    return flow_of(mg.inspect(module.eval(), inputs), 1)


class Pairs(nn.Module):
    """Each layer reads a key and a value, which are given and returned in pairs; some the other way round."""

    def __init__(self, count: int, swapped: tuple[int, ...] = (), *, flat: bool = False) -> None:
        super().__init__()
        self.swapped, self.flat = swapped, flat
        self.layers = nn.ModuleList(
            nn.ModuleDict({name: nn.Linear(4, 4) for name in ("k", "v", "o")}) for _ in range(count)
        )

    def forward(self, x: torch.Tensor, past: list[Any]) -> tuple[torch.Tensor, list[Any]]:
        given = list(zip(past[::2], past[1::2], strict=True)) if self.flat else past
        new: list[Any] = []
        for index, layer in enumerate(self.layers):
            key, value = given[index][::-1] if index in self.swapped else given[index]
            key, value = key + layer["k"](x), value * layer["v"](x)
            x = layer["o"](key @ value.mT @ x)
            new += [key, value] if self.flat else [(key, value)]
        return x, new


def pairs(count: int, swapped: tuple[int, ...] = (), *, flat: bool = False) -> Flow:
    past: list[Any] = [(torch.zeros(2, 4), torch.ones(2, 4)) for _ in range(count)]
    given = [each for pair in past for each in pair] if flat else past
    return drawn(Pairs(count, swapped, flat=flat), {"x": X, "past": given})


def ends_of(found: Flow) -> dict[str, int]:
    return {n.label: n.count for n in found.nodes if n.kind in ("input", "output")}


@pytest.mark.parametrize("count", [3, 4, 6])
def test_keys_and_values_in_pairs_are_two_inputs(count: int) -> None:
    found = pairs(count)
    assert [n.count for n in found.nodes if n.kind == "group"] == [count]
    assert {n.label: n.paths for n in found.nodes if n.kind == "input" and n.count > 1} == {
        f"past.*.{side}": tuple(f"past.{index}.{side}" for index in range(count)) for side in (0, 1)
    }
    inward = {each for each in wires(found) if each[0].startswith("past")}
    assert inward == {("past.*.0", "add"), ("past.*.1", "mul")}
    assert not found.notes


def test_keys_and_values_in_pairs_are_two_outputs() -> None:
    found = pairs(4)
    assert ends_of(found) == {"x": 1, "past.*.0": 4, "past.*.1": 4, "0": 1, "1.*.0": 4, "1.*.1": 4}
    assert {("add", "1.*.0"), ("mul", "1.*.1")} <= wires(found)


class PairLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, pair: Any) -> Any:
        return self.inner(x) + pair[0] * pair[1], (pair[0] + x, pair[1] - x)


@pytest.mark.parametrize("count", [2, 5])
def test_keys_and_values_of_layers_that_are_drawn_whole_stay_apart(count: int) -> None:
    def forward(self: Any, x: torch.Tensor, past: Any) -> Any:
        new = []
        for layer, pair in zip(self.layers, past, strict=True):
            x, made = layer(x, pair)
            new.append(made)
        return x, new

    past = [(torch.zeros(2, 4), torch.ones(2, 4)) for _ in range(count)]
    found = drawn(Apply(forward, layers=nn.ModuleList(PairLayer() for _ in range(count))), (X, past))
    assert node(found, "layers.0").count == count
    ends = ends_of(found)
    assert ends["args.1.*.0"] == ends["args.1.*.1"] == count
    assert count < 4 or ends["1.*.0"] == ends["1.*.1"] == count


@pytest.mark.parametrize("flat", [False, True], ids=["in pairs", "in one list"])
def test_a_block_that_swaps_key_and_value_is_not_folded(flat: bool) -> None:
    found = pairs(4, swapped=(3,), flat=flat)
    (group,) = (n for n in found.nodes if n.kind == "group")
    assert group.count == 3
    names = {n.id: n.label for n in found.nodes}
    last = {n.id for n in found.nodes if n.kind == "operators" and n.group is None}
    ends = [(names[edge.source], names[edge.target]) for edge in found.edges if edge.target in last]
    key, value = ("past.7", "past.6") if flat else ("past.3.1", "past.3.0")
    assert [each for each in ends if each[0].startswith("past")] == [(value, "mul"), (key, "add")]


def test_keys_and_values_of_one_list_go_where_they_are_read() -> None:
    found = pairs(4, flat=True)
    assert [n.count for n in found.nodes if n.kind == "group"] == [4]
    labels = {n.id: n.label for n in found.nodes}
    after = {edge.source: labels[edge.target] for edge in found.edges}
    assert {after[n.id]: n.paths for n in found.nodes if n.kind == "input" and n.label == "past.*"} == {
        "add": ("past.0", "past.2", "past.4", "past.6"),
        "mul": ("past.1", "past.3", "past.5", "past.7"),
    }


def test_an_input_of_a_list_that_nobody_reads_does_not_go_where_others_go() -> None:
    def forward(self: Any, x: torch.Tensor, past: Any) -> torch.Tensor:
        for layer, state in zip(self.layers, past, strict=False):
            x = layer(x) + state
        return x

    past = [torch.full((2, 4), float(index)) for index in range(5)]
    found = drawn(Apply(forward, layers=nn.ModuleList(nn.Linear(4, 4) for _ in range(4))), (X, past))
    assert ends_of(found) == {"args.0": 1, "args.1.*": 4, "args.1.4": 1, "output": 1}
    assert [note.where for note in found.notes] == [("args.1.4",)]
