"""What ran in a call, in a few bytes: the same for two calls in which the same kernels ran alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from hashlib import blake2b
from typing import Any, TypeAlias

import torch
from torch.nn.parameter import is_lazy

from modelglass.frameworks.torch.describe import json_safe
from modelglass.frameworks.torch.structure.naming import overload_name

KernelCall: TypeAlias = tuple[Any, ...]  # a kernel and what it was given


def describe_kernel(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> KernelCall:
    """A kernel with what it was given, of tensors their shapes and types."""
    named = ((key, _setting(value)) for key, value in kwargs.items())
    return func, *map(_setting, args), *named


def digest_kernels(kernels: Iterable[KernelCall], texts: dict[KernelCall, bytes]) -> str:
    """The digest, the same in every process; `texts` keeps how each kernel is written."""
    found = blake2b(digest_size=8)
    for kernel in kernels:
        text = texts.get(kernel)
        if text is None:
            func, *given = kernel
            text = texts[kernel] = f"{overload_name(func)} {given}\n".encode()
        found.update(text)
    return found.hexdigest()


@cache
def is_work(func: Any) -> bool:
    """False for what only reads a property of a tensor."""
    return not overload_name(func).startswith("prim.")


def _setting(value: Any) -> Any:
    """The value of an argument, of a tensor its shape and type: hashable, with a stable text."""
    if isinstance(value, torch.Tensor):
        # A nested tensor names its uneven size by a number that differs from run to run.
        return None if value.is_nested or is_lazy(value) else value.shape, value.dtype
    if value is None or type(value) is int:
        return value
    if isinstance(value, (list, tuple)):
        return tuple(map(_setting, value))
    return str(json_safe(value))  # 1, 1.0 and True are equal, and are not the same
