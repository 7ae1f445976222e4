"""How many parameters and bytes: each memory once, the first owner counts it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from modelglass.report import Counts, ModuleCounts, Tally, huggingface_keys as hf
from modelglass.report.fields import fields_of

if TYPE_CHECKING:
    from modelglass.report import Model, Module, Tensor

ALL_EXPERTS = ("global_num_experts", "num_experts")  # of all ranks
CHOOSERS_ABOVE = 3  # modules above a bank: each matrix may be a module of its own, in an adapter


def count(model: Model) -> Counts:
    """Count each storage once: a tied embedding is one matrix, not two; of views, the largest counts."""
    owners = _owners(model)
    tied = {
        tensor.name: owner.name for tensor in model.tensors if (owner := owners[tensor.storage]) is not tensor
    }
    counted = {tensor.name: tensor for tensor in owners.values()}
    sizes = _Sizes()
    by_module = _by_module(model, counted, sizes)
    found = {name: sizes.of(tensor) for name, tensor in counted.items()}
    total = sizes.tally(_sum(found.values()))
    by_dtype: Counter[str] = Counter()
    param_nbytes = 0
    for name, tensor in counted.items():
        if tensor.kind != "buffer":
            by_dtype[tensor.dtype] += found[name][0]
            param_nbytes += found[name][3]
    return Counts(
        **fields_of(Tally, total),
        param_nbytes=param_nbytes,
        buffer_nbytes=total.nbytes - param_nbytes,
        params_by_dtype=dict(by_dtype),
        active_params=_active(model, counted, total.params),
        tied=tied,
        uninitialised=tuple(t.name for t in counted.values() if t.shape is None),
        unsized=sizes.find_unsized(counted.values()),
        by_module=by_module,
        shards=max((t.packing.shards or 0 for t in counted.values() if t.packing is not None), default=0)
        or None,
        bits_per_weight=_bits_per_weight(counted.values(), param_nbytes, total.logical_params),
    )


def _bits_per_weight(counted: Iterable[Tensor], nbytes: int, weights: int) -> float | None:
    packings = [tensor.packing for tensor in counted if tensor.packing and tensor.kind != "buffer"]
    if not packings or not weights or any(packing.shards is not None for packing in packings):
        return None
    return 8 * (nbytes + sum(packing.side_nbytes for packing in packings)) / weights


def _owners(model: Model) -> dict[str, Tensor]:
    """By storage, the tensor that counts it: the one with most bytes, of equals that of its name."""
    owners: dict[str, Tensor] = {}
    for tensor in model.tensors:
        owner = owners.setdefault(tensor.storage, tensor)
        if owner is not tensor and _weight(tensor) > _weight(owner):
            owners[tensor.storage] = tensor
    return owners


def _weight(tensor: Tensor) -> tuple[int, bool]:
    return tensor.nbytes or tensor.numel or 0, tensor.name == tensor.storage


Size = tuple[int, int | None, int, int, int]  # in the order of a tally's fields
_NOTHING: Size = (0, 0, 0, 0, 0)


class _Sizes:
    """What tensors count for, computed once for all that are alike: a model may have a million."""

    def __init__(self) -> None:
        self._sizes: dict[object, tuple[Size, bool]] = {}
        self._tallies: dict[Size, Tally] = {}

    def of(self, tensor: Tensor) -> Size:
        return self._size_of(tensor)[0]

    def find_unsized(self, tensors: Iterable[Tensor]) -> tuple[str, ...]:
        """Those of which nobody knows how many bytes they take, for all their shape."""
        if not any(unknown for _, unknown in self._sizes.values()):
            return ()
        return tuple(t.name for t in tensors if t.shape is not None and self._size_of(t)[1])

    def tally(self, size: Size) -> Tally:
        found = self._tallies.get(size)
        if found is None:
            params, trainable, buffers, nbytes, logical = size
            found = self._tallies[size] = Tally(
                params=params, trainable=trainable, buffers=buffers, nbytes=nbytes, logical_params=logical
            )
        return found

    def _size_of(self, tensor: Tensor) -> tuple[Size, bool]:
        key = tensor.kind, tensor.shape, tensor.dtype, tensor.trainable, tensor.packing
        found = self._sizes.get(key)
        if found is None:
            found = self._sizes[key] = _size(tensor), tensor.nbytes is None
        return found


def _size(tensor: Tensor) -> Size:
    nbytes = tensor.nbytes or 0
    if tensor.kind == "buffer":
        return 0, 0, tensor.numel or 0, nbytes, 0
    params = tensor.params or 0
    trainable = None if tensor.trainable is None else params if tensor.trainable else 0
    return params, trainable, 0, nbytes, tensor.logical_numel or 0


def _sum(sizes: Iterable[Size]) -> Size:
    """The sizes added up; an unknown part makes the sum unknown."""
    params = buffers = nbytes = logical = 0
    trainable: int | None = 0
    for size in sizes:
        params += size[0]
        trainable = None if trainable is None or size[1] is None else trainable + size[1]
        buffers += size[2]
        nbytes += size[3]
        logical += size[4]
    return params, trainable, buffers, nbytes, logical


def _by_module(model: Model, counted: Mapping[str, Tensor], sizes: _Sizes) -> dict[str, ModuleCounts]:
    totals: dict[str, Size] = {}
    result: dict[str, ModuleCounts] = {}
    alike: dict[tuple[Size, Size], ModuleCounts] = {}
    for module in reversed(model.modules):  # children come after their parents
        held = [sizes.of(counted[name]) for name in module.tensors if name in counted]
        own = held[0] if len(held) == 1 else _sum(held) if held else _NOTHING
        total = own if not module.children else _sum((own, *(totals[path] for path in module.children)))
        totals[module.path] = total
        counts = alike.get((own, total))
        if counts is None:
            counts = ModuleCounts(own=sizes.tally(own), total=sizes.tally(total))
            alike[own, total] = counts
        result[module.path] = counts
    return {module.path: result[module.path] for module in model.modules}


def _active(model: Model, counted: Mapping[str, Tensor], params: int) -> int | None:
    """Parameters one token meets: of each bank of experts, only the share that is chosen."""
    modules = {module.path: module for module in model.modules}
    if any(_is_part_of_bank(module, counted) for module in model.modules if module.config):
        return None  # which of its experts a token visits is up to the token
    idle = 0
    seen: set[str] = set()
    for bank, experts, names in _banks(modules, counted):
        fresh = [name for name in names if name not in seen]
        if not fresh:
            continue
        chosen = _experts_per_token(bank, modules)
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
        declared = _setting(module, hf.EXPERTS) if module.config else None
        if declared is not None:
            stacked = [
                name for name in module.tensors if name in counted and _is_stack_of(counted[name], declared)
            ]
            if stacked:
                yield module, declared, stacked
        for path in module.children:
            if "expert" not in path:
                continue
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


def _is_part_of_bank(module: Module, counted: Mapping[str, Tensor]) -> bool:
    """Whether these are some of the experts of a bank whose others are elsewhere, in another rank."""
    experts, here = _setting(module, ALL_EXPERTS), _setting(module, ("num_local_experts",))
    if experts is None or here is None or here >= experts:
        return False
    return any(_holds(counted[name], here) for name in module.tensors if name in counted)


def _holds(tensor: Tensor, experts: int) -> bool:
    shape = tensor.shape if tensor.packing is None else tensor.packing.logical_shape
    return tensor.kind != "buffer" and shape is not None and len(shape) >= 3 and shape[0] == experts


def _experts_per_token(bank: Module, modules: Mapping[str, Module]) -> int | None:
    """How many experts a token visits, by the bank, by what holds it, or by the router beside it."""
    around = [bank, *(modules[path] for path in bank.children)]
    path = bank.path
    for _ in range(CHOOSERS_ABOVE):
        above = modules.get(path.rpartition(".")[0])
        if not path or above is None:
            break
        path = above.path
        around += [above, *(modules[each] for each in above.children)]
    return next(
        (k for module in around if (k := _setting(module, hf.CHOSEN_EXPERTS_OF_MODULES)) is not None), None
    )


def _setting(module: Module, keys: tuple[str, ...]) -> int | None:
    values = (module.config.get(key) for key in keys)
    return next((v for v in values if type(v) is int and v > 0), None)
