"""Small networks with every kind of connection: what is drawn of them is what they do."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import modelglass as mg
from flow_checks import flow_of, node, wires
from modelglass.report import Flow, Symbol, Symbols
from models import Apply

X = torch.zeros(2, 4)


def drawn(module: nn.Module, inputs: Any = X, depth: int | None = 1) -> Flow:
    return flow_of(mg.inspect(module.eval(), inputs), depth)


def line(width: int = 4) -> nn.Linear:
    return nn.Linear(4, width)


def test_a_chain_is_a_chain() -> None:
    found = drawn(nn.Sequential(line(8), nn.ReLU(), nn.Linear(8, 3)))
    assert wires(found) == {("input", "0"), ("0", "1"), ("1", "2"), ("2", "output")}
    assert [n.kind for n in found.nodes] == ["input", "module", "module", "module", "output"]
    assert node(found, "0").dims == (("2", "8"),)
    assert node(found, "0").params == 40
    assert node(found, "1").params is None
    assert node(found, "output").dims == (("2", "3"),)
    assert node(found, "input").dtype == "float32"
    assert {edge.dims for edge in found.edges} == {("2", "4"), ("2", "8"), ("2", "3")}


def test_a_residual_addition_joins_two_branches() -> None:
    found = drawn(Apply(lambda self, x: self.b(x + self.a(x)), a=line(), b=line()))
    assert wires(found) == {("args.0", "a"), ("args.0", "add"), ("a", "add"), ("add", "b"), ("b", "output")}
    assert node(found, "add").operators == ("torch.add",)


def test_a_gate_is_a_product_with_what_comes_before_it() -> None:
    found = drawn(Apply(lambda self, x: F.silu(self.a(x)) * self.b(x), a=line(), b=line()))
    assert wires(found) >= {("a", "silu → mul"), ("b", "silu → mul"), ("silu → mul", "output")}


def test_a_concatenation_has_all_its_parts() -> None:
    found = drawn(Apply(lambda self, x: torch.cat([self.a(x), x, self.b(x)]), a=line(), b=line()))
    assert {source for source, target in wires(found) if target == "cat"} == {"a", "args.0", "b"}


def test_sums_after_another_are_one_sum_of_three_branches() -> None:
    found = drawn(Apply(lambda self, x: x + self.a(x) + self.b(x), a=line(), b=line()))
    assert {source for source, target in wires(found) if target == "add"} == {"a", "args.0", "b"}


def test_a_residual_inside_another_keeps_both_additions() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = x + self.a(x)
        return y + self.b(y)

    found = drawn(Apply(forward, a=line(), b=nn.Linear(4, 4, bias=False)))
    assert [n.label for n in found.nodes if n.kind == "operators"] == ["add", "add"]


def test_what_is_not_alike_behind_two_joins_is_not_mixed() -> None:
    """Rotating queries and keys by the same angles are two boxes, and attention follows."""

    def forward(self: Any, x: torch.Tensor, angle: torch.Tensor) -> torch.Tensor:
        q, k = self.q(x), self.k(x)
        q = q * angle + torch.cat([-q[:, 2:], q[:, :2]], 1) * angle
        k = k * angle + torch.cat([-k[:, 2:], k[:, :2]], 1) * angle
        return (q @ k.mT).softmax(-1) @ self.v(x)

    found = drawn(Apply(forward, q=line(), k=nn.Linear(4, 4, bias=False), v=line()), (X, torch.ones(2, 4)))
    assert [n.label for n in found.nodes if n.kind == "operators"] == [
        "mul → neg → cat → add",
        "mul → neg → cat → add",
        "matmul → softmax",
        "matmul",
    ]


class Named(nn.Module):
    """Several inputs, one of them unread, and outputs by name."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = line(), line(2)

    def forward(self, a: torch.Tensor, b: torch.Tensor, unread: torch.Tensor) -> dict[str, Any]:
        return {"sum": self.left(a) + b, "parts": [self.right(b), a]}


def test_inputs_and_outputs_have_their_names() -> None:
    found = drawn(Named(), {name: torch.zeros(2, 4) for name in ("a", "b", "unread")})
    assert [n.label for n in found.nodes if n.kind == "input"] == ["a", "b", "unread"]
    assert [n.label for n in found.nodes if n.kind == "output"] == ["sum", "parts.0", "parts.1"]
    assert ("a", "parts.1") in wires(found)
    assert ("b", "right") in wires(found)
    assert [(note.code, note.where) for note in found.notes] == [("flow-unread-input", ("unread",))]


def test_a_module_that_is_called_twice_is_two_nodes() -> None:
    found = drawn(Apply(lambda self, x, y: self.a(x) - self.a(y), a=line()), (X, torch.zeros(2, 4)))
    assert [n.path for n in found.nodes if n.kind == "module"] == ["a", "a"]
    assert {edge.target for edge in found.edges if edge.source == "n0"} != {
        edge.target for edge in found.edges if edge.source == "n1"
    }


def test_what_hands_its_input_on_is_not_drawn() -> None:
    found = drawn(nn.Sequential(line(), nn.Identity(), nn.Dropout(), line(8)))
    assert wires(found) == {("input", "0"), ("0", "3"), ("3", "output")}


def test_constants_are_left_out_and_counted() -> None:
    found = drawn(Apply(lambda self, x: self.a(x) + torch.arange(4).float().exp(), a=line()))
    assert wires(found) == {("args.0", "a"), ("a", "add"), ("add", "output")}
    (note,) = found.notes
    assert note.code == "flow-left-out"
    assert "depend on no input" in note.text


