"""Where an MLX model keeps its modules, functions and arrays.

A module of MLX is a dict: attributes that are arrays, modules, lists, tuples or dicts are its items, in the
order of their definition; everything else is in `vars(module)`. MLX registers what hangs below names that
do not begin with "_", through lists and dicts. A name with "_" is private: its modules are trained and
saved by nobody, though they follow `train()` and `freeze()`. Tuples, and whatever was set past
`Module.__setattr__`, MLX does not look into at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import mlx.core as mx
from mlx import nn

from modelglass.frameworks.shared.describe import join_path

CONTAINERS = (list, tuple, dict)  # a module is a dict as well: it is asked for first


@dataclass(frozen=True, slots=True)
class TreeNode:
    """A module, a container with modules in it, or a function among modules."""

    path: str
    name: str  # as MLX spells it; `path` differs where a key has a dot in it
    native: Any
    parent: str | None
    holder: Any  # what has it as an item; None for the root
    key: Any

    @property
    def is_module(self) -> bool:
        return isinstance(self.native, nn.Module)


def walk_nodes(native: nn.Module, aliases: dict[str, list[str]] | None = None) -> Iterator[TreeNode]:
    """Each node once, parents before children, in definition order; further paths go to `aliases`.

    What is registered is known by its registered path, though a private name may come before it.
    """
    first: dict[int, str] = {}
    further: dict[str, int] = {}  # paths at which something hangs that is known by another
    paths = {""}
    registered = reachable_ids(native)
    stack = [TreeNode("", "", native, None, None, None)]
    while stack:
        node = stack.pop()
        if id(node.native) in first:
            further[node.path] = id(node.native)
            continue
        if not is_function(node.native):
            first[id(node.native)] = node.path
        yield node
        stack.extend(reversed(list(_below(node, registered, further, paths))))
    if aliases is not None:
        for path, known in further.items():
            aliases.setdefault(first[known], []).append(path)


def _below(
    node: TreeNode, registered: set[int], further: dict[str, int], paths: set[str]
) -> Iterator[TreeNode]:
    inside = id(node.native) in registered
    for key, item, public in _items(node.native):
        # A dot would make another path of it, and two keys may read alike.
        path = join_path(node.path, str(key).replace(".", "/"))
        while path in paths:
            path += "'"
        paths.add(path)
        if not (inside and public) and id(item) in registered and not is_function(item):
            further[path] = id(item)
        else:
            yield TreeNode(path, join_path(node.name, str(key)), item, node.path, node.native, key)


def _items(value: Any) -> Iterator[tuple[Any, Any, bool]]:
    """What hangs directly below, each with whether MLX registers it there."""
    if isinstance(value, nn.Module):
        for key, item in dict.items(value):
            if _is_node(item):
                yield key, item, is_public(key)
        for key, item in vars(value).items():
            if _is_node(item):
                yield key, item, False
    elif isinstance(value, CONTAINERS):
        functions = holds_functions(value)
        for key, item in items_of(value):
            if _is_node(item) or (functions and is_function(item)):
                yield key, item, not isinstance(value, tuple)


def is_public(key: Any) -> bool:
    """Whether a module's item of that name is a parameter or holds parameters."""
    return not str(key).startswith("_")


def _is_node(value: Any) -> bool:
    return isinstance(value, nn.Module) or (isinstance(value, CONTAINERS) and _holds_modules(value, set()))


def _holds_modules(container: Any, seen: set[int]) -> bool:
    if id(container) in seen:
        return False
    seen.add(id(container))
    if holds_functions(container):
        return True
    for _, item in items_of(container):
        if isinstance(item, nn.Module) or (isinstance(item, CONTAINERS) and _holds_modules(item, seen)):
            return True
    return False


def holds_functions(container: Any) -> bool:
    """Whether this is a list of steps, such as a Sequential has: modules and functions, and nothing else."""
    if not isinstance(container, (list, tuple)):
        return False
    among = False
    for item in container:
        if is_function(item):
            among = True
        elif not isinstance(item, nn.Module):
            return False
    return among


def is_function(value: Any) -> bool:
    """Whether this is something to call that is not a module."""
    return callable(value) and not isinstance(value, (type, nn.Module))


def items_of(container: Any) -> Iterator[tuple[Any, Any]]:
    """What a list, tuple or dict holds."""
    return iter(container.items() if isinstance(container, dict) else enumerate(container))


def function_name(function: Any) -> tuple[str, str]:
    """What a function is called, and the same with the module it comes from."""
    while isinstance(function, partial):
        function = function.func
    if not isinstance(getattr(function, "__name__", None), str):  # an object that can be called
        function = type(function)
    name = function.__name__
    return name, f"{function.__module__}.{getattr(function, '__qualname__', name)}"


@dataclass(frozen=True, slots=True)
class Slot:
    """A place in a module, or in a container that it has, where an array stands."""

    name: str  # below the module: "weight", "d.w", "stages.0"
    container: Any
    key: Any
    array: mx.array
    listed: bool  # False: in a tuple, where MLX does not see it


def find_slots(module: nn.Module) -> Iterator[Slot]:
    """The module's own arrays, those in its lists, tuples and dicts included, in definition order."""
    return _find_slots_in("", module, True, ())


def _find_slots_in(name: str, container: Any, listed: bool, around: tuple[int, ...]) -> Iterator[Slot]:
    if id(container) in around:  # it holds itself
        return
    for key, item in items_of(container):
        below = join_path(name, str(key))
        if isinstance(item, mx.array):
            yield Slot(below, container, key, item, listed)
        elif isinstance(item, CONTAINERS) and not isinstance(item, nn.Module):
            visible = listed and not isinstance(item, tuple)
            yield from _find_slots_in(below, item, visible, (*around, id(container)))


def reachable_ids(native: nn.Module, *, trainable: bool = False) -> set[int]:
    """Identities of all that `parameters()` goes through and lists, or `trainable_parameters()`."""
    found = {id(native)}
    waiting: list[nn.Module] = [native]
    while waiting:
        module = waiting.pop()
        frozen = frozen_keys(module) if trainable else frozenset()
        for value in _find_registered(module, frozen):
            if id(value) not in found:
                found.add(id(value))
                if isinstance(value, nn.Module):
                    waiting.append(value)
    return found


def frozen_keys(module: nn.Module) -> frozenset[str]:
    """Names below the module that are not trained; those in containers have dots."""
    return frozenset(vars(module).get("_no_grad", ()))


def _find_registered(module: nn.Module, frozen: frozenset[str]) -> Iterator[Any]:
    """Arrays, modules and containers that the module registers, save frozen ones."""
    waiting: list[tuple[str, Any, tuple[int, ...]]] = [
        (str(key), item, ()) for key, item in dict.items(module) if is_public(key)
    ]
    while waiting:
        name, value, around = waiting.pop()
        if name in frozen or id(value) in around:
            continue
        if isinstance(value, (mx.array, nn.Module)):
            yield value
        elif isinstance(value, (list, dict)):
            yield value
            inner = (*around, id(value))
            waiting.extend((f"{name}.{key}", item, inner) for key, item in items_of(value))
