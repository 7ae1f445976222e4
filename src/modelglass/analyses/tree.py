"""What modules contain, with modules that hang in several places."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from modelglass.report import Model, Tensor

Contents = Mapping[str, Sequence[tuple[str, str]]]


def children_by_module(model: Model) -> Contents:
    """By module, the names of what hangs below it, each with the path that it is known by."""
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for module in model.modules:
        for place in (module.path, *module.aliases):
            if place:
                parent, _, name = place.rpartition(".")
                found[parent].append((name, module.path))
    return found


def tensors_by_module(model: Model) -> dict[str, tuple[Tensor, ...]]:
    """By module, every tensor of it and of what it contains, each memory once: also those held elsewhere."""
    tensors = {tensor.name: tensor for tensor in model.tensors}
    own = {module.path: [tensors[name] for name in module.tensors] for module in model.modules}
    below = children_by_module(model)
    return {path: tuple(_tensors_below(path, own, below)) for path in own}


def _tensors_below(path: str, own: Mapping[str, Sequence[Tensor]], below: Contents) -> Iterator[Tensor]:
    modules: set[str] = set()
    storages: set[str] = set()
    waiting = [path]
    while waiting:
        at = waiting.pop()
        if at in modules:
            continue
        modules.add(at)
        for tensor in own[at]:
            if tensor.storage not in storages:
                storages.add(tensor.storage)
                yield tensor
        waiting.extend(child for _, child in reversed(below.get(at, ())))
