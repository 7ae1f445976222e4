"""The module tree of an MLX model and its arrays, read without evaluating anything.

A list, tuple or dict with modules in it is a module of the tree, called by its type, as torch's ModuleList
is; so is a function among the steps of a Sequential, by its name. Arrays in lists and dicts belong to the
module that has the container. What `parameters()` lists are parameters; the other arrays, under private
names, in tuples, or in modules that hang there, are buffers: nobody trains or saves them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from mlx import nn

from modelglass.frameworks.mlx.describe import dtype_name
from modelglass.frameworks.mlx.structure.packing import find_packed_slots
from modelglass.frameworks.mlx.structure.settings import config_of
from modelglass.frameworks.mlx.structure.tree import (
    Slot,
    TreeNode,
    find_slots,
    function_name,
    is_function,
    is_public,
    reachable_ids,
    walk_nodes,
)
from modelglass.frameworks.shared.describe import instances_in, join_path, type_name
from modelglass.report import Model, Module, Note, Tensor, TensorKind
from modelglass.undo import undoing


def read(native: nn.Module) -> tuple[Model, tuple[Note, ...]]:
    """The structure of a model: every module once, every array by each of its names."""
    tree = _Tree(registered=reachable_ids(native), trainable=reachable_ids(native, trainable=True))
    for node in walk_nodes(native, tree.aliases):
        tree.add(node)
    model = Model(
        name=type(native).__name__,
        source="mlx",
        modules=tuple(tree.modules()),
        tensors=tuple(tree.tensors),
    )
    return model, tuple(tree.notes())


def walk(native: nn.Module, aliases: dict[str, list[str]] | None = None) -> Iterator[tuple[str, nn.Module]]:
    """Each module once, parents before children, in definition order; further paths go to `aliases`."""
    for node in walk_nodes(native, aliases):
        if node.is_module:
            yield node.path, node.native


def find_functions(found: Iterable[TreeNode]) -> Iterator[tuple[str, list[Any], int, Any]]:
    """Each function among the steps of a list: its path, the list, its place there, and itself."""
    for node in found:
        if is_function(node.native) and isinstance(node.holder, list):
            yield node.path, node.holder, node.key, node.native


def name_slots(found: Iterable[TreeNode]) -> Iterator[tuple[str, Slot]]:
    """Every place where an array stands, by its name in the structure."""
    taken: set[str] = set()
    for node in found:
        if node.is_module:
            for slot in find_slots(node.native):
                yield make_unused(join_path(node.name, slot.name), taken), slot


def make_unused(name: str, taken: set[str]) -> str:
    """The name, marked where keys with dots make two arrays read alike; now it is taken."""
    while name in taken:
        name += "'"
    taken.add(name)
    return name


def walk_names(native: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Each module once, by what the names of its arrays begin with: its path, save for dots in keys."""
    for node in walk_nodes(native):
        if node.is_module:
            yield node.name, node.native


def find_non_persistent(native: nn.Module) -> frozenset[str]:
    """The names of arrays that `save_weights` leaves out, because `parameters()` does not list them."""
    registered = reachable_ids(native)
    return frozenset(
        join_path(name, slot.name)
        for name, module in walk_names(native)
        for slot in find_slots(module)
        if id(module) not in registered or not _is_listed(slot)
    )


@contextmanager
def in_training(native: nn.Module) -> Iterator[None]:
    """The model in training mode; each module is as it was afterwards.

    Only the flags change, those of the modules that `train()` would reach. Its own `train()` is not called:
    layers that keep their weights quantized while they do not learn would unpack them.
    """
    with undoing() as log:
        for module in _modules_following(native):
            log.replace(module, "_training", True)
        yield


def _modules_following(native: nn.Module) -> Iterator[nn.Module]:
    """The modules that follow the mode of this one: all but those in tuples or set past MLX."""
    beyond: set[str] = set()
    for node in walk_nodes(native):
        out_of_sight = node.holder is not None and _is_beyond(node)
        if out_of_sight or node.parent in beyond:
            beyond.add(node.path)
        elif node.is_module:
            yield node.native


def _is_listed(slot: Slot) -> bool:
    return slot.listed and is_public(slot.name)


