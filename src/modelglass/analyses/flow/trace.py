"""A forward pass as a graph: which operator read what from which, and in whose call.

Operators are known by their place among those that made a tensor; tensors by their numbers in `Dataflow`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from modelglass.report import Dataflow, Model, Op, Run, Shape

Span = tuple[int, int]  # the first operator, and the one after the last


@dataclass(slots=True)
class Trace:
    """The operators of a forward pass that made tensors, and the calls they ran in.

    `root` is the call of the model itself. A call without a span ran no such operator.
    """

    ops: list[Op]
    reads: list[tuple[int, ...]]
    writes: list[tuple[int, ...]]
    call: list[int]  # of each operator
    root: int
    parent: dict[int, int]  # of calls; the root has none
    depth: dict[int, int]  # of calls; the root's is 0
    module: dict[int, str]  # of calls
    type: dict[int, str]  # of calls: the module's class
    children: dict[int, list[int]]  # of calls: those that ran operators, in order
    span: dict[int, Span]  # of calls
    composite: set[int]  # calls of modules that hold others, whether these were called or not
    inputs: dict[int, str]  # names by number; the first of those given the same tensor
    returned: dict[int, list[str]]  # by number, the outputs it is part of
    made_by: dict[int, int]  # the operator that made a number
    shapes: dict[int, Shape] = field(default_factory=dict)  # by number
    readers: dict[int, list[int]] = field(default_factory=dict)
    exports: dict[int, list[int]] = field(default_factory=dict)  # of calls: numbers used outside
    _sides: dict[tuple[int, int], int | None] = field(default_factory=dict)

    def side(self, maker: int, reader: int) -> int | None:
        """Of two calls, the outermost around the first that is not around the second; None: it is."""
        key = maker, reader
        if key not in self._sides:
            around = set(self.around(reader))
            found: int | None = None
            for call in self.around(maker):
                if call in around:
                    break
                found = call
            self._sides[key] = found
        return self._sides[key]

    def around(self, call: int) -> Iterator[int]:
        """The call and those it ran in, from within."""
        at: int | None = call
        while at is not None:
            yield at
            at = self.parent.get(at)

    def tensors(self, op: int) -> tuple[str, ...]:
        """The parameters and buffers that an operator read."""
        return tuple(value.tensor for value in self.ops[op].inputs if value.tensor is not None)


def trace_run(model: Model, run: Run, dataflow: Dataflow) -> Trace:
    """The graph of the forward pass."""
    kept = [
        (op, reads, made)
        for op, reads, writes in zip(model.ops, dataflow.reads, dataflow.writes, strict=True)
        if op.phase == "forward" and (made := tuple(number for number in writes if number is not None))
    ]
    roots = [call.index for call in model.calls if call.parent is None and call.phase == "forward"]
    root = roots[0] if len(roots) == 1 else -1
    trace = Trace(
        ops=[op for op, _, _ in kept],
        reads=[reads for _, reads, _ in kept],
        writes=[made for _, _, made in kept],
        call=[root if op.call is None else op.call for op, _, _ in kept],
        root=root,
        parent={},
        depth={root: 0},
        module={root: ""},
        type={root: ""},
        children={},
        span={},
        composite=set(),
        inputs={},
        returned={},
        made_by={number: at for at, (_, _, made) in enumerate(kept) for number in made},
    )
    _nest(trace, model)
    _name_ends(trace, run, dataflow)
    for op, numbers in zip(model.ops, dataflow.writes, strict=True):
        for value, number in zip(op.outputs, numbers, strict=False):
            if number is not None and value.shape is not None:
                trace.shapes[number] = value.shape
    _find_readers(trace)
    return trace


def _nest(trace: Trace, model: Model) -> None:
    types = {module.path: module.qualified_type for module in model.modules}
    holders = {module.path for module in model.modules if module.children}
    trace.composite = {call.index for call in model.calls if call.module in holders}
    for call in model.calls:
        trace.module[call.index] = call.module
        trace.type[call.index] = types.get(call.module, "")
        if call.index != trace.root:
            trace.parent[call.index] = trace.root if call.parent is None else call.parent
            trace.depth[call.index] = trace.depth[trace.parent[call.index]] + 1
    for at, owner in enumerate(trace.call):
        for call_index in trace.around(owner):
            first, _ = trace.span.get(call_index, (at, at))
            trace.span[call_index] = first, at + 1
    for index in sorted(trace.span, key=lambda index: (trace.span[index][0], trace.depth[index])):
        if index != trace.root:
            trace.children.setdefault(trace.parent[index], []).append(index)


def _name_ends(trace: Trace, run: Run, dataflow: Dataflow) -> None:
    for name, number in zip(dataflow.names, dataflow.inputs, strict=True):
        if number is not None:
            trace.inputs.setdefault(number, name)
    for value, number in zip(run.inputs, dataflow.inputs, strict=True):
        if number is not None and value.shape is not None:
            trace.shapes[number] = value.shape
    for value, numbers in zip(run.outputs, dataflow.outputs, strict=True):
        for number in numbers:
            trace.returned.setdefault(number, []).append(value.name)


def _find_readers(trace: Trace) -> None:
    """Who reads each number, and which numbers leave each call."""
    left: dict[tuple[int, int], None] = {}
    for at, numbers in enumerate(trace.reads):
        for number in dict.fromkeys(numbers):
            trace.readers.setdefault(number, []).append(at)
            maker = trace.made_by.get(number)
            if maker is None or trace.call[maker] == trace.call[at]:
                continue
            _leave(trace, left, number, trace.call[maker], trace.side(trace.call[maker], trace.call[at]))
    for number in trace.returned:
        if number in trace.made_by:
            made_in = trace.call[trace.made_by[number]]
            _leave(trace, left, number, made_in, None if made_in == trace.root else _top(trace, made_in))
    for call, number in sorted(left):
        trace.exports.setdefault(call, []).append(number)


def _top(trace: Trace, call: int) -> int:
    return next(each for each in trace.around(call) if trace.parent[each] == trace.root)


def _leave(
    trace: Trace, left: dict[tuple[int, int], None], number: int, inner: int, outer: int | None
) -> None:
    if outer is None:
        return
    for call in trace.around(inner):
        left[call, number] = None
        if call == outer:
            return
