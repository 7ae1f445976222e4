"""Building a model without its weights: what is about to be filled with random numbers takes no memory.

Constants keep their values, since models look at them to decide what to run, and people want to see them.
Where the two meet, nothing is kept; and where construction looks at random numbers, it is done for real.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from math import prod
from typing import Any, TypeVar

import torch
from torch.overrides import TorchFunctionMode

Made = TypeVar("Made")

MOST_KEPT = 1 << 20  # elements of a constant; more are likely to be weights that start at zero or one
_TO_BE_FILLED = frozenset({torch.empty, torch.empty_strided, torch.rand, torch.randn})
_CONSTANT = frozenset({torch.zeros, torch.ones, torch.full, torch.eye})


def without_weights(make: Callable[[], Made], *, expected: tuple[type[Exception], ...]) -> tuple[Made, bool]:
    """What a function makes, with as few values as it can be made with; and whether it has all of them.

    The function may be called more than once: where it fails because values are missing, it is called with
    more of them. Whatever else it raises is raised at once.
    """
    try:
        with _Weightless():
            return make(), False
    except expected as trouble:
        if not _wants_values(trouble):
            raise
    with suppress(*expected), torch.device("meta"):
        return make(), False
    return make(), True


def noted(made: Made, has_weights: bool) -> tuple[Made, tuple[tuple[str, str], ...]]:
    """What was made, and a note where it has weights that nobody asked for."""
    text = "the model looks at values while it is built, so it was built with its weights"
    return made, (("built-with-weights", text),) if has_weights else ()


# How torch says that it cannot go on without values, or with values on one side alone.
_NO_VALUES = re.compile(r"(?<![a-z])meta(?![a-z])|\bsame device\b", re.IGNORECASE)


def _wants_values(trouble: BaseException | None) -> bool:
    """Whether something was raised because there are no values."""
    while trouble is not None:
        if _NO_VALUES.search(str(trouble)):
            return True
        trouble = trouble.__cause__ or trouble.__context__
    return False


class _Weightless(TorchFunctionMode):
    """Tensors without a device of their own are made on meta when they are large, or to be filled later."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if kwargs.get("device") is None and _is_weight(func, args, kwargs):
            kwargs = {**kwargs, "device": "meta"}
        return func(*args, **kwargs)


def _is_weight(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    if func in _TO_BE_FILLED:
        return not isinstance(kwargs.get("out"), torch.Tensor)
    return func in _CONSTANT and _numel(func, args, kwargs) > MOST_KEPT


def _numel(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    size = kwargs.get("size", args[:1] if func is torch.full else args)
    if func is torch.eye:
        return int(prod(args[:2])) if len(args) > 1 else int(args[0]) ** 2 if args else 0
    if len(size) == 1 and isinstance(size[0], (tuple, list, torch.Size)):
        size = size[0]
    return prod(dim for dim in size if isinstance(dim, int))
