"""The plain graph of calls and operators, before anything is joined, folded or left out."""

from __future__ import annotations

from modelglass.analyses.flow.trace import Trace, trace_run
from modelglass.report import Dataflow, Model, Run

Place = tuple[
    str, int
]  # ("call", its index), ("op", its index), ("input", its number), ("output", its place)


def contracted(model: Model, run: Run, dataflow: Dataflow, depth: int) -> set[tuple[Place, Place]]:
    """Who hands a tensor to whom: calls as one that are nested `depth` deep or call no others, and operators.

    Operators that made no tensor are not in it; an edge inside a call is none.
    """
    trace = trace_run(model, run, dataflow)
    places = [_place(trace, at, depth) for at in range(len(trace.ops))]
    edges: set[tuple[Place, Place]] = set()
    for at, numbers in enumerate(trace.reads):
        edges.update((_source(trace, places, number), places[at]) for number in numbers)
    for index, returned in enumerate(dataflow.outputs):
        edges.update((_source(trace, places, number), ("output", index)) for number in returned)
    return {(source, target) for source, target in edges if source != target}


def _place(trace: Trace, at: int, depth: int) -> Place:
    for call in trace.around(trace.call[at]):
        leaf = trace.depth[call] < depth and call != trace.root and not trace.children.get(call)
        if leaf or trace.depth[call] == depth:
            return "call", call
    return "op", trace.ops[at].index


def _source(trace: Trace, places: list[Place], number: int) -> Place:
    maker = trace.made_by.get(number)
    return ("input", number) if maker is None else places[maker]
