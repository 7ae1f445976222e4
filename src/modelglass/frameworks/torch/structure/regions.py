"""Which bytes of a memory a tensor looks at, and whether two tensors look at the same ones."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import torch

TRIED = 64  # combinations after which two regions count as meeting; those of usual layouts have few


class Region(NamedTuple):
    """Bytes from `start`, and again at each multiple of each stride: (stride, count) with counts above 1."""

    start: int
    length: int  # from the first byte to the last; 0 for a tensor without elements
    steps: tuple[tuple[int, int], ...]  # longest strides first

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Region:
        """What a tensor looks at; all of its memory when it has no layout to show."""
        if tensor.is_nested:
            nbytes = tensor.untyped_storage().nbytes()
            return cls(0, nbytes, ((1, nbytes),))
        itemsize = tensor.itemsize
        steps = [
            (itemsize * stride, size) for stride, size in zip(tensor.stride(), tensor.shape, strict=True)
        ]
        steps.append((1, itemsize))
        length = 0 if tensor.numel() == 0 else 1 + sum(stride * (count - 1) for stride, count in steps)
        steps = sorted((step for step in steps if step[0] > 0 and step[1] > 1), reverse=True)
        return cls(int(tensor.storage_offset()) * itemsize, length, tuple(steps))

    @property
    def nbytes(self) -> int:
        """How many bytes it has: elements that lie in the same place have theirs once."""
        return min(self.length, prod(count for _, count in self.steps))

    @property
    def is_solid(self) -> bool:
        """Whether it has no holes."""
        reached = 1
        for stride, count in reversed(self.steps):
            if stride > reached:
                return False
            reached += stride * (count - 1)
        return True

    def covers(self, other: Region) -> bool:
        """Whether every byte of the other is one of its own; False where that is not plain to see."""
        if self == other or other.length == 0:
            return True
        within = self.start <= other.start and other.start + other.length <= self.start + self.length
        return within and self.is_solid

    def meets(self, other: Region) -> bool:
        """Whether they share a byte; layouts too tangled to decide count as sharing one."""
        apart = other.start - self.start
        if not self.length or not other.length or not -other.length < apart < self.length:
            return False
        # A shared byte is i·stride + j·stride + … = apart, each index between its ends: those of the one
        # region going up, those of the other going down.
        ends: dict[int, list[int]] = {}
        for steps, end in ((self.steps, 1), (other.steps, 0)):
            for stride, count in steps:
                both = ends.setdefault(stride, [0, 0])
                both[end] += (count - 1) * (1 if end else -1)
        axes = [(stride, low, high) for stride, (low, high) in sorted(ends.items(), reverse=True)]
        return _reaches(axes, apart, [TRIED])


def _reaches(axes: Sequence[tuple[int, int, int]], target: int, budget: list[int]) -> bool:
    """Whether multiples of the strides, each between its ends, add up to the target."""
    if not axes:
        return target == 0
    (stride, low, high), rest = axes[0], axes[1:]
    least = sum(each * from_ for each, from_, _ in rest)
    most = sum(each * to for each, _, to in rest)
    low, high = max(low, -((most - target) // stride)), min(high, (target - least) // stride)
    for times in range(low, high + 1):
        budget[0] -= 1
        if budget[0] < 0 or _reaches(rest, target - times * stride, budget):
            return True
    return False
