"""Inputs and outputs in a diagram, each by its name; those of a list that are used alike as one."""

from __future__ import annotations

from dataclasses import replace

from modelglass.analyses.flow.drawing import Draughtsman, Sheet
from modelglass.analyses.flow.folding import masked
from modelglass.report import Dataflow, Dims, FlowNode, Run

SEVERAL = 4  # outputs of a list that are drawn as one


def draw_inputs(draughtsman: Draughtsman, run: Run, dataflow: Dataflow) -> None:
    """A node for each input that is a tensor."""
    sheet = draughtsman.sheet
    for name, value, number in zip(dataflow.names, run.inputs, dataflow.inputs, strict=True):
        if number is None:
            continue
        node = FlowNode(
            id=sheet.next_id, kind="input", label=name or "input", stage="input", dtype=value.dtype
        )
        sheet.dims[node.id] = {draughtsman.dims(number): None}
        draughtsman.inputs.setdefault(number, []).append(sheet.add(node))


def draw_outputs(draughtsman: Draughtsman, run: Run, dataflow: Dataflow) -> None:
    """A node for each output that is a tensor, with its edges."""
    sheet = draughtsman.sheet
    for value, numbers in zip(run.outputs, dataflow.outputs, strict=True):
        if value.shape is None:
            continue
        name = sheet.next_id
        sheet.add(
            FlowNode(
                id=name,
                kind="output",
                label=value.name or "output",
                stage="output",
                dtype=value.dtype,
                tensors=() if value.tensor is None else (value.tensor,),
            )
        )
        plain = tuple(str(size) for size in value.shape)
        sheet.dims[name] = {draughtsman.dims(numbers[0]) if numbers else plain: None}
        for number in numbers:
            draughtsman.connect(number, name)


def fold_ends(sheet: Sheet) -> None:
    """Draw as one what lies in a list and goes to, or comes from, the same.

    Of the inputs that each repetition has one of, those of repetitions that are not drawn go nowhere.
    """
    far: dict[str, set[str]] = {}
    for source, target, _ in sheet.edges:
        far.setdefault(source, set()).add(target)
        far.setdefault(target, set()).add(source)
    alike: dict[tuple[str, str, tuple[Dims, ...], frozenset[str]], list[str]] = {}
    for name, node in sheet.nodes.items():
        if node.kind in ("input", "output") and masked(node.label) != node.label:
            key = node.kind, masked(node.label), tuple(sheet.dims[name])
            alike.setdefault((*key, frozenset(far.get(name, ()))), []).append(name)
    for (kind, label, dims, across), names in list(alike.items()):
        unread = alike.get((kind, label, dims, frozenset()), []) if across and kind == "input" else []
        if unread or len(names) >= SEVERAL:
            for name in (*names[1:], *unread):
                _join(sheet, names[0], name)
            unread.clear()


def _join(sheet: Sheet, first: str, name: str) -> None:
    node = sheet.nodes[first]
    paths = (*(node.paths or (node.label,)), sheet.nodes[name].label)
    sheet.nodes[first] = replace(node, count=node.count + 1, paths=paths, label=masked(paths[0]))
    del sheet.nodes[name]
    sheet.edges = {ends: dims for ends, dims in sheet.edges.items() if name not in ends[:2]}


def unread(sheet: Sheet) -> tuple[str, ...]:
    """Inputs from which nothing goes anywhere."""
    read = {source for source, _, _ in sheet.edges}
    return tuple(n.label for name, n in sheet.nodes.items() if n.kind == "input" and name not in read)
