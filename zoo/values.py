"""Calls on meta in which everything keeps its values that does not depend on weights."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only

aten = torch.ops.aten
_INDEXING = (aten.index.Tensor, aten.index_put.default, aten.index_put_.default)


class ValuesKept(TorchDispatchMode):
    """Sizes, masks and places are computed on the CPU; whatever meets a weight has a shape and no values.

    A model may then ask how many patches a picture has, or whether a mask masks anything, although it has no
    weights.
    """

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        tensors = [each for each in tree_flatten((args, kwargs))[0] if isinstance(each, torch.Tensor)]
        if not any(each.is_meta for each in tensors):
            return func(*args, **_on("cpu", kwargs))
        if func in _INDEXING:
            args = (args[0], _counted_out(args[1]), *args[2:])
        given, named = tree_map_only(torch.Tensor, lambda each: each.to("meta"), (args, kwargs))
        made = func(*given, **_on("meta", named))
        changed = func._schema.is_mutable and isinstance(args[0], torch.Tensor) and not args[0].is_meta
        return args[0] if changed else made


def _on(device: str, kwargs: dict[str, Any]) -> dict[str, Any]:
    """What is made, or moved, stays on this device: values where they are, and what has none without."""
    return kwargs if kwargs.get("device") is None else {**kwargs, "device": torch.device(device)}


def _counted_out(indices: Any) -> list[Any]:
    """Masks as the places that they leave, since how many these are cannot be told on meta."""
    found: list[Any] = []
    for each in indices:
        is_mask = isinstance(each, torch.Tensor) and each.dtype == torch.bool and not each.is_meta
        found += each.nonzero().unbind(1) if is_mask else [each]
    return found
