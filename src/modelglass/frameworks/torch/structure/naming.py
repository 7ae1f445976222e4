"""Public names of operators: `aten.conv2d.default` is what a user knows as `torch.conv2d`."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import resolve_name

from modelglass.frameworks.torch.privates import HigherOrderOperator, OpOverload

# Operator prefix -> the public namespace that holds the rest of the name.
_NAMESPACES = {"linalg_": "linalg", "fft_": "fft", "special_": "special"}


@cache
def public_name(func: Any) -> str:
    """The name under which a user would call the operator."""
    if not isinstance(func, OpOverload):
        return _function_name(func)
    overload = overload_name(func)
    namespace, _, rest = overload.partition(".")
    name = rest.partition(".")[0]
    if namespace != "aten":
        return f"torch.ops.{namespace}.{name}"
    for prefix, module in _NAMESPACES.items():
        if name.startswith(prefix) and hasattr(getattr(torch, module), name[len(prefix) :]):
            return f"torch.{module}.{name[len(prefix) :]}"
    if not name.startswith("_"):
        for holder, prefix in (
            (torch, "torch"),
            (F, "torch.nn.functional"),
            (torch.Tensor, "torch.Tensor"),
        ):
            if callable(getattr(holder, name, None)):
                return f"{prefix}.{name}"
    return f"torch.ops.aten.{name}"


def _function_name(func: Any) -> str:
    """Higher-order operators and, where operators cannot be seen, the functions that call them."""
    if isinstance(func, HigherOrderOperator):
        return f"torch.ops.higher_order.{func.name()}"
    return str(resolve_name(func) or getattr(func, "__qualname__", type(func).__name__))


@cache
def overload_name(func: Any) -> str:
    """The exact operator, as `aten.conv2d.default`."""
    if isinstance(func, HigherOrderOperator):
        return f"higher_order.{func.name()}"
    return str(func) if isinstance(func, OpOverload) else _function_name(func)


@cache
def kernel_name(func: Any) -> str:
    """The operator without its overload, as `aten.conv2d`."""
    namespace, _, rest = overload_name(func).partition(".")
    return f"{namespace}.{rest.partition('.')[0]}"
