"""What a run cost: multiply-accumulates per operator, per module and in all."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace
from math import prod

from modelglass.analyses.cost.formulas import has_formula, macs_of
from modelglass.analyses.cost.free_kernels import is_other
from modelglass.report import Cost, Kernel, Model, ModuleCost, Op, Phase, Run, Tensor


def with_macs(model: Model) -> Model:
    """Return the model with MACs filled in for each operator."""
    ops = (op if op.macs is not None else op.costing(_macs(op)) for op in model.ops)
    return replace(model, ops=tuple(ops))


def cost(model: Model, run: Run | None = None) -> Cost:
    """The cost of a run of a model with MACs. Every total is a sum of operators.

    Of a run that failed the totals are lower bounds, and what it did not reach is unknown.
    """
    failed = run is not None and run.failure is not None
    by_phase: Counter[Phase] = Counter()
    own: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    other: Counter[str] = Counter()
    holes: set[str] = set()
    known = 0
    for op in model.ops:
        own[op.module] += op.macs or 0
        by_phase[op.phase] += op.macs or 0
        if op.macs is None:
            holes.add(op.module)
        for kernel in _costed_kernels(op):
            if macs_of(kernel) is None:
                unknown[_operator(kernel.name)] += 1
            elif has_formula(kernel.name):
                known += 1
            elif is_other(kernel.name):
                other[_operator(kernel.name)] += 1
    missing = sum(unknown.values())
    by_module = _by_module(model, own, holes)
    return Cost(
        macs=sum(own.values()),
        forward_macs=by_phase["forward"],
        backward_macs=by_phase["backward"],
        recompute_macs=by_phase["recompute"],
        effective_macs=_effective(model),
        coverage=None if failed else known / (known + missing) if missing else 1.0,
        unknown_ops=dict(sorted(unknown.items())),
        other_ops=dict(sorted(other.items())),
        by_module=_cut_short(model, run, by_module) if failed else by_module,
        stopped=failed,
    )


def _costed_kernels(op: Op) -> tuple[Kernel, ...]:
    """The kernels that determine the operator's cost.

    An operator that contracts inside opaque code shows no kernel that does; then its own formula speaks.
    """
    name = ".".join(op.overload.split(".")[:2])
    if has_formula(name) and not any(has_formula(kernel.name) for kernel in op.kernels):
        itself = Kernel(name=name, attributes=op.attributes, inputs=op.inputs, outputs=op.outputs)
        return (itself,)
    return op.kernels


def _macs(op: Op) -> int | None:
    total = 0
    for kernel in _costed_kernels(op):
        macs = macs_of(kernel)
        if macs is None:
            return None
        total += macs
    return total


def _operator(kernel_name: str) -> str:
    return kernel_name.replace(".", "::", 1)


def _by_module(model: Model, own: Mapping[str, int], holes: set[str]) -> dict[str, ModuleCost]:
    total: dict[str, int] = defaultdict(int)
    complete: dict[str, bool] = {}
    for module in reversed(model.modules):  # children come after their parents
        path = module.path
        total[path] += own[path]
        complete[path] = path not in holes and all(complete[child] for child in module.children)
        for child in module.children:
            total[path] += total[child]
    return {
        module.path: ModuleCost(
            own_macs=own[module.path],
            total_macs=total[module.path],
            complete=complete[module.path],
        )
        for module in model.modules
    }


def _cut_short(model: Model, run: Run | None, by_module: Mapping[str, ModuleCost]) -> dict[str, ModuleCost]:
    """What is left of the modules' costs when the run failed: nothing of those that it did not come to."""
    called = {call.module for call in model.calls}
    ended = {call.module for call in model.calls if not call.completed}
    goes_back = run is not None and run.train  # nobody knows what the gradients would have cost
    found: dict[str, ModuleCost] = {}
    for module in reversed(model.modules):  # children come after their parents
        path, each = module.path, by_module[module.path]
        below = [found[child] for child in module.children]
        reached = path in called or bool(each.total_macs) or any(one.total_macs is not None for one in below)
        # A list of modules is never called itself.
        ran = path not in ended if path in called else bool(below) and all(one.complete for one in below)
        found[path] = ModuleCost(
            own_macs=each.own_macs if reached else None,
            total_macs=each.total_macs if reached else None,
            complete=each.complete and ran and not goes_back,
        )
    return {path: found[path] for path in by_module}


def _effective(model: Model) -> int | None:
    """The total without products by weights that a pruning mask holds at zero."""
    tensors = {tensor.name: tensor for tensor in model.tensors if tensor.nonzero is not None}
    if not tensors:
        return None
    pruned: dict[str, list[Tensor]] = {
        module.path: [tensors[name] for name in module.tensors if name in tensors] for module in model.modules
    }
    total = 0
    for op in model.ops:
        macs = op.macs or 0
        shapes = {value.shape for value in op.inputs}
        for tensor in pruned[op.module]:
            # A bias is only added: what masks take from it saves no product.
            if tensor.shape in shapes and tensor.nonzero is not None and len(tensor.shape or ()) > 1:
                macs = macs * tensor.nonzero // prod(tensor.shape or ())
        total += macs
    return total
