"""What a change makes of the memory of a run, where arithmetic on the run is enough: an estimate.

Weights in few bits, and work that several devices share. All figures are those of one device, whose inputs
are the ones of the run. Each formula is a line of a docstring here.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from math import prod

from modelglass.analyses.cost.matrices import Matrix, matrices, output_layers
from modelglass.analyses.memory.timeline import memory
from modelglass.analyses.tree import tensors_by_module
from modelglass.errors import UsageError
from modelglass.report import huggingface_keys as hf
from modelglass.report.fit import IMITATED, WhatIf
from modelglass.report.lifetimes import Lifetimes, OptimizerStep, Step, Storage
from modelglass.report.memory import Change, Coverage, Memory
from modelglass.report.model import Model, Module, Shape

QUANTIZED = ("int8", "int4")
SCALE_NBYTES = 4  # float32
BLOCK = 64  # elements that share a scale in 4 bits

_NUMBERED = re.compile(r"(.*?)\d+")


@dataclass(frozen=True)
class Units:
    """The parts of a model that are handled as a whole.

    `blocks` are the paths of repeated blocks, `patterns` match them. `matrices` are the names of the weights
    of linear and embedding layers and of experts; `linear` has, of those that few bits can hold, the output
    features; `heads` has, of weights of attention, how many heads they are for.
    """

    blocks: frozenset[str]
    patterns: tuple[str, ...]
    matrices: frozenset[str]
    linear: Mapping[str, int]
    heads: Mapping[str, int] = field(default_factory=dict)

    def block_of(self, path: str | None) -> str | None:
        """The block that a module or tensor is in."""
        while path:
            if path in self.blocks:
                return path
            path = path.rpartition(".")[0]
        return None


def memory_with(
    lifetimes: Lifetimes,
    what_if: WhatIf,
    model: Model,
    *,
    optimizer: str | None,
    units: Units | None = None,
) -> Memory:
    """The memory of a run with those changes that need no other run; `units` where they are known already."""
    coverage: list[Coverage] = []
    for change, change_lifetimes in _changes(what_if, model, units):
        before, lifetimes = lifetimes, change_lifetimes(lifetimes)
        coverage.append(_coverage(change, before, lifetimes))
    found = memory(lifetimes, optimizer=optimizer)
    return replace(
        found,
        method="estimate" if is_estimate(what_if, optimizer) else found.method,
        excludes=(*found.excludes, *_list_left_out(what_if, optimizer)),
        what_if=None if what_if == WhatIf() else what_if,
        coverage=tuple(coverage),
    )


def _list_left_out(what_if: WhatIf, optimizer: str | None) -> Iterator[str]:
    """What arithmetic cannot know."""
    if what_if.sharding is not None and what_if.devices > 1:
        yield "buffers of communication between devices"
    if what_if.weights in QUANTIZED:
        yield "weights brought back to floating point where they are used"
    if (what_if.optimizer or optimizer) in IMITATED:
        yield "what the optimizer takes while it works"


def apply_changes(lifetimes: Lifetimes, what_if: WhatIf, model: Model) -> Lifetimes:
    """The run as it would be with those changes that need no other run."""
    for _, change in _changes(what_if, model):
        lifetimes = change(lifetimes)
    return lifetimes


def _changes(
    what_if: WhatIf, model: Model, units: Units | None = None
) -> Iterator[tuple[Change, Callable[[Lifetimes], Lifetimes]]]:
    """Each change that is worked out by arithmetic, in order."""
    weights, sharding = what_if.weights, what_if.sharding
    if weights not in QUANTIZED and sharding is None:
        return
    known = units_of(model) if units is None else units
    if weights is not None and weights in QUANTIZED:
        yield "weights", _in_each_step(lambda lifetimes: quantize_weights(lifetimes, weights, known))
    if sharding is not None:
        devices = what_if.devices
        yield "sharding", _in_each_step(lambda lifetimes: shard(lifetimes, sharding, devices, known))


def _in_each_step(change: Callable[[Lifetimes], Lifetimes]) -> Callable[[Lifetimes], Lifetimes]:
    """A change of the first step that changes the later ones as well."""
    return lambda lifetimes: replace(change(lifetimes), later=tuple(map(change, lifetimes.later)))


def _coverage(change: Change, before: Lifetimes, after: Lifetimes) -> Coverage:
    """The part of the weights that became another size; those of a run keep their places."""
    weights = [
        (old, old.nbytes != new.nbytes)
        for old, new in zip(before.storages, after.storages, strict=False)
        if old.category == "parameters"
    ]
    unchanged = sorted((old for old, changed in weights if not changed), key=lambda old: -old.nbytes)
    return Coverage(
        change=change,
        nbytes=sum(old.nbytes for old, changed in weights if changed),
        of_nbytes=sum(old.nbytes for old, _ in weights),
        unchanged=tuple(old.name for old in unchanged if old.name is not None),
        has_effect=after != before,
    )


def needs_run(what_if: WhatIf) -> WhatIf:
    """The part of the changes that only a run can answer for."""
    weights = None if what_if.weights in QUANTIZED else what_if.weights
    return replace(what_if, optimizer=None, weights=weights, sharding=None, devices=1)


def is_estimate(what_if: WhatIf, optimizer: str | None = None) -> bool:
    """Whether some of the changes, or the optimizer of the step, are worked out by arithmetic."""
    return (
        what_if.weights in QUANTIZED
        or (what_if.sharding is not None and what_if.devices != 1)
        or (what_if.optimizer or optimizer) in IMITATED
    )


def quantize_weights(lifetimes: Lifetimes, weights: str, units: Units) -> Lifetimes:
    """The weights that products are made with in few bits, everything else as it was.

    int8: a byte per element, and a float32 scale per output feature.
    int4: half a byte per element, rounded up, and a float32 scale per 64 elements, rounded up.

    They are those of linear, convolutional and recurrent layers and of experts. Layers outside the blocks
    (the output layer), embeddings and tied weights keep their type. Not included is what kernels take for
    themselves: inputs in 8 bits, weights brought back to floats.
    """
    if weights not in QUANTIZED:
        raise UsageError(f"weights cannot be {weights!r} here", hint="use " + " or ".join(QUANTIZED))
    trained = sorted(each.name or "" for each in lifetimes.storages if _is_gradient_of(each, units.linear))
    if trained:
        raise UsageError(
            f"weights in {weights} cannot train, and {trained[0]} does",
            hint="freeze them (as adapters do), or choose other weights",
        )

    def few_bits(storage: Storage) -> Storage:
        features = units.linear.get(storage.name or "")
        if features is None or storage.category != "parameters" or not _is_floating(storage):
            return storage
        nbytes = _few_bits_nbytes(prod(storage.shape or ()), features, weights)
        return replace(storage, nbytes=nbytes, dtype="int8" if weights == "int8" else "uint8")

    return replace(lifetimes, storages=tuple(map(few_bits, lifetimes.storages)))


def shard(lifetimes: Lifetimes, sharding: str, devices: int, units: Units) -> Lifetimes:
    """What one of several devices holds. Not included are buffers of the communication itself.

    ddp:    all of it, and a second copy of the gradients: the buckets that are sent.
    fsdp3:  parameters, gradients and optimizer state / devices; and in whole: parameters of the block at work
            and of the next one, gradients of a block until its backward pass ends, and both of all that is in
            no block from the first kernel to the last of backward.
    fsdp2:  as fsdp3, a block's parameters in whole from its forward pass to the end of its backward pass.
    tensor: weights of linear and embedding layers and of experts, their gradients and state, and what is
            saved for backward inside of blocks / devices. Weights of attention are shared by whole heads;
            those with fewer heads (of keys and values) than devices are held more than once. A weight with
            fewer rows and columns than devices stays whole.

    A shard is rounded up to whole rows of its tensor, in tensor parallelism to whole bytes.
    """
    if sharding not in _SHARDED:
        raise UsageError(f"there is no sharding {sharding!r}", hint="use " + ", ".join(_SHARDED))
    if devices < 1:
        raise UsageError(f"{devices} devices can hold nothing", hint="give 1 or more")
    return lifetimes if devices == 1 else _SHARDED[sharding](lifetimes, devices, units)


def units_of(model: Model) -> Units:
    """The repeated blocks of a model, and its large weights.

    Blocks are the elements of a numbered list of modules of one type, at least two of them alike in size, or
    of a list of a single module with others inside; of lists inside of lists the outermost counts.
    """
    lists = _lists(model)
    blocks = frozenset(child for module in lists for child in module.children)
    units = Units(blocks, tuple(_patterns(lists, model)), frozenset(), {})
    tied = Counter(tensor.storage for tensor in model.tensors)
    alone = {each.name for each in model.tensors if tied[each.storage] == 1}
    found = matrices(model)
    left = output_layers(found)
    return replace(
        units,
        matrices=frozenset(name for name, each in found.items() if each.kind in _SHARED),
        linear={
            name: each.features
            for name, each in found.items()
            if each.kind != "embedding" and name in alone and _is_inside(name, units, left)
        },
        heads=dict(_heads(model, found)),
    )


_SHARED = ("linear", "embedding", "experts")


def _is_inside(name: str, units: Units, output: frozenset[str]) -> bool:
    """Whether a weight is in a block; of a model without blocks, any but those of the output layer are."""
    return units.block_of(name) is not None if units.blocks else name not in output


def _heads(model: Model, found: Mapping[str, Matrix]) -> Iterator[tuple[str, int]]:
    """How many heads each weight of attention is for, as far as its module tells.

    Its layers have the width of the model on one side and their heads on the other.
    """
    shapes = {each.name: each.shape for each in model.tensors if each.name in found and each.shape}
    modules = {module.path: module for module in model.modules}
    for module in model.modules:
        count, width = _setting(module, hf.HEADS_OF_MODULES), _setting(module, _HEAD_WIDTHS)
        if count is None and width is None:
            continue
        children = (name for path in module.children for name in modules[path].tensors)
        names = [name for name in (*module.tensors, *children) if name in shapes]
        widths = [frozenset(shapes[name]) for name in names]
        common = widths[0].intersection(*widths) if widths else frozenset()
        for name in names:
            inside = min((size for size in shapes[name] if size not in common), default=min(shapes[name]))
            heads = count if width is None else inside // width
            if heads:
                yield name, heads if count is None else min(heads, count)


def _setting(module: Module, names: Iterable[str]) -> int | None:
    found = (module.config.get(name) for name in names)
    return next((value for value in found if type(value) is int and value > 0), None)


_HEAD_WIDTHS = (*hf.HEAD_DIM_OF_MODULES, "key_value_proj_dim")


def _few_bits_nbytes(numel: int, features: int, weights: str) -> int:
    if weights == "int8":
        return numel + SCALE_NBYTES * features
    return _ceil(numel, 2) + SCALE_NBYTES * _ceil(numel, BLOCK)


def _is_gradient_of(storage: Storage, names: Mapping[str, int]) -> bool:
    return storage.category == "gradients" and storage.name in names


def _is_floating(storage: Storage) -> bool:
    return storage.dtype is not None and storage.dtype.startswith(("float", "bfloat")) and bool(storage.shape)


def _ceil(number: int, by: int) -> int:
    return -(-number // by)


def _shard(storage: Storage, devices: int) -> Storage:
    """One device's rows of a tensor; a single number is not divided."""
    if not storage.shape:
        return storage if storage.shape == () else replace(storage, nbytes=_ceil(storage.nbytes, devices))
    rows = max(storage.shape[0], 1)
    return replace(storage, nbytes=_ceil(storage.nbytes * _ceil(rows, devices), rows))


