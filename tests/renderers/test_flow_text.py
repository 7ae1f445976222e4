"""The flow in a terminal: every edge is a line or a name, and every line fits."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

import build_flow
from modelglass.api import RENDERERS
from modelglass.renderers._escape import cell_width
from modelglass.renderers.flow import lanes

FLOW = RENDERERS["flow"]

Golden = Callable[[str, str], None]
FLOWS = {**build_flow.FLOWS, **build_flow.CHANCE}
NAMES = sorted(FLOWS)


@pytest.mark.parametrize("name", sorted(set(build_flow.FLOWS) - {"large"}))
def test_diagrams(name: str, golden: Golden) -> None:
    golden(f"flow/{name}.txt", FLOW["text"](FLOWS[name]()))


@pytest.mark.parametrize("width", [40, 60, 100, 200])
@pytest.mark.parametrize("name", NAMES)
def test_no_line_is_longer_than_the_width(name: str, width: int) -> None:
    shown = FLOW["text"](FLOWS[name](), width=width)
    assert max(map(cell_width, shown.splitlines())) <= width


def test_narrow_terminals(golden: Golden) -> None:
    golden("flow/diffusion-60.txt", FLOW["text"](build_flow.diffusion(), width=60))


@pytest.mark.parametrize("name", NAMES)
def test_colour_changes_nothing_but_colour(name: str) -> None:
    flow = FLOWS[name]()
    painted = FLOW["text"](flow, color=True)
    assert "\x1b[" in painted
    assert re.sub(r"\x1b\[\d*m", "", painted) == FLOW["text"](flow)


def test_a_terminal_obeys_nothing_in_a_name() -> None:
    shown = FLOW["text"](build_flow.hostile())
    assert not set(shown) & {"\x1b", "\x07", "\u202e"}
    assert "\\x1b[31mred" in shown


def test_stages_without_nodes_have_no_heading() -> None:
    headings = [line.strip("│ ") for line in FLOW["text"](build_flow.chain()).splitlines()]
    assert [
        line.split("  ")[0] for line in headings if line.split("  ")[0] in ("Input", "Head", "Output")
    ] == [
        "Input",
        "Head",
        "Output",
    ]
    assert not {"Embedding", "Blocks"} & set(headings)


def test_of_two_nodes_with_one_name_the_further_one_is_numbered() -> None:
    shown = FLOW["text"](build_flow.diffusion())
    assert "add#2  ← add#1, mul" in shown
    assert "to the next: add → norm1, add#2" in shown


def test_a_number_alone_is_no_name() -> None:
    shown = FLOW["text"](build_flow.numbered())
    assert "add → relu  ← 0#1, reduce.1" in shown
    assert "to the next: relu → reduce.0, relu" in shown


def test_what_a_node_reads_is_named_where_there_is_no_room_for_a_line() -> None:
    """Forty skips side by side: a narrow terminal has lanes for some, the others are named."""
    sketch = build_flow.Sketch("Many")
    made = [sketch.input(f"x{index}", "B", "8") for index in range(40)]
    for index in range(0, 40, 2):
        sketch.module(f"late{index}", "Linear", made[index], dims=("B", "8"))
    shown = FLOW["text"](sketch.flow(), width=60)
    for index in range(0, 40, 2):
        (line,) = [line for line in shown.splitlines() if f"late{index} " in line]
        assert f"← x{index}" in line
    assert max(map(cell_width, shown.splitlines())) <= 60


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("most", [3, 8, 40])
def test_lines_lead_from_every_source_to_its_reader(name: str, most: int) -> None:
    """Followed by hand: down from a node along its lane to the row where the line goes in."""
    flow = FLOWS[name]()
    order = [node.id for node in flow.nodes if node.kind != "group"]
    sources: dict[str, list[str]] = {}
    for edge in flow.edges:
        if not edge.carried:
            sources.setdefault(edge.target, []).append(edge.source)
    rows = dict(zip(order, lanes.rows(order, sources, "●" * len(order), most), strict=True))
    comes_before = lambda one, other: order.index(one) < order.index(other)
    drawn = 0
    for node in order:
        for source in rows[node].drawn:
            lane = rows[source].cells.index("●")
            between = order[order.index(source) + 1 : order.index(node)]
            assert all(rows[other].cells[lane] in "│├┤┼" for other in between)
            assert rows[node].cells[lane] in "●╰╯┴├┤┼"
            drawn += 1
    if most == 40:
        above = [source for node in order for source in sources.get(node, ()) if comes_before(source, node)]
        assert drawn == len(above)
    assert max(len(row.cells) for row in rows.values()) <= 2 * most


def test_data_that_comes_from_below_is_named() -> None:
    """A reader that is drawn above its source, as folding can have it."""
    flow = build_flow.residual()
    turned = replace(flow, nodes=(flow.nodes[0], flow.nodes[3], *flow.nodes[1:3], flow.nodes[4]))
    assert "add  ← mlp, x" in FLOW["text"](turned)


def test_a_flow_of_nothing_is_an_empty_diagram() -> None:
    assert FLOW["text"](build_flow.Sketch("Nothing").flow()).strip() == "Nothing"
