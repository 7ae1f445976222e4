"""Parameters that ranks divide and layers do not describe: read from the function that loads them.

A loader takes the whole tensor out of a checkpoint and keeps what is this rank's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from inspect import CO_VARARGS
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import nn

from modelglass.frameworks.vllm.structure.stored_tensor import StoredTensor, describe_shard, find_integer
from modelglass.report import Shape

_DEPTH = 4  # loaders within loaders


@dataclass(frozen=True)
class Spec:
    """The pieces of a fused weight, as a loader has them."""

    sizes: tuple[int, ...]  # rows of each in the whole model
    held: tuple[int, ...]  # rows of each in this rank
    missing: int  # rows here that stand for nothing


def find_spec(parameter: torch.Tensor) -> Spec | None:
    """What the loader of a state-space layer knows: groups that each rank has a copy of are among it."""
    for cells in _cells(_loader(parameter)):
        pieces, ranks, rank = cells.get("shard_spec"), cells.get("tp_size"), cells.get("tp_rank")
        if isinstance(pieces, list) and type(ranks) is int and type(rank) is int and ranks > 0:
            return _spec(pieces, ranks, rank)
    return None


def find_division(owner: nn.Module, parameter: torch.Tensor, ranks: int) -> tuple[StoredTensor | None, bool]:
    """What this rank holds of a parameter that layers do not describe, and whether that is certain.

    `ranks` is the degree of tensor parallelism.
    """
    shape = tuple(parameter.shape)
    loader = _loader(parameter)
    if ranks < 2 or not shape:
        return None, True
    if _is_per_head(owner, parameter):
        return _divide_along(shape, 0, ranks), True
    if loader is None or not _knows_ranks(loader):
        return None, True
    for cells in _cells(loader):
        if type(cells.get("shard_axis")) is int:
            return _divide_along(shape, cells["shard_axis"] % len(shape), ranks), True
    dim = find_integer(parameter, "output_dim")
    if dim is not None and 0 <= dim < len(shape):
        whole_already = getattr(parameter, "is_sharded_weight", False) is True
        return (None if whole_already else _divide_along(shape, dim, ranks)), True
    found = _try_dimensions(loader, parameter, ranks) or _find_strided(loader, shape, ranks)
    return found, found is not None


def _spec(pieces: list[Any], ranks: int, rank: int) -> Spec:
    sizes, held, missing = [], [], 0
    for rows, extra, copied in pieces:
        here = rows // ranks
        before = 0 if copied else rank * here
        sizes.append(rows - extra)
        held.append(here)
        missing += here - max(0, min(here, rows - extra - before))
    return Spec(tuple(sizes), tuple(held), missing)


def _divide_along(shape: Shape, dim: int, times: int) -> StoredTensor:
    whole = [size * times if index == dim else size for index, size in enumerate(shape)]
    return describe_shard(shape, whole, dim)


def _is_per_head(owner: nn.Module, parameter: torch.Tensor) -> bool:
    """Whether an attention has one row of this for each of its own heads, which are not all of them."""
    for child in owner.children():
        sinks = getattr(getattr(child, "impl", None), "sinks", None)
        if sinks is parameter:
            return True
        heads, total = find_integer(child, "num_heads"), find_integer(child, "total_num_heads")
        if heads is not None and total is not None and heads < total and parameter.shape[0] == heads:
            return True
    return False


def _loader(parameter: torch.Tensor) -> Callable[..., Any] | None:
    try:
        loader = getattr(parameter, "weight_loader", None)
    except AttributeError:  # one that was taken away raises in its own words
        return None
    return loader if callable(loader) else None


def _functions(loader: Any, depth: int = 0) -> Iterator[FunctionType]:
    """The functions a loader is made of, outermost first."""
    if isinstance(loader, partial):
        yield from _functions(loader.func, depth)
    elif isinstance(loader, MethodType):
        yield from _functions(loader.__func__, depth)
    elif isinstance(loader, FunctionType):
        yield loader
        for cell in loader.__closure__ or () if depth < _DEPTH else ():
            yield from _functions(_content(cell), depth + 1)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing was put there yet
        return None


def _cells(loader: Any) -> Iterator[dict[str, Any]]:
    """What each of those functions remembers, by name."""
    for function in _functions(loader):
        names, cells = function.__code__.co_freevars, function.__closure__ or ()
        yield dict(zip(names, map(_content, cells), strict=True))


def _knows_ranks(loader: Any) -> bool:
    """Whether a loader asks which rank it loads for."""
    for function in _functions(loader):
        code = function.__code__
        if any("rank" in name for name in (*code.co_names, *code.co_varnames, *code.co_freevars)):
            return True
    return False


def _try_dimensions(loader: Callable[..., Any], parameter: torch.Tensor, ranks: int) -> StoredTensor | None:
    """The dimension that must be greater for the loader to take a tensor without values, if any must."""
    if isinstance(loader, MethodType) or not _takes_two(loader):
        return None  # what a layer remembers of its loading is not read
    shape = tuple(parameter.shape)
    for times in range(ranks, 1, -1):
        if ranks % times:
            continue
        fitting = [dim for dim in range(len(shape)) if _loads(loader, parameter, dim, times)]
        if len(fitting) == 1:
            return _divide_along(shape, fitting[0], times)
    return StoredTensor(shape) if _loads(loader, parameter, 0, 1) else None


def _takes_two(loader: Any) -> bool:
    """Whether a loader can be called with a parameter and a tensor."""
    function = next(_functions(loader), None)
    if function is None or function.__code__.co_flags & CO_VARARGS:
        return False
    given = len(loader.keywords) if isinstance(loader, partial) else 0
    optional = max(len(function.__defaults__ or ()), given)
    return 0 <= function.__code__.co_argcount - 2 <= optional


def _loads(loader: Callable[..., Any], parameter: torch.Tensor, dim: int, times: int) -> bool:
    whole = [size * times if index == dim else size for index, size in enumerate(parameter.shape)]
    substitute = nn.Parameter(
        torch.empty(parameter.shape, dtype=parameter.dtype, device="meta"), requires_grad=False
    )
    try:
        with torch.no_grad():
            loader(substitute, torch.empty(whole, dtype=parameter.dtype, device="meta"))
    except (RuntimeError, AssertionError, ValueError, IndexError, TypeError, AttributeError):
        return False
    return substitute.shape == parameter.shape


def _find_strided(loader: Any, shape: Shape, ranks: int) -> StoredTensor | None:
    """The one dimension that is as long as a number of the loader's own layer, or twice that."""
    if not isinstance(loader, MethodType):
        return None
    names = loader.__func__.__code__.co_names
    strides = {
        value for name in names if (value := find_integer(loader.__self__, name)) is not None and value > 1
    }
    fitting = [dim for dim, size in enumerate(shape) if size in strides or size / 2 in strides]
    return _divide_along(shape, fitting[0], ranks) if len(fitting) == 1 else None
