"""Numbers for an optimizer that reads them off tensors whose values nobody knows.

Most optimizers only compute with such a number. Whether one decides on what runs shows when a step is taken
with several of them: what all of them give is what any would.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

GUESSES = (1.0, 0.0, 1e6, -1.0)  # positive, nothing, large, negative
_guess: list[float] = []


@contextmanager
def guessing(number: float | None) -> Iterator[None]:
    """Have a number that is not known read as this one; None: as unknown."""
    if number is None:
        yield
        return
    _guess.append(number)
    try:
        yield
    finally:
        _guess.pop()


def guess(tensor: torch.Tensor) -> float | bool | None:
    """What is read off a tensor inside, in its type; None: nothing is."""
    if not _guess:
        return None
    number = _guess[-1]
    if tensor.dtype is torch.bool:
        return number > 0
    return number if tensor.is_floating_point() or tensor.is_complex() else int(number)
