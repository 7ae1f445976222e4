"""How many parameters and bytes: each memory once, the first owner counts it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from modelglass.report import Counts, Model, Module, ModuleCounts, Tally, Tensor

# How configurations say how many experts there are, and how many of them a token visits.
EXPERTS = (
    "num_experts",
    "num_local_experts",
    "n_routed_experts",
    "num_routed_experts",
    "moe_num_experts",
    "n_experts",
)
CHOSEN = (
    "num_experts_per_tok",
    "num_experts_per_token",
    "experts_per_token",
    "num_selected_experts",
    "top_k",
    "topk",
    "moe_topk",
    "moe_top_k",
    "moe_k",
)


def count(model: Model) -> Counts:
    """Count each storage once: a tied embedding is one matrix, not two."""
    first: dict[str, Tensor] = {}
    tied: dict[str, str] = {}
    for tensor in model.tensors:
        owner = first.setdefault(tensor.storage, tensor)
        if owner is not tensor:
            tied[tensor.name] = owner.name
    counted = {tensor.name: tensor for tensor in first.values()}
    by_module = _by_module(model, counted)
    total = sum_of(counts.own for counts in by_module.values())
    weights = [t for t in counted.values() if t.kind != "buffer"]
    by_dtype: Counter[str] = Counter()
    for tensor in weights:
        by_dtype[tensor.dtype] += tensor.params or 0
    return Counts(
        params=total.params,
        trainable=total.trainable,
        buffers=total.buffers,
        nbytes=total.nbytes,
        logical_params=total.logical_params,
        param_nbytes=sum(t.nbytes or 0 for t in weights),
        buffer_nbytes=sum(t.nbytes or 0 for t in counted.values() if t.kind == "buffer"),
        params_by_dtype=dict(by_dtype),
        active_params=_active(model, counted, total.params),
        tied=tied,
        uninitialised=tuple(t.name for t in counted.values() if t.shape is None),
        unsized=tuple(t.name for t in counted.values() if t.shape is not None and t.nbytes is None),
        by_module=by_module,
    )


def sum_of(tallies: Iterable[Tally]) -> Tally:
    """The tallies added up; an unknown part makes the sum unknown."""
    items = list(tallies)
    trainable = [tally.trainable for tally in items]
    return Tally(
        params=sum(tally.params for tally in items),
        trainable=None if None in trainable else sum(n for n in trainable if n is not None),
        buffers=sum(tally.buffers for tally in items),
        nbytes=sum(tally.nbytes for tally in items),
        logical_params=sum(tally.logical_params for tally in items),
    )


def _by_module(model: Model, counted: Mapping[str, Tensor]) -> dict[str, ModuleCounts]:
    result: dict[str, ModuleCounts] = {}
    for module in reversed(model.modules):  # children come after their parents
        own = sum_of(_tally(counted[name]) for name in module.tensors if name in counted)
        below = (result[child].total for child in module.children)
        result[module.path] = ModuleCounts(own=own, total=sum_of((own, *below)))
    return {module.path: result[module.path] for module in model.modules}


def _tally(tensor: Tensor) -> Tally:
    if tensor.kind == "buffer":
        return Tally(buffers=tensor.numel or 0, nbytes=tensor.nbytes or 0)
    params = tensor.params or 0
    trainable = None if tensor.trainable is None else params if tensor.trainable else 0
    return Tally(
        params=params,
        trainable=trainable,
        nbytes=tensor.nbytes or 0,
        logical_params=tensor.logical_numel or 0,
    )


def _active(model: Model, counted: Mapping[str, Tensor], params: int) -> int | None:
    """Parameters one token meets: of each bank of experts, only the share that is chosen."""
    modules = {module.path: module for module in model.modules}
    idle = 0
    seen: set[str] = set()
    for bank, experts, names in _banks(modules, counted):
        fresh = [name for name in names if name not in seen]
        if not fresh:
            continue
        chosen = _chosen(bank, modules)
        if chosen is None:
            return None
        seen.update(fresh)
        size = sum(counted[name].params or 0 for name in fresh)
        idle += size * (experts - min(chosen, experts)) // experts
    return params - idle


def _banks(
    modules: Mapping[str, Module], counted: Mapping[str, Tensor]
) -> Iterator[tuple[Module, int, list[str]]]:
    """Each set of experts: the module that holds it, how many there are, and their tensors."""
    for module in modules.values():
        declared = _setting(module, EXPERTS)
        stacked = [
            name for name in module.tensors if name in counted and _is_stack_of(counted[name], declared)
        ]
        if stacked and declared is not None:
            yield module, declared, stacked
        for path in module.children:
            child = modules[path]
            if len(child.children) > 1 and "expert" in child.name and "shared" not in child.name:
                inside = [name for name in _tensors_below(child, modules) if name in counted]
                if inside and _are_alike(child, modules):
                    yield module, len(child.children), inside


def _tensors_below(module: Module, modules: Mapping[str, Module]) -> Iterator[str]:
    pending = list(reversed(module.children))
    while pending:
        below = modules[pending.pop()]
        yield from below.tensors
        pending.extend(reversed(below.children))


def _are_alike(bank: Module, modules: Mapping[str, Module]) -> bool:
    return len({modules[path].qualified_type for path in bank.children}) == 1


def _is_stack_of(tensor: Tensor, experts: int | None) -> bool:
    """Whether the tensor holds one matrix per expert."""
    if experts is None or experts < 2 or tensor.kind == "buffer" or tensor.shape is None:
        return False
    return len(tensor.shape) >= 3 and tensor.shape[0] == experts


def _chosen(bank: Module, modules: Mapping[str, Module]) -> int | None:
    """How many experts a token visits: said by the bank, its parent, or the router beside it."""
    parent = modules.get(bank.path.rpartition(".")[0])
    around = [bank, *(modules[path] for path in bank.children)]
    if parent is not None and bank.path:
        around += [parent, *(modules[path] for path in parent.children)]
    return next((k for module in around if (k := _setting(module, CHOSEN)) is not None), None)


def _setting(module: Module, keys: tuple[str, ...]) -> int | None:
    values = (module.config.get(key) for key in keys)
    return next((v for v in values if type(v) is int and v > 0), None)