def test_operators_that_lead_nowhere_are_left_out_and_counted() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        _ = x.exp().sum()
        return self.a(x)

    found = drawn(Apply(forward, a=line()))
    assert wires(found) == {("args.0", "a"), ("a", "output")}
    assert [note.text for note in found.notes] == ["Operators that are not drawn: 2 that lead to no output."]


def test_a_module_whose_result_nobody_reads_is_drawn() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        self.b(x)
        return self.a(x)

    assert ("args.0", "b") in wires(drawn(Apply(forward, a=line(), b=line())))


class Positions(nn.Module):
    """A table of positions is cut and added; a gate multiplies."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(9, 4))
        self.gate = nn.Parameter(torch.ones(1))
        self.a, self.b = line(), line()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.a(x) + self.table[: len(x)]) * self.gate


def test_parameters_that_operators_read_are_named_where_they_are_used() -> None:
    found = drawn(Positions())
    assert node(found, "add").tensors == ("table",)
    assert node(found, "mul").tensors == ("gate",)
    assert wires(found) == {("x", "a"), ("a", "add"), ("add", "b"), ("b", "mul"), ("mul", "output")}
    assert not found.notes


def test_what_is_made_from_a_parameter_alone_and_returned_names_it_at_the_output() -> None:
    found = drawn(Apply(lambda self, x: {"y": self.a(x), "scale": self.a.bias.exp()}, a=line()))
    assert node(found, "scale").tensors == ("a.bias",)
    assert wires(found) == {("args.0", "a"), ("a", "y")}


def test_a_transposition_between_input_and_layer_is_shown_and_a_dimension_more_is_not() -> None:
    found = drawn(Apply(lambda self, x: self.a(x.transpose(1, 2))[:, None], a=line()), torch.zeros(2, 4, 5))
    assert wires(found) == {("args.0", "transpose"), ("transpose", "a"), ("a", "output")}
    assert node(found, "output").dims == (("2", "1", "5", "4"),)


def test_pieces_that_only_operators_use_belong_to_these() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        scale, shift = self.a(x).chunk(2, 1)
        return self.b(x) * scale + shift

    found = drawn(Apply(forward, a=line(8), b=line()))
    assert wires(found) >= {("a", "mul → add"), ("b", "mul → add"), ("mul → add", "output")}


def test_layers_without_modules_are_operators_of_their_own() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return F.linear(F.relu(F.linear(x, self.w)), self.v)

    w, v = (nn.Parameter(torch.zeros(size)) for size in ((6, 4), (3, 6)))
    found = drawn(Apply(forward, w=w, v=v))
    assert [(n.label, n.tensors) for n in found.nodes[1:-1]] == [
        ("linear → relu", ("w",)),
        ("linear", ("v",)),
    ]


def test_writing_in_place_is_followed() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = self.a(x)
        y[:, :2] = self.b(x)
        return self.c(y)

    found = drawn(Apply(forward, a=line(), b=line(2), c=line()))
    before = {source for source, target in wires(found) if target == "copy"}
    assert before == {"a", "b"}
    assert ("copy", "c") in wires(found)


def test_depth_counts_calls_and_not_lists() -> None:
    inner = nn.Sequential(line(), nn.ReLU())
    model = Apply(lambda self, x: self.list[0](x), list=nn.ModuleList([inner]))
    assert [n.label for n in drawn(model, depth=1).nodes] == ["args.0", "list.0", "output"]
    deeper = drawn(model, depth=2)
    assert [(n.label, n.kind, n.group) for n in deeper.nodes] == [
        ("args.0", "input", None),
        ("list.0", "group", None),
        ("0", "module", "n1"),
        ("1", "module", "n1"),
        ("output", "output", None),
    ]
    assert [n.label for n in drawn(model, depth=9).nodes] == [n.label for n in deeper.nodes]
    assert (deeper.depth, drawn(model, depth=None).depth) == (2, None)


def test_leaves_stay_whole_at_any_depth() -> None:
    attention = nn.MultiheadAttention(4, 2, batch_first=True)
    found = drawn(Apply(lambda self, x: self.a(x, x, x)[0], a=attention), torch.zeros(1, 3, 4), depth=9)
    assert [n.type for n in found.nodes if n.kind == "module"] == ["MultiheadAttention"]


def test_shapes_that_follow_the_inputs_have_their_names() -> None:
    report = mg.inspect(nn.Sequential(line(8)).eval(), X)
    assert report.dataflow is not None
    batch = Symbol(name="B", size=2, places=("input.0",), tried=(3,))
    symbols = Symbols(symbols=(batch,), shapes={0: ("B", "4"), 1: ("B", "8")})
    from modelglass.analyses.flow import flow

    found = flow(report.model, report.run, report.dataflow, symbols=symbols)
    assert [n.dims for n in found.nodes] == [(("B", "4"),), (("B", "8"),), (("B", "8"),)]
    assert found.symbols == (batch,)
    assert node(found, "0").params is None  # nobody counted


@pytest.mark.parametrize("train", [False, True], ids=["evaluated", "trained"])
def test_a_step_of_training_has_the_flow_of_its_forward_pass(train: bool) -> None:
    report = mg.inspect(nn.Sequential(line(), nn.ReLU(), line(1)), X, train=train)
    assert wires(flow_of(report, 1)) == {("input", "0"), ("0", "1"), ("1", "2"), ("2", "output")}