def _is_beyond(node: TreeNode) -> bool:
    """Whether MLX does not see this at all: it is in a tuple or was set past `Module.__setattr__`."""
    if isinstance(node.native, tuple) or isinstance(node.holder, tuple):
        return True
    return isinstance(node.holder, nn.Module) and not dict.__contains__(node.holder, node.key)


@dataclass
class _Tree:
    """What has been read so far."""

    registered: set[int]
    trainable: set[int]
    nodes: list[TreeNode] = field(default_factory=list)
    children: dict[str, list[str]] = field(default_factory=dict)
    own: dict[str, tuple[str, ...]] = field(default_factory=dict)
    tensors: list[Tensor] = field(default_factory=list)
    aliases: dict[str, list[str]] = field(default_factory=dict)
    first_name: dict[int, str] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    hidden: set[str] = field(default_factory=set)
    private: list[str] = field(default_factory=list)
    unregistered: list[str] = field(default_factory=list)
    in_tuples: list[str] = field(default_factory=list)

    def add(self, node: TreeNode) -> None:
        first = len(self.tensors)
        if node.is_module:
            self._add_arrays(node)
        self.nodes.append(node)
        self.children[node.path] = []
        self.own[node.path] = tuple(tensor.name for tensor in self.tensors[first:])
        if node.parent is not None:
            self.children[node.parent].append(node.path)
        self._look_for_hidden(node)

    def _look_for_hidden(self, node: TreeNode) -> None:
        """A module that nothing registers; what is below a hidden one is not named again."""
        if is_function(node.native) or node.parent is None:
            return
        if node.parent in self.hidden:
            self.hidden.add(node.path)
        elif _is_beyond(node) and self._leads_to_hidden(node):
            self.hidden.add(node.path)
            self.unregistered.append(node.path)
        elif isinstance(node.holder, nn.Module) and not is_public(node.key) and self._leads_to_hidden(node):
            self.hidden.add(node.path)
            self.private.append(node.path)

    def _leads_to_hidden(self, node: TreeNode) -> bool:
        """A container is hidden with a module in it that is registered nowhere else."""
        if node.is_module:
            return id(node.native) not in self.registered
        return any(id(module) not in self.registered for module in instances_in(node.native, nn.Module))

    def modules(self) -> Iterator[Module]:
        for node in self.nodes:
            native = node.native
            if is_function(native):
                name, qualified = function_name(native)
            else:
                name, qualified = type(native).__name__, type_name(type(native))
            yield Module(
                path=node.path,
                type=name,
                qualified_type=qualified,
                config=config_of(native) if node.is_module else {},
                training=vars(native).get("_training") if node.is_module else None,
                tensors=self.own[node.path],
                children=tuple(self.children[node.path]),
                aliases=tuple(self.aliases.get(node.path, ())),
            )

    def _add_arrays(self, node: TreeNode) -> None:
        for slot, packing, serves, _ in find_packed_slots(node.native):
            name = make_unused(join_path(node.name, slot.name), self.names)
            kind: TensorKind = "parameter"
            if id(slot.array) not in self.registered or serves:
                kind = "buffer"
            elif packing is not None:
                kind = "packed"
            if not slot.listed and is_public(slot.name):
                self.in_tuples.append(name)
            self.tensors.append(
                Tensor(
                    name=name,
                    kind=kind,
                    shape=tuple(slot.array.shape),
                    dtype=dtype_name(slot.array.dtype),
                    storage=self.first_name.setdefault(id(slot.array), name),
                    trainable=id(slot.array) in self.trainable,
                    packing=packing,
                )
            )

    def notes(self) -> Iterator[Note]:
        found = {
            "private-module": self.private,
            "unregistered-module": self.unregistered,
            "unregistered-array": self.in_tuples,
        }
        for code, where in found.items():
            if where:
                yield Note(code=code, severity="warning", text=_TEXTS[code], where=tuple(where))


_TEXTS = {
    "private-module": (
        'modules under names that begin with "_": they are left out of parameters(), so MLX neither trains '
        "nor saves them; their arrays count as buffers here"
    ),
    "unregistered-module": (
        "modules held in a tuple, or set past Module.__setattr__: MLX does not see them, in parameters(), "
        "children() or train(); their arrays count as buffers here. Use a list or dict"
    ),
    "unregistered-array": (
        "arrays held in a tuple: MLX neither trains nor saves them, and they count as buffers here. Use a "
        "list or dict"
    ),
}