def _data_parallel(lifetimes: Lifetimes, devices: int, units: Units) -> Lifetimes:
    largest: dict[str | None, Storage] = {}
    for storage in lifetimes.storages:
        if storage.category == "gradients":
            known = largest.get(storage.name)
            if known is None or known.nbytes < storage.nbytes:
                largest[storage.name] = storage
    buckets = (replace(each, born=None, died=None, saved_by=None) for each in largest.values())
    return replace(lifetimes, storages=(*lifetimes.storages, *buckets))


def _shard_fully(lifetimes: Lifetimes, devices: int, units: Units, *, again: bool) -> Lifetimes:
    """`again`: a block's parameters are given back after forward, and gathered again for backward."""
    stays = list(_stays(lifetimes.steps, units))
    ends = _Ends(stays, units, len(lifetimes.steps) - 1)
    spans = stays if again else list(_from_forward_to_backward(stays))
    # Those of the run keep their places: an optimizer's part refers to them.
    kept, more = [], list(_gather(lifetimes, devices, units, spans))
    for storage in lifetimes.storages:
        if storage.category in ("parameters", "optimizer_state"):
            storage = _shard(storage, devices)
        elif storage.category == "gradients":
            end = ends.of(storage)
            if storage.died is None or storage.died > end:
                if storage.born is not None:
                    more.append(replace(storage, died=end))
                born = None if storage.born is None else end
                storage = replace(_shard(storage, devices), born=born)
        kept.append(storage)
    tails = {
        name: replace(tail, storages=tuple(_shard(each, devices) for each in tail.storages))
        for name, tail in lifetimes.tails.items()
    }
    return replace(lifetimes, storages=(*kept, *more), tails=tails)


