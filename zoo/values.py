"""Calls on meta in which everything keeps its values that does not depend on weights."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only

aten = torch.ops.aten
_INDEXING = (aten.index.Tensor, aten.index_put.default, aten.index_put_.default)


class ValuesKept(TorchDispatchMode):
    """Sizes, masks and places are computed on the CPU; whatever meets a weight has a shape and no values.

    A model may then ask how many patches a picture has, or whether a mask masks anything, although it has no
    weights. Memory that something without values was written to has none from then on.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lost: dict[int, Any] = {}  # kept, so that no other memory takes its place

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        tensors = [each for each in tree_flatten((args, kwargs))[0] if isinstance(each, torch.Tensor)]
        if not any(map(self._has_no_values, tensors)):
            return func(*args, **_on("cpu", kwargs))
        if func in _INDEXING:
            args = (args[0], self._counted_out(args[1]), *args[2:])
        given, named = tree_map_only(torch.Tensor, lambda each: each.to("meta"), (args, kwargs))
        made = func(*given, **_on("meta", named))
        written = [each for each in _written(func, args, kwargs) if not each.is_meta]
        for each in written:
            storage = each.untyped_storage()
            self._lost[storage._cdata] = storage
        return written[0] if written else made

    def _has_no_values(self, tensor: torch.Tensor) -> bool:
        return tensor.is_meta or tensor.untyped_storage()._cdata in self._lost

    def _counted_out(self, indices: Any) -> list[Any]:
        """Masks as the places that they leave, since how many these are cannot be told on meta."""
        found: list[Any] = []
        for each in indices:
            is_mask = isinstance(each, torch.Tensor) and each.dtype == torch.bool
            found += each.nonzero().unbind(1) if is_mask and not self._has_no_values(each) else [each]
        return found


class NumbersKept(TorchFunctionMode):
    """What is made of numbers alone has their values: `torch.tensor` does so past all that runs below it."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        return func(*args, **(_on("cpu", kwargs) if func in (torch.tensor, torch.as_tensor) else kwargs))


def _written(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """What an operator writes to, of what it is given."""
    given = {
        argument.name: value for argument, value in zip(func._schema.arguments, args, strict=False)
    } | kwargs
    writes = [each.name for each in func._schema.arguments if each.alias_info and each.alias_info.is_write]
    return [
        each
        for each in tree_flatten([given.get(name) for name in writes])[0]
        if isinstance(each, torch.Tensor)
    ]


def _on(device: str, kwargs: dict[str, Any]) -> dict[str, Any]:
    """What is made, or moved, stays on this device: values where they are, and what has none without."""
    return kwargs if kwargs.get("device") is None else {**kwargs, "device": torch.device(device)}
