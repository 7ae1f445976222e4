"""A layer's description of a tensor, and how it fits the tensor as it is held."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from modelglass.report import Piece, Shape, Shard


@dataclass(frozen=True)
class StoredTensor:
    """What a tensor stands for in this rank, whatever became of its elements."""

    shape: Shape  # padding included
    shard: Shard | None = None  # None: one piece, whole in every rank
    scheme: str | None = None  # of a quantized weight
    sides: tuple[str, ...] = ()  # the tensors of its layer that belong to it: scales, zero points

    @property
    def numel(self) -> int:
        return prod(self.shape)


def describe_shard(
    shape: Sequence[int],
    whole: Sequence[int],
    dim: int | None,
    *,
    pieces: Sequence[Piece] = (),
    pieces_dim: int = 0,
    padding: int = 0,
) -> StoredTensor:
    """A tensor of this rank, and what it is of the whole; None of a shard if it is the whole."""
    fused = tuple(pieces) if len(pieces) > 1 else ()
    if dim is None and not fused and not padding:
        return StoredTensor(tuple(shape))
    shard = Shard(whole=tuple(whole), dim=dim, pieces=fused, pieces_dim=pieces_dim, padding=padding)
    return StoredTensor(tuple(shape), shard)


def orient(stored: StoredTensor, shape: Shape) -> StoredTensor | None:
    """The same with its dimensions as a tensor of that shape has them; None: no order of them fits."""
    places = _places(shape, stored.shape)
    if places is None:
        return None
    shard = stored.shard
    if shard is None:
        return replace(stored, shape=shape)
    whole = list(shape)
    for place, size in zip(places, shard.whole, strict=True):
        whole[place] = size
    dim = None if shard.dim is None else places[shard.dim]
    pieces_dim = places[shard.pieces_dim] if shard.pieces else 0
    turned = replace(shard, whole=tuple(whole), dim=dim, pieces_dim=pieces_dim)
    return replace(stored, shape=shape, shard=turned)


def find_integer(owner: object, *names: str) -> int | None:
    """The first of these attributes that is a whole number."""
    for name in names:
        value: Any = getattr(owner, name, None)
        if type(value) is int:
            return value
    return None


def find_integers(owner: object, name: str) -> list[int] | None:
    """An attribute that is a list of whole numbers."""
    value: Any = getattr(owner, name, None)
    if not isinstance(value, (list, tuple)) or not all(type(item) is int for item in value):
        return None
    return list(value)


def _places(shape: Shape, sizes: Shape) -> tuple[int, ...] | None:
    """Where each of `sizes` lies in `shape`: in order, or the last two the other way round."""
    straight = list(range(len(sizes)))
    turned = straight[:-2] + straight[:-3:-1]
    for order in (straight, turned):
        found = _in_order(shape, [sizes[dim] for dim in order])
        if found is not None:
            return tuple(found[order.index(dim)] for dim in straight)
    return None


def _in_order(shape: Shape, sizes: Sequence[int]) -> list[int] | None:
    """The index of each size; what lies between them may only be ones."""
    found: list[int] = []
    wanted = list(sizes)
    for index, size in enumerate(shape):
        if wanted and size == wanted[0]:
            found.append(index)
            wanted.pop(0)
        elif size != 1:
            return None
    return None if wanted else found
