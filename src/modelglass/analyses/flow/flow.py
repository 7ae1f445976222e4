"""From the tensors of a run to a diagram of modules: what is drawn, how deep, folded, in which stage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from modelglass.analyses.flow.call_signatures import find_signatures
from modelglass.analyses.flow.diagram import Diagram, DiagramBuilder, edges_of
from modelglass.analyses.flow.drawn_calls import DrawnCalls
from modelglass.analyses.flow.ends import draw_inputs, draw_outputs, fold_ends, unread
from modelglass.analyses.flow.opening import is_crowded, open_readably, open_to
from modelglass.analyses.flow.relevance import relevance
from modelglass.analyses.flow.stages import assign_stages, repeated_blocks
from modelglass.analyses.flow.trace import trace_run
from modelglass.analyses.flow.words import is_unseen
from modelglass.report import Counts, Dataflow, Flow, FlowNode, Model, Note, Run, Stage, Symbols

UNREAD = "In this run nothing read these inputs; a mask that hides nothing, for one, need not be read."


def flow(
    model: Model,
    run: Run,
    dataflow: Dataflow,
    *,
    symbols: Symbols | None = None,
    counts: Counts | None = None,
    depth: int | None = None,
) -> Flow:
    """The dataflow between calls of modules, and operators where no module did the work.

    `depth` counts nested calls: with 1, the modules that the model itself calls are drawn whole. None opens
    what is repeated, and what is large, as long as people can read it.
    """
    trace = trace_run(model, run, dataflow)
    picture = DrawnCalls(trace, relevance(trace), find_signatures(trace, model))
    blocks = repeated_blocks(trace, picture.same)
    loose = depth is None and is_crowded(picture)
    if loose:
        picture = DrawnCalls(trace, picture.relevance, find_signatures(trace, model, sizes=False))
    if depth is None:
        open_readably(picture, blocks, len(dataflow.inputs) + len(run.outputs))
    else:
        open_to(picture, depth)
    sheet = Diagram()
    draughtsman = DiagramBuilder(picture, model, symbols, counts, sheet)
    draw_inputs(draughtsman, run, dataflow)
    draughtsman.draw_calls()
    draughtsman.connect_calls()
    draw_outputs(draughtsman, run, dataflow)
    fold_ends(draughtsman)
    return Flow(
        name=model.name,
        nodes=tuple(_finish_nodes(sheet, _stages(sheet, picture, blocks))),
        edges=edges_of(sheet, picture),
        symbols=() if symbols is None else symbols.symbols,
        depth=depth,
        notes=tuple(_notes(sheet, picture, loose)),
    )


def _stages(sheet: Diagram, picture: DrawnCalls, blocks: set[int]) -> dict[str, Stage]:
    """Of every node between inputs and outputs; a group with a block in it is one as well."""
    trace = picture.trace
    inside = {op for call in blocks for op in range(*trace.span[call])}
    marked = {name for op, name in sheet.at.items() if op in inside}
    edges = [(source, target) for source, target, carried in sheet.edges if not carried]
    stages = assign_stages(sheet.drawn, edges, marked)
    for name in reversed(list(sheet.nodes)):
        group = sheet.nodes[name].group
        if group is not None and name in stages and stages.get(group) != "blocks":
            stages[group] = stages[name]
    return stages


def _finish_nodes(sheet: Diagram, stages: dict[str, Stage]) -> Iterator[FlowNode]:
    for name, node in sheet.nodes.items():
        yield replace(
            node,
            stage=stages.get(name, node.stage),
            dims=tuple(sheet.dims.get(name, ())),
            tensors=node.tensors or tuple(sheet.tensors.get(name, ())),
        )


def _notes(sheet: Diagram, picture: DrawnCalls, loose: bool) -> Iterator[Note]:
    names = unread(sheet)
    if names:
        yield Note(code="flow-unread-input", text=UNREAD, where=names)
    if loose and any(drawn.count > 1 for drawn in sheet.drawn.values()):
        text = "Calls in a row that differ only in sizes are drawn once, with the sizes of the first."
        yield Note(code="flow-sizes-differ", text=text)
    said = " and ".join(_list_left_out(picture))
    if said:
        yield Note(code="flow-left-out", text=f"Operators that are not drawn: {said}.")


def _list_left_out(picture: DrawnCalls) -> Iterator[str]:
    left_out = [at for looked in picture.open.values() for at in looked.level.left_out]
    fed, held, writes = picture.relevance.fed, picture.relevance.held, picture.trace.writes
    plain = _plain(picture, left_out)
    constant = sum(not fed[at] and writes[at][0] not in held and at not in plain for at in left_out)
    unused = sum(fed[at] for at in left_out)
    if constant:
        yield f"{constant:,} that depend on no input"
    if unused:
        yield f"{unused:,} that lead to no output"


def _plain(picture: DrawnCalls, left_out: list[int]) -> set[int]:
    """Operators that only hand on a constant, as when a number is added to a tensor."""
    trace = picture.trace
    found: set[int] = set()
    for at in sorted(left_out):
        if is_unseen(trace.ops[at]) and all(trace.made_by.get(number) in found for number in trace.reads[at]):
            found.add(at)
    return found
