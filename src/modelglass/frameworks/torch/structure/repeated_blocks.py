"""Lists of blocks that are all alike, and running a model with only a few of them in place."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import chain
from typing import Any, TypeAlias

from torch import nn
from torch.nn.parameter import is_lazy

from modelglass.frameworks.shared.describe import join_path
from modelglass.frameworks.torch.describe import json_safe, memory_of
from modelglass.frameworks.torch.memory.cache import config_of
from modelglass.frameworks.torch.privates import DisableTorchFunctionSubclass
from modelglass.frameworks.torch.structure import modules as structure
from modelglass.report import Lifetimes
from modelglass.undo import undoing

# From runs with a few blocks in the list at a path and with one more, what one with so many would be.
Place: TypeAlias = Callable[[Lifetimes, Lifetimes, str, int, int], Lifetimes | None]
FEW = (3, 5)  # five where the blocks next to the first and the last one are not like the others
LEAST = 8  # blocks in a list that is looked at
MANY = 24  # blocks in a list with which a second attempt pays
MOST = 3  # lists, each of which doubles the number of runs
WORTH = 0.75  # the share of a whole run below which short ones are taken instead
_INTERNALS = frozenset(vars(nn.Module())) - {"training"}
_CONTENTS = frozenset({"_parameters", "_buffers", "_modules"})


@dataclass(frozen=True)
class Blocks:
    """A list of modules; those between the first and the last are alike in all that can be seen of them."""

    path: str
    native: nn.Module

    @property
    def count(self) -> int:
        return len(self.native._modules)

    @contextmanager
    def shortened(self, count: int) -> Iterator[None]:
        """Have the first blocks and the last one alone in the list, so many in all; then all are back."""
        held = self.native._modules
        before = dict(held)
        blocks = list(before.values())
        with undoing() as log:
            log.record(held.update, before)
            log.record(held.clear)
            held.clear()
            held.update((str(at), block) for at, block in enumerate([*blocks[: count - 1], blocks[-1]]))
            yield

    def are_alike_to(self, patterns: Iterable[str]) -> bool:
        """Whether patterns of module paths match all blocks or none of them."""
        blocks = self.native._modules.values()
        parts = {part for block in blocks if block is not None for part, _ in structure.walk(block)}
        paths = [join_path(self.path, str(at)) for at in range(self.count)]
        return all(
            len({fnmatchcase(f"{path}.{part}" if part else path, pattern) for path in paths}) == 1
            for pattern in patterns
            for part in parts
        )


def run_with_few(
    lists: Sequence[Blocks], run: Callable[[], Lifetimes | None], place: Place
) -> Lifetimes | None:
    """A run with all blocks of some lists, from runs with few; None if a run fails or has no memory data."""
    if not lists:
        return run()
    blocks, *others = lists
    for few in FEW:
        found: list[Lifetimes] = []
        for count in (few, few + 1):
            with blocks.shortened(count):
                short = run_with_few(others, run, place)
            if short is None:
                return None
            found.append(short)
        whole = place(found[0], found[1], blocks.path, few, blocks.count)
        if whole is not None or blocks.count < MANY:
            return whole
    return None


def find_repeated(native: nn.Module) -> tuple[Blocks, ...]:
    """Lists of blocks that are alike, as many as make short runs cheapest; none when one whole run is."""
    aliases: dict[str, list[str]] = {}
    modules = dict(structure.walk(native, aliases))
    whole = _weight("", modules)
    lists = [Blocks(path, module) for path, module in modules.items() if _is_list(module)]
    weights = {blocks.path: _weight(blocks.path, modules) for blocks in lists}
    lists.sort(key=lambda blocks: weights[blocks.path], reverse=True)
    shared = [*aliases, *chain.from_iterable(aliases.values())]
    found: list[Blocks] = []
    best, least = 0, WORTH * whole
    for blocks in lists:
        nested = any(_is_below(blocks.path, other.path) for other in found)
        reached = any(_is_below(path, blocks.path) for path in shared)
        if nested or reached or len(found) == MOST or not _can_be_short(blocks, modules):
            continue
        found.append(blocks)
        cost = _cost(found, weights, whole)
        if cost < least:
            best, least = len(found), cost
    return tuple(found[:best])


def _is_list(module: nn.Module) -> bool:
    """Whether this holds many modules under their numbers."""
    children = module._modules
    return (
        isinstance(module, (nn.ModuleList, nn.Sequential))
        and len(children) >= LEAST
        and all(key == str(at) and child is not None for at, (key, child) in enumerate(children.items()))
    )


def _weight(path: str, modules: Mapping[str, nn.Module]) -> int:
    """About what a part of the model costs in a run: its modules and tensors."""
    return sum(
        1 + len(module._parameters) for name, module in modules.items() if not path or _is_below(name, path)
    )


def _cost(lists: Sequence[Blocks], weights: Mapping[str, int], whole: int) -> float:
    """About what all runs take that have these lists short in each combination."""
    runs: int = 2 ** len(lists)
    rest = whole - sum(weights[blocks.path] for blocks in lists)
    in_short = FEW[0] + 0.5  # blocks in the mean
    return runs * (rest + sum(in_short * weights[blocks.path] / blocks.count for blocks in lists))


def _is_below(path: str, root: str) -> bool:
    return path != root and (not root or path.startswith(f"{root}."))


def _can_be_short(blocks: Blocks, modules: Mapping[str, nn.Module]) -> bool:
    with DisableTorchFunctionSubclass():  # parameters may have ideas of their own
        return _is_alone(blocks, modules) and not _is_distinguished(blocks, modules) and _are_alike(blocks)


def _is_alone(blocks: Blocks, modules: Mapping[str, nn.Module]) -> bool:
    """Whether no block shares memory with another one or with the rest of the model."""
    owners: dict[int, str | None] = {}
    for path, module in modules.items():
        inside = _is_below(path, blocks.path)
        owner = path[len(blocks.path) :].lstrip(".").partition(".")[0] if inside else None
        for tensor in chain(module._parameters.values(), module._buffers.values()):
            if tensor is None:
                continue
            memory = None if is_lazy(tensor) else memory_of(tensor)
            if memory is None and inside:
                return False  # who knows
            if memory is not None and owners.setdefault(memory, owner) != owner:
                return False
    return True


def _is_distinguished(blocks: Blocks, modules: Mapping[str, nn.Module]) -> bool:
    """Whether a module around the blocks, or its configuration, has a list with something else for each."""
    path = blocks.path
    while True:
        around = modules[path]
        for value in chain(vars(around).values(), (config_of(around) or {}).values()):
            listed = isinstance(value, (list, tuple)) and len(value) == blocks.count
            if listed and not all(_is_like(item, at, value[0], 0) for at, item in enumerate(value)):
                return True
        if not path:
            return False
        path = path.rpartition(".")[0]


def _are_alike(blocks: Blocks) -> bool:
    """Whether all blocks but the first and the last have equal parts with equal settings."""
    _, model, *others, _ = (dict(structure.walk(block)) for block in blocks.native._modules.values() if block)
    return all(
        list(model) == list(parts)
        and all(_is_same_module(part, at, model[path], 1) for path, part in parts.items())
        for at, parts in enumerate(others, start=2)
    )


def _is_same_module(module: nn.Module, at: int, other: nn.Module, other_at: int) -> bool:
    """Whether two modules of blocks with these numbers are alike."""
    mine, others = vars(module), vars(other)
    if type(module) is not type(other) or list(mine) != list(others) or _tensors(module) != _tensors(other):
        return False
    return all(
        len(value) == len(others[key])  # hooks
        if key in _INTERNALS and isinstance(value, dict)
        else _is_like(value, at, others[key], other_at)
        for key, value in mine.items()
        if key not in _CONTENTS
    )


def _tensors(module: nn.Module) -> list[tuple[Any, ...]]:
    """All that memory can depend on of a module's own tensors."""
    return [
        (key, tensor is None)
        if tensor is None
        else (
            key,
            type(tensor),
            tensor.shape,
            tensor.stride(),
            tensor.dtype,
            tensor.device,
            tensor.requires_grad,
        )
        for key, tensor in chain(module._parameters.items(), module._buffers.items())
    ]


def _is_like(value: Any, at: int, other: Any, other_at: int) -> bool:
    """Whether two settings are equal, or differ only in that each has its block's number."""
    if value is other:
        return True
    mine, others = json_safe(value), json_safe(other)
    return bool(mine == others or _without_number(mine, at) == _without_number(others, other_at))


def _without_number(value: Any, at: int) -> Any:
    """A setting with the number of its block taken out."""
    if type(value) is int:
        return "#" if value == at else value
    if isinstance(value, str):
        return re.sub(rf"(?<!\d){at}(?!\d)", "#", value)
    if isinstance(value, list):
        return [_without_number(item, at) for item in value]
    if isinstance(value, dict):
        return {key: _without_number(item, at) for key, item in value.items()}
    return value