@dataclass(frozen=True)
class _Stay:
    """From when to when a pass is in one block, and since when that block is needed."""

    block: str
    backward: bool
    needed: int
    first: int
    last: int


def _stays(steps: Sequence[Step], units: Units) -> Iterator[_Stay]:
    """The blocks in the order in which the passes go through them; kernels of no block change nothing.

    A block is needed when the one before it begins; the first of a backward pass, when that pass begins.
    """
    backward = [step.phase in ("backward", "recompute") for step in steps]
    places = ((units.block_of(step.module), backward[index], index) for index, step in enumerate(steps))
    inside = (place for place in places if place[0] is not None)
    before: _Stay | None = None
    for (block, returning), group in groupby(inside, key=lambda place: place[:2]):
        indices = [index for _, _, index in group]
        needed = first = indices[0]
        if before is not None and before.backward == returning:
            needed = before.first
        elif returning:
            since = 0 if before is None else before.last + 1
            needed = next(index for index in range(since, first + 1) if backward[index])
        before = _Stay(block or "", returning, needed, first, indices[-1])
        yield before


def _from_forward_to_backward(stays: Iterable[_Stay]) -> Iterator[_Stay]:
    """Each block's stays as one, from each forward pass to the backward pass that follows it."""
    open_: dict[str, _Stay] = {}
    for stay in stays:
        known = open_.get(stay.block)
        if known is not None and known.backward and not stay.backward:
            yield open_.pop(stay.block)
            known = None
        since = stay if known is None else known
        open_[stay.block] = replace(stay, needed=since.needed, first=since.first)
    yield from open_.values()


