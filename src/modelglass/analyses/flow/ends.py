"""Inputs and outputs in a diagram, each by its name; those of a list that are used alike as one."""

from __future__ import annotations

from dataclasses import replace

from modelglass.analyses.flow.diagram import Diagram, DiagramBuilder
from modelglass.analyses.flow.lists import by_list, mask_indices
from modelglass.report import Dataflow, Dims, FlowNode, Run

SEVERAL = 4  # outputs of a list that are drawn as one


def draw_inputs(draughtsman: DiagramBuilder, run: Run, dataflow: Dataflow) -> None:
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


def draw_outputs(draughtsman: DiagramBuilder, run: Run, dataflow: Dataflow) -> None:
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


def fold_ends(draughtsman: DiagramBuilder) -> None:
    """Draw as one what lies in a list and goes to, or comes from, the same.

    Of the inputs that each repetition has one of, those of repetitions that are not drawn go where the drawn
    one goes.
    """
    sheet = draughtsman.sheet
    far: dict[str, set[str]] = {}
    for source, target, _ in sheet.edges:
        far.setdefault(source, set()).add(target)
        far.setdefault(target, set()).add(source)
    drawn = set(far)
    for number, names in draughtsman.inputs.items():
        for name in names:
            far.setdefault(name, set()).update(draughtsman.readers(number))
    alike: dict[tuple[str, str, frozenset[str]], dict[str, str]] = {}
    for name, node in sheet.nodes.items():
        if node.kind in ("input", "output") and mask_indices(node.label) != node.label:
            key = node.kind, mask_indices(node.label), frozenset(far.get(name, ()))
            alike.setdefault(key, {})[name] = node.label
    gone: set[str] = set()
    for (_, _, across), labels in alike.items():
        hidden = labels.keys() - drawn if across else set()
        for label, names in by_list(labels, hidden):
            gone.update(_fold_ends(sheet, label, names, hidden))
    sheet.edges = {ends: dims for ends, dims in sheet.edges.items() if gone.isdisjoint(ends[:2])}


def _fold_ends(sheet: Diagram, label: str, names: list[str], hidden: set[str]) -> list[str]:
    """Join what is in one list, if it is much or not drawn by itself; the nodes that are gone."""
    sizes: dict[tuple[Dims, ...], list[str]] = {}
    for name in names:
        if name not in hidden:
            sizes.setdefault(tuple(sheet.dims[name]), []).append(name)
    gone = []
    behind = [name for name in names if name in hidden]
    for first, *rest in sizes.values():
        if behind or len(rest) + 1 >= SEVERAL:
            _join(sheet, label, first, [*rest, *behind])
            gone += [*rest, *behind]
            behind = []
    return gone


def _join(sheet: Diagram, label: str, first: str, others: list[str]) -> None:
    paths = tuple(sheet.nodes[name].label for name in (first, *others))
    sheet.nodes[first] = replace(sheet.nodes[first], count=len(paths), paths=paths, label=label)
    for name in others:
        sheet.dims[first].update(sheet.dims[name])
        del sheet.nodes[name]


def unread(sheet: Diagram) -> tuple[str, ...]:
    """Inputs from which nothing goes anywhere."""
    read = {source for source, _, _ in sheet.edges}
    return tuple(n.label for name, n in sheet.nodes.items() if n.kind == "input" and name not in read)
