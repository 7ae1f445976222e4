"""What holds for every flow, whatever the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import modelglass as mg
from contracted_flow import contracted
from modelglass.report import Flow, FlowNode, Report


def flow_of(report: Report, depth: int | None = None) -> Flow:
    """The flow of an observed run, with everything checked that holds for all flows."""
    found = mg.flow(report, depth=depth)
    check_order(found)
    check_sources(found, report)
    check_reach(found, report)
    if depth is not None:
        check_modules(found, report, depth)
    return found


def check_order(found: Flow) -> None:
    """Nodes come after what they read, and are drawn right after their group's other nodes."""
    place = {node.id: index for index, node in enumerate(found.nodes)}
    for edge in found.edges:
        assert edge.carried or place[edge.source] < place[edge.target], edge
    for node in found.nodes:
        assert node.group is None or place[node.group] < place[node.id]
    open_groups: list[str] = []
    closed: set[str] = set()
    for node in found.nodes:
        while open_groups and open_groups[-1] != node.group:
            closed.add(open_groups.pop())
        assert node.group not in closed, "a group is interrupted"
        if node.kind == "group":
            open_groups.append(node.id)


def check_sources(found: Flow, report: Report) -> None:
    """What is drawn comes from somewhere: only modules make something from nothing, such as positions."""
    targets = {edge.target for edge in found.edges}
    assert report.dataflow is not None
    pairs = zip(report.run.outputs, report.dataflow.outputs, strict=True)
    made = {value.name or "output" for value, numbers in pairs if numbers}
    for node in found.nodes:
        if node.kind == "operators" or (node.kind == "output" and node.label in made):
            assert node.id in targets or node.tensors, node


def check_reach(found: Flow, report: Report) -> None:
    """Inputs reach the outputs that they reach in the run, and at a depth, in the graph of its calls."""
    drawn = _reach((edge.source, edge.target) for edge in found.edges)
    ends = {node.label: node for node in found.nodes if node.kind in ("input", "output")}
    assert report.dataflow is not None
    whole = _calls(report, depth=1_000_000 if found.depth is None else found.depth)
    least = _operators(report)
    most = _calls(report, depth=1 if found.depth is None else found.depth)
    for name, number in zip(report.dataflow.names, report.dataflow.inputs, strict=True):
        for index, value in enumerate(report.run.outputs):
            pair = ends.get(name), ends.get(value.name or "output")
            if number is None or pair[0] is None or pair[1] is None:
                continue
            shown = pair[1].id in drawn.get(pair[0].id, set())
            output = ("output", index)
            assert shown or output not in least.get(("input", number), set()), (name, value.name)
            assert output in most.get(("input", number), set()) or not shown, (name, value.name)
            if found.depth is not None:
                assert shown == (output in whole.get(("input", number), set())), (name, value.name)


def check_modules(found: Flow, report: Report, depth: int) -> None:
    """Modules reach the modules that they reach in the graph of calls, whatever is folded between them."""
    assert report.dataflow is not None
    calls = Counter(call.module for call in report.model.calls)
    names = {("call", call.index): call.module for call in report.model.calls if calls[call.module] == 1}
    groups = {each.id: each for each in found.nodes if each.kind == "group"}
    alone = {
        each.id: each.path
        for each in found.nodes
        if each.kind == "module" and calls[each.path] == 1 and _times(each, groups) == 1
    }
    theirs = _reach(contracted(report.model, report.run, report.dataflow, depth), names)
    ours = _reach(((edge.source, edge.target) for edge in found.edges), alone)
    paths = set(alone.values())
    reached = {names[start]: {names[end] for end in ends if end in names} for start, ends in theirs.items()}
    for start, ends in ours.items():
        shown = {alone[end] for end in ends if end in alone}
        assert shown == reached.get(alone[start], set()) & paths, alone[start]


def _times(each: FlowNode, groups: dict[str, FlowNode]) -> int:
    outer = 1 if each.group is None else _times(groups[each.group], groups)
    return outer * each.count


def node(found: Flow, label: str, **more: Any) -> FlowNode:
    """The one node of that label, and of whatever else is said."""
    nodes = [
        each
        for each in found.nodes
        if each.label == label and all(getattr(each, key) == value for key, value in more.items())
    ]
    assert len(nodes) == 1, [(each.label, each.kind) for each in found.nodes]
    return nodes[0]


def wires(found: Flow, *, carried: bool = False) -> set[tuple[str, str]]:
    """The edges by labels."""
    labels = {each.id: each.label for each in found.nodes}
    return {(labels[edge.source], labels[edge.target]) for edge in found.edges if edge.carried is carried}


def _calls(report: Report, depth: int) -> dict[Any, set[Any]]:
    assert report.dataflow is not None
    return _reach(contracted(report.model, report.run, report.dataflow, depth))


def _operators(report: Report) -> dict[Any, set[Any]]:
    """Straight from the numbers."""
    dataflow = report.dataflow
    assert dataflow is not None
    makers = {
        number: index for index, made in enumerate(dataflow.writes) for number in made if number is not None
    }
    edges: list[tuple[Any, Any]] = []
    for index, numbers in enumerate(dataflow.reads):
        edges += [(makers.get(number, ("input", number)), index) for number in numbers]
    for index, numbers in enumerate(dataflow.outputs):
        edges += [(makers.get(number, ("input", number)), ("output", index)) for number in numbers]
    return _reach(edges)


def _reach(edges: Iterable[tuple[Any, Any]], starts: Iterable[Any] | None = None) -> dict[Any, set[Any]]:
    """What can be reached from somewhere, without anything else being said from inputs."""
    after: dict[Any, set[Any]] = {}
    targets = set()
    for source, target in edges:
        after.setdefault(source, set()).add(target)
        targets.add(target)
    found: dict[Any, set[Any]] = {}
    for start in set(after) - targets if starts is None else starts:
        reached: set[Any] = set()
        waiting = [start]
        while waiting:
            for each in after.get(waiting.pop(), ()):
                if each not in reached:
                    reached.add(each)
                    waiting.append(each)
        found[start] = reached
    return found
