"""What the ranks of an engine hold, and how they make up the model: each weight once, padding apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import prod
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from modelglass.analyses.counts import count
from modelglass.report import Model, Module, Share

if TYPE_CHECKING:
    from modelglass.report import Engine, RankModel, Shape, Shard, Tensor


def with_shares(engine: Engine, ranks: Sequence[RankModel], whole: RankModel | None = None) -> Engine:
    """The engine with what each rank holds, and what the model takes as a whole.

    `whole` is the model as one rank alone would hold it. Without it, all ranks together tell, if they are
    there; copies that several of them hold count once.
    """
    listed = next((held for held in ranks if held.rank == engine.rank), None)
    return replace(
        engine,
        ranks=tuple(share(held.model, held.shards, held.rank) for held in ranks),
        whole=_together(engine, ranks) if whole is None else share(whole.model, whole.shards, None),
        shards=engine.shards or ({} if listed is None else listed.shards),
    )


def share(model: Model, shards: Mapping[str, Shard], rank: int | None) -> Share:
    """What a rank holds of the model, or all of it (rank None) where it is the only one."""
    counts = count(model)
    tensors = [tensor for tensor in model.tensors if tensor.name not in counts.tied]
    padding = sum(
        shards[tensor.name].padding for tensor in tensors if tensor.name in shards and _is_weight(tensor)
    )
    return Share(
        rank=rank,
        params=counts.logical_params - padding,
        padding=padding,
        weight_nbytes=counts.param_nbytes + sum(map(_side_nbytes, tensors)),
        nbytes=counts.nbytes,
        unknown=len(counts.uninitialised) + len(counts.unsized),
    )


def whole_model(model: Model, shards: Mapping[str, Shard]) -> Model:
    """The model of one rank with every tensor as long as it is in all ranks together, without padding.

    Shapes are logical ones: packed weights keep their stored shape, and have the bytes that their own
    logical elements would take at the same rate.
    """
    tensors = tuple(
        tensor if (shard := shards.get(tensor.name)) is None else _lengthen(tensor, shard.whole)
        for tensor in model.tensors
    )
    return replace(model, tensors=tensors)


def unite_ranks(ranks: Sequence[RankModel]) -> Model:
    """The model of all ranks in whole shapes, the stages of a pipeline put together."""
    first = ranks[0].model
    modules: dict[str, Module] = {}
    tensors: dict[str, Tensor] = {}
    for held in ranks:
        for module in held.model.modules:
            known = modules.get(module.path)
            # A stage has a placeholder, with nothing in it, where another stage holds a module.
            if known is None or _extent(module) > _extent(known):
                modules[module.path] = module
        owners: dict[str, str] = {}
        for tensor in whole_model(held.model, held.shards).tensors:
            # What a storage is called means something within its rank alone.
            owner = owners.setdefault(tensor.storage, tensor.name)
            tensors.setdefault(tensor.name, replace(tensor, storage=owner))
    ordered = tuple(_walk_modules(modules, first.modules[0].path)) if first.modules else ()
    names = dict.fromkeys(name for module in ordered for name in module.tensors)
    # A weight counts rather than another name of it, such as a buffer that a module above shows it by.
    listed = sorted((tensors[name] for name in names | tensors), key=lambda each: each.name != each.storage)
    return replace(first, modules=ordered, tensors=tuple(listed))


def _extent(module: Module) -> int:
    return len(module.tensors) + len(module.children)


def _walk_modules(modules: Mapping[str, Module], root: str) -> Iterator[Module]:
    waiting = [root]
    while waiting:
        module = modules[waiting.pop()]
        yield module
        waiting.extend(reversed(module.children))


def _lengthen(tensor: Tensor, whole: Shape) -> Tensor:
    """The tensor in its whole shape."""
    packing = tensor.packing
    if packing is None:
        return tensor if tensor.shape is None else replace(tensor, shape=whole)
    rate = Fraction(prod(whole), packing.logical_numel or 1)
    longer = replace(
        packing,
        logical_shape=whole,
        nbytes=int(packing.nbytes * rate),
        side_nbytes=int(packing.side_nbytes * rate),
    )
    stored = whole if tensor.shape == packing.logical_shape else tensor.shape
    return replace(tensor, shape=stored, packing=longer)


_Part: TypeAlias = "tuple[Tensor, Shard | None]"  # of a tensor, what a rank holds


class _Together(NamedTuple):
    """A tensor of all ranks, copies left out."""

    padding: int
    nbytes: int
    first: Tensor
    shard: Shard | None
    ranks: int


def _together(engine: Engine, ranks: Sequence[RankModel]) -> Share | None:
    """The whole model from all its ranks; None: some are missing."""
    if len(ranks) != engine.tensor_parallel * engine.pipeline_parallel:
        return None
    model = unite_ranks(ranks)
    counts = count(model)
    parts: dict[str, list[_Part]] = {tensor.name: [] for tensor in model.tensors}
    for held in ranks:
        for tensor in held.model.tensors:
            parts[tensor.name].append((tensor, held.shards.get(tensor.name)))
    # Of a weight that two stages have, the ranks of one stage hold all there is.
    found = {
        name: _join_shards(each[: engine.tensor_parallel])
        for name, each in parts.items()
        if name not in counts.tied
    }
    weights = [each for each in found.values() if _is_weight(each.first)]
    sides = [_side_together(module, found) for module in model.modules]
    known = None not in sides
    nbytes = sum(each.nbytes for each in weights)
    buffers = sum(each.nbytes for each in found.values() if not _is_weight(each.first))
    return Share(
        rank=None,
        params=counts.logical_params,
        padding=sum(each.padding for each in weights),
        weight_nbytes=nbytes + sum(side or 0 for side in sides) if known else None,
        nbytes=nbytes + buffers if known else None,
        unknown=len(counts.uninitialised) + len(counts.unsized),
    )


def _join_shards(holders: Sequence[_Part]) -> _Together:
    """What the ranks of a stage hold of a tensor."""
    first, shard = holders[0]
    if shard is None or shard.dim is None:
        padding = 0 if shard is None else shard.padding
        return _Together(padding, first.nbytes or 0, first, shard, len(holders))
    padding = sum(each.padding for _, each in holders if each is not None)
    nbytes = sum(tensor.nbytes or 0 for tensor, _ in holders)
    elements = sum(tensor.logical_numel or 0 for tensor, _ in holders)
    once = prod(shard.whole) + padding
    once_nbytes = int(Fraction(nbytes * once, elements)) if elements else 0
    return _Together(padding, once_nbytes, first, shard, len(holders))


def _side_together(module: Module, found: Mapping[str, _Together]) -> int | None:
    """Bytes of scales and zero points, which are the buffers of a module with packed weights.

    None: ranks divide the weights, and nothing tells whether they divide these as well.
    """
    own = [found[name] for name in module.tensors if name in found]
    packed = [each for each in own if _side_nbytes(each.first)]
    wanted = sum(_side_nbytes(each.first) for each in packed)
    if not any(each.ranks > 1 and each.shard is not None and each.shard.dim is not None for each in packed):
        return wanted
    buffers = [each for each in own if not _is_weight(each.first)]
    if wanted != sum(each.first.nbytes or 0 for each in buffers) or any(
        each.shard is None for each in buffers
    ):
        return None
    return sum(each.nbytes for each in buffers)


def _is_weight(tensor: Tensor) -> bool:
    return tensor.kind != "buffer"


def _side_nbytes(tensor: Tensor) -> int:
    return 0 if tensor.packing is None else tensor.packing.side_nbytes
