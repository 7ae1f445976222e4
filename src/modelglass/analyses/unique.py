"""Group modules and operators that are equal; never group different ones.

Two modules are alike when their classes, settings, tensors and contents are; two calls when the modules are
alike, what went in and out had the same names, shapes and types, and the same kernels ran in them. So the
mode a module is in, or its place among the layers, counts exactly where it changes what runs. How much a
dropout drops does not count.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterator, Sequence

from modelglass.analyses.equal_blocks import Numbers, Structures, shapes, work
from modelglass.report import Call, Model, Op, Unique, UniqueModule, UniqueOp, Value


def unique(model: Model) -> Unique:
    """The distinct modules and operators of a model, and where each of them is."""
    numbers = Numbers()
    op_kinds = [numbers.of(_op_key(op)) for op in model.ops]
    modules = tuple(_unique_modules(model, _ModuleKinds(model, numbers)))
    counters = tuple(_counters(model))
    ops = tuple(_unique_ops(model, op_kinds, modules, frozenset(counters)))
    return Unique(modules=modules, ops=ops, counters=counters)


def _unique_modules(model: Model, kinds: _ModuleKinds) -> Iterator[UniqueModule]:
    paths: dict[int, list[str]] = {}
    calls: dict[int, list[int]] = defaultdict(list)
    places = _Places(model)
    for module in model.modules:
        for kind in kinds.of_module(module.path):
            paths.setdefault(kind, []).extend(places.of(module.path))
    for call in model.calls:
        calls[kinds.of_call[call.index]].append(call.index)
    macs = _macs_by_call(model)
    for number, (kind, found) in enumerate(paths.items()):
        first = calls[kind][0] if kind in calls else None
        yield UniqueModule(
            id=f"mod_{number:03}",
            paths=tuple(found),
            calls=tuple(calls[kind]),
            macs=None if first is None else macs[first],
        )


class _Places:
    """Every path to a module, also those that lead through a parent that hangs in several places."""

    def __init__(self, model: Model) -> None:
        self._modules = {module.path: module for module in model.modules}
        self._known: dict[str, tuple[str, ...]] = {"": ("",)}

    def of(self, path: str) -> tuple[str, ...]:
        """The module's own path first."""
        if path not in self._known:
            self._known[path] = (path,)  # enough inside itself, where a module holds one that holds it
            found = dict.fromkeys(
                f"{parent}.{name}" if parent else name
                for place in (path, *self._modules[path].aliases)
                for above, _, name in [place.rpartition(".")]
                for parent in self.of(above)
            )
            self._known[path] = tuple(found)
        return self._known[path]


def _counters(model: Model) -> Iterator[int]:
    """Operators that add in place to a buffer of one whole number."""
    buffers = {tensor.name for tensor in model.tensors if tensor.kind == "buffer"}
    for op in model.ops:
        if op.overload.startswith("aten.add_.") and op.inputs:
            counter = op.inputs[0]
            if counter.tensor in buffers and counter.numel == 1 and "int" in (counter.dtype or ""):
                yield op.index


def _unique_ops(
    model: Model,
    op_kinds: Sequence[int],
    modules: Sequence[UniqueModule],
    counters: Collection[int],
) -> Iterator[UniqueOp]:
    owner: dict[int | None, str] = {call: module.id for module in modules for call in module.calls}
    ops: dict[int, list[int]] = {}
    for op, kind in zip(model.ops, op_kinds, strict=True):
        if op.index not in counters:
            ops.setdefault(kind, []).append(op.index)
    for number, indices in enumerate(ops.values()):
        yield UniqueOp(
            id=f"op_{number:03}",
            ops=tuple(indices),
            # What runs outside every call belongs to the root, which comes first.
            modules=tuple(owner.get(model.ops[index].call, modules[0].id) for index in indices),
            macs=model.ops[indices[0]].macs,
        )


def _op_key(op: Op) -> Hashable:
    return op.overload, _text(op.attributes), _op_values(op.inputs), _op_values(op.outputs)


def _op_values(values: Sequence[Value]) -> Hashable:
    return tuple((v.name, v.shape, v.dtype, v.text, v.nnz, v.parts) for v in values)


# The same text for the same settings; made once, because a run asks thousands of times.
_text = json.JSONEncoder(sort_keys=True).encode


class _ModuleKinds:
    """The kind of each call and of each module that was never called: equal for what is alike."""

    def __init__(self, model: Model, numbers: Numbers) -> None:
        self._numbers = numbers
        self._structures = Structures(model, numbers)
        self._work = _Work(model, self._structures)
        self._calls: dict[str, list[Call]] = defaultdict(list)
        for call in model.calls:
            self._calls[call.module].append(call)
        self.of_call: dict[int, int] = {}
        self._of_uncalled: dict[str, int] = {}
        self._add_calls(model)
        for module in reversed(model.modules):  # a module comes before what it contains
            if module.path not in self._calls:
                self._of_uncalled[module.path] = self._uncalled_id(module.path)

    def of_module(self, path: str) -> tuple[int, ...]:
        """Every kind a module appears as, in the order of its calls."""
        if path not in self._calls:
            return (self._of_uncalled[path],)
        return tuple(dict.fromkeys(self.of_call[call.index] for call in self._calls[path]))

    def _add_calls(self, model: Model) -> None:
        called: dict[int | None, list[int]] = defaultdict(list)
        for call in reversed(model.calls):  # a call comes before those it makes
            key = (
                self._structures.of(call.module),
                shapes(call.inputs),
                shapes(call.outputs),
                self._work.of(call),
                tuple(called[call.index]),
            )
            self.of_call[call.index] = self._numbers.of(key)
            called[call.parent].append(self.of_call[call.index])

    def _uncalled_id(self, path: str) -> int:
        contents = tuple(
            (name, self.of_module(child) if self._is_known(child) else self._structures.of(child))
            for name, child in self._structures.contents(path)
        )
        return self._numbers.of(("never called", self._structures.of(path), contents))

    def _is_known(self, path: str) -> bool:
        """False for a module that hangs here as well as further up in the tree, and was never called."""
        return path in self._calls or path in self._of_uncalled


class _Work:
    """What ran in a call itself; where a rate of dropout is set, without the numbers given to kernels."""

    def __init__(self, model: Model, structures: Structures) -> None:
        self._modules = {module.path: module for module in model.modules}
        self._rated = {module.path for module in model.modules if structures.settings.has_rate(module)}
        self._ops: dict[int | None, list[Hashable]] = defaultdict(list)
        for op in model.ops if self._rated else ():
            if op.module in self._rated:
                self._ops[op.call].append(work(op))

    def of(self, call: Call) -> Hashable:
        if call.module not in self._rated:
            return call.ran
        return self._modules[call.module].training, tuple(self._ops[call.index])


def _macs_by_call(model: Model) -> dict[int, int | None]:
    """What each call cost, with the calls it made; None where a part is unknown."""
    own: dict[int | None, int | None] = defaultdict(int)
    for op in model.ops:
        if op.phase != "backward":
            own[op.call] = _sum(own[op.call], op.macs)
    total: dict[int, int | None] = {}
    for call in reversed(model.calls):
        total[call.index] = own[call.index]
        own[call.parent] = _sum(own[call.parent], own[call.index])
    return total


def _sum(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b
