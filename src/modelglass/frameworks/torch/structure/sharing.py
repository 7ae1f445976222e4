"""Which tensors share memory: by the bytes that they look at, whichever objects hold these."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from modelglass.frameworks.torch.privates import is_traceable_wrapper_subclass
from modelglass.frameworks.torch.structure.regions import Region


def memory_and_start(tensor: torch.Tensor) -> tuple[int, int] | None:
    """A number of the tensor's memory and where in it the tensor begins; None: it has none to compare.

    All memory with addresses is one, because two objects may stand for the same bytes, as they do for
    an array of numpy's that is made a tensor twice.
    """
    plain = tensor.layout is torch.strided and not is_traceable_wrapper_subclass(tensor)
    if is_lazy(tensor) or tensor.is_nested or not plain or tensor.numel() == 0:
        return None
    storage = tensor.untyped_storage()
    offset = int(tensor.storage_offset()) * tensor.itemsize
    try:
        return (storage._cdata, offset) if storage.device.type == "meta" else (0, storage.data_ptr() + offset)
    except RuntimeError:  # a tensor of somebody's own making, which has no address to give
        return storage._cdata, offset


def elements_of(tensor: torch.Tensor) -> object:
    """Equal for two tensors exactly when they are the same elements in memory, in the same order."""
    place = memory_and_start(tensor)
    if place is None:
        return id(tensor)
    lazily = tensor.is_conj(), tensor.is_neg()  # what is yet to be done to the elements
    return *place, tensor.dtype, tuple(tensor.shape), tensor.stride(), lazily


def find_owners(tensors: Sequence[torch.Tensor]) -> list[int]:
    """For each tensor the position of the one that counts its memory.

    Of those that share it that is the one with most bytes; of equals the first parameter, else the first.
    """
    owners = list(range(len(tensors)))
    for group in _groups(tensors):
        owner = max(group, key=lambda at: _weight(tensors[at], at))
        for at in group:
            owners[at] = owner
    return owners


def _weight(tensor: torch.Tensor, at: int) -> tuple[int, bool, int]:
    return Region.of(tensor).nbytes, isinstance(tensor, nn.Parameter), -at


def lies_within(tensor: torch.Tensor, owner: torch.Tensor) -> bool:
    """Whether the owner counts all bytes of a tensor that shares some with it."""
    here, there = _region(tensor), _region(owner)
    return there.covers(here)


def _region(tensor: torch.Tensor) -> Region:
    place = memory_and_start(tensor)
    return Region.of(tensor)._replace(start=0 if place is None else place[1])


def _groups(tensors: Sequence[torch.Tensor]) -> Iterator[list[int]]:
    """Positions of tensors that have bytes in common, several each."""
    placed = [(*place, at) for at, each in enumerate(tensors) if (place := memory_and_start(each))]
    cluster: list[int] = []
    memory, reach = -1, 0
    for key, start, at in sorted(placed):
        if key != memory or start >= reach:
            yield from _merge_sharing(cluster, tensors)
            cluster, memory, reach = [], key, 0
        cluster.append(at)
        reach = max(reach, start + _length(tensors[at]))
    yield from _merge_sharing(cluster, tensors)


def _merge_sharing(cluster: Sequence[int], tensors: Sequence[torch.Tensor]) -> Iterator[list[int]]:
    """Of tensors that reach into each other, those that share bytes: columns of a matrix share none."""
    if len(cluster) < 2:
        return
    groups: list[list[tuple[int, Region]]] = []
    for at in cluster:
        region = _region(tensors[at])
        met = [group for group in groups if any(region.meets(other) for _, other in group)]
        groups = [group for group in groups if group not in met]
        groups.append([(at, region), *(each for group in met for each in group)])
    yield from ([at for at, _ in group] for group in groups if len(group) > 1)


def _length(tensor: torch.Tensor) -> int:
    """Bytes from the tensor's first to its last."""
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.itemsize


_ALIGNED = 16  # bytes: no element type is larger


@dataclass(slots=True)
class _Span:
    """Bytes from `start` to `end`, and the tensors that look at some of them."""

    start: int
    end: int
    pairs: list[tuple[torch.Tensor, torch.Tensor, int]] = field(default_factory=list)  # with where it begins

    def share(self) -> None:
        """Put the copies into one memory as the originals are; each of another type into one of that type."""
        ahead = self.start % _ALIGNED
        device = self.pairs[0][0].device
        memory = torch.zeros(ahead + self.end - self.start, dtype=torch.uint8, device=device)
        for original, _, start in self.pairs:
            here = start - self.start + ahead
            memory[here : here + _length(original)] = _bytes(original)
        cast: dict[tuple[torch.dtype, torch.dtype], torch.UntypedStorage] = {}
        for original, copy, start in self.pairs:
            types = original.dtype, copy.dtype
            if types not in cast:
                whole = memory[: len(memory) // original.itemsize * original.itemsize].view(original.dtype)
                cast[types] = whole.to(copy.dtype).untyped_storage()
            offset = (start - self.start + ahead) // original.itemsize
            empty = torch.empty(0, dtype=copy.dtype, device=device)
            copy.data = empty.set_(cast[types], offset, original.shape, original.stride())


class Copies:
    """Copies of tensors, which share memory where the originals do and lie in it as these do."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._spans: list[_Span] = []  # that do not reach into each other, in order

    def add(self, original: torch.Tensor, copy: torch.Tensor) -> None:
        """Enter a copy, which is in memory of its own so far."""
        place = memory_and_start(original)
        if place is None or place[0]:
            return
        start = place[1]
        span = _Span(start, start + _length(original), [(original, copy, start)])
        first = last = bisect_right(self._starts, start)
        if first and self._spans[first - 1].end > start:
            first -= 1
        while last < len(self._spans) and self._starts[last] < span.end:
            last += 1
        for met in self._spans[first:last]:
            span.start, span.end = min(span.start, met.start), max(span.end, met.end)
            span.pairs += met.pairs
        self._starts[first:last], self._spans[first:last] = [span.start], [span]
        if len(span.pairs) > 1 or copy.stride() != original.stride():
            span.share()


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes from a tensor's first to its last."""
    start = int(tensor.storage_offset()) * tensor.itemsize
    empty = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return empty.set_(tensor.untyped_storage(), start, (_length(tensor),), (1,))  # type: ignore[call-overload, no-any-return]