class _Ends:
    """When the backward pass is through with the block that a gradient belongs to."""

    def __init__(self, stays: Iterable[_Stay], units: Units, last: int) -> None:
        self._units, self._last = units, last
        self._stays: dict[str, list[_Stay]] = defaultdict(list)
        for stay in stays:
            self._stays[stay.block].append(stay)

    def of(self, gradient: Storage) -> int:
        born = 0 if gradient.born is None else gradient.born
        block = self._units.block_of(gradient.name)
        around = (stay.last for stay in self._stays.get(block or "", ()) if stay.first <= born <= stay.last)
        return max(next(around, born) if block else self._last, born)


def _gather(lifetimes: Lifetimes, devices: int, units: Units, stays: Iterable[_Stay]) -> Iterator[Storage]:
    """Parameters in whole, as many shards as devices: of blocks while needed, of the rest all the time."""
    sizes: dict[str | None, int] = defaultdict(int)
    for storage in lifetimes.storages:
        if storage.category == "parameters":
            sizes[units.block_of(storage.name)] += devices * _shard(storage, devices).nbytes
    if lifetimes.steps and sizes[None]:
        last = len(lifetimes.steps) - 1
        yield Storage(nbytes=sizes[None], category="temporaries", born=0, died=last, name="(gathered)")
    for stay in stays:
        yield Storage(
            nbytes=sizes[stay.block],
            category="temporaries",
            born=stay.needed,
            died=stay.last,
            name=f"{stay.block} (gathered)",
        )


def _tensor_parallel(lifetimes: Lifetimes, devices: int, units: Units) -> Lifetimes:
    given = [each for each in lifetimes.storages if each.category == "parameters" and _belongs(each, units)]
    shapes = {each.name or "": each.shape or () for each in given}
    most = max(units.heads.values(), default=max(map(_parts, shapes.values()), default=devices))
    if devices > most:
        what = "heads of attention" if units.heads else "rows or columns of any layer"
        raise UsageError(
            f"{devices:,} devices cannot share {most:,} {what}", hint=f"give {most:,} devices or fewer"
        )
    shared = {name for name, shape in shapes.items() if _parts(shape) >= devices}
    blocks = {units.block_of(name) for name in shared} - {None}
    alike = {shapes[name] for name in shared}

    def split(storage: Storage) -> Storage:
        if storage.category == "activations":
            divided = units.block_of(storage.saved_by) in blocks
        else:
            divided = storage.category != "temporaries" and storage.name in shared and storage.shape != ()
        heads = units.heads.get(storage.name or "")
        return replace(storage, nbytes=_share(storage.nbytes, devices, heads)) if divided else storage

    def split_tail(tail: OptimizerStep) -> OptimizerStep:
        return replace(tail, storages=tuple(map(split_work, tail.storages)))

    def split_work(storage: Storage) -> Storage:
        """An optimizer's temporaries have no names; those of a matrix have its shape."""
        if storage.category == "temporaries" and storage.shape in alike:
            return replace(storage, nbytes=_ceil(storage.nbytes, devices))
        return split(storage)

    return replace(
        lifetimes,
        storages=tuple(map(split, lifetimes.storages)),
        tails={name: split_tail(tail) for name, tail in lifetimes.tails.items()},
    )


def _belongs(storage: Storage, units: Units) -> bool:
    return storage.name in units.matrices and storage.shape != ()


def _parts(shape: Shape) -> int:
    """Into how many parts a weight can be cut, by rows or by columns."""
    return max(shape[-2:], default=1)


def _share(nbytes: int, devices: int, heads: int | None) -> int:
    """The largest part that a device has, of attention in whole heads."""
    return _ceil(nbytes, devices) if heads is None else _ceil(nbytes * _ceil(heads, devices), heads)


_SHARDED: dict[str, Callable[[Lifetimes, int, Units], Lifetimes]] = {
    "ddp": _data_parallel,
    "fsdp2": lambda *given: _shard_fully(*given, again=False),
    "fsdp3": lambda *given: _shard_fully(*given, again=True),
    "tensor": _tensor_parallel,
}


def _lists(model: Model) -> list[Module]:
    """The outermost lists of blocks."""
    modules = {module.path: module for module in model.modules}
    sizes = {
        path: sum(each.numel or 0 for each in tensors) for path, tensors in tensors_by_module(model).items()
    }

    def alike(module: Module) -> bool:
        counts = Counter(sizes[child] for child in module.children)
        return any(size > 0 and times > 1 for size, times in counts.items())

    def single(module: Module) -> bool:
        """A list of one; what is put around all of a model, or in a sequence around other lists, is none."""
        child = modules[module.children[0]]
        around = any(each.path.startswith(f"{child.path}.") for each in found)
        return (
            len(module.children) == 1
            and child.name.isdecimal()
            and bool(child.children)
            and 0 < sizes[child.path] < sizes[model.modules[0].path]
            and not (around and module.type == "Sequential")
        )

    listed = [module for module in model.modules if _is_list(module, modules)]
    found = _outermost([module for module in listed if alike(module)])
    kinds = {modules[module.children[0]].qualified_type for module in found}
    # A list too short to have two alike still holds blocks, when others of their type are blocks.
    return _outermost(
        [each for each in listed if modules[each.children[0]].qualified_type in kinds or single(each)]
    )


def _is_list(module: Module, modules: Mapping[str, Module]) -> bool:
    """Whether its children are numbered modules of one type; leaves by a number alone."""
    children = [modules[path] for path in module.children]
    matches = [_NUMBERED.fullmatch(child.name) for child in children]
    prefixes = {None if match is None else match[1] for match in matches}
    if len({child.qualified_type for child in children}) != 1 or len(prefixes) != 1:
        return False
    return prefixes == {""} or (prefixes != {None} and all(child.children for child in children))


def _outermost(lists: Sequence[Module]) -> list[Module]:
    elements = {child for module in lists for child in module.children}
    return [module for module in lists if elements.isdisjoint(_around(module.path))]


def _around(path: str) -> Iterator[str]:
    while path:
        yield path
        path = path.rpartition(".")[0]


def _patterns(lists: Iterable[Module], model: Model) -> Iterator[str]:
    """What matches the elements of each list; leaves have nothing inside that could be done again."""
    modules = {module.path: module for module in model.modules}
    for each in lists:
        first = modules[each.children[0]]
        if first.children:
            match = _NUMBERED.fullmatch(first.name)
            name = f"{match[1] if match else ''}*"
            yield f"{each.path}.{name}" if each.path else name
