"""Descriptions of inputs: sizes, element types and structures, without a tensor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

Path: TypeAlias = tuple[Any, ...]  # of a tensor: the argument's name, then keys and places inside of it
Shape: TypeAlias = tuple[int, ...]
BATCH, LENGTH = 2, 128  # ordinary sizes
FLOAT, WHOLE, BOOL = "float", "int64", "bool"  # FLOAT is the type of the model's own weights


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor to be made."""

    shape: Shape
    dtype: str = FLOAT


@dataclass(frozen=True, slots=True)
class Plain:
    """A number, a text or a choice."""

    value: Any


@dataclass(frozen=True, slots=True)
class Several:
    """A tuple or a list."""

    items: tuple[Node, ...]
    is_list: bool = False


@dataclass(frozen=True, slots=True)
class Named:
    """A dictionary."""

    items: tuple[tuple[str, Node], ...]


Node: TypeAlias = Tensor | Plain | Several | Named


@dataclass(frozen=True, slots=True)
class Call:
    """The arguments of a call by name. `spread` is the one that is passed as `*args`."""

    arguments: tuple[tuple[str, Node], ...]
    spread: str | None = None

    def tensors(self) -> dict[Path, Tensor]:
        """Every tensor, by its path."""
        found: dict[Path, Tensor] = {}
        for name, node in self.arguments:
            found.update(_tensors((name,), node))
        return found

    def get(self, name: str) -> Node | None:
        return dict(self.arguments).get(name)

    def having(self, path: Path, node: Node) -> Call:
        """The same call with something else at a path; a name that is not there is added."""
        name, *rest = path
        found = dict(self.arguments)
        found[name] = _replaced(found[name], tuple(rest), node) if rest else node
        return replace(self, arguments=tuple(found.items()))

    def having_all(self, tensors: dict[Path, Tensor]) -> Call:
        """The same call with other tensors at several paths."""
        call = self
        for path, tensor in tensors.items():
            call = call.having(path, tensor)
        return call


def sides(shape: Shape) -> range:
    """The dimensions that are heights, widths and depths of a picture or a volume."""
    has_channels_last = len(shape) > 3 and shape[1] == shape[2] != shape[-1]
    return range(1, len(shape) - 1) if has_channels_last else range(2, len(shape))


def with_sides(tensor: Tensor, sizes: Sequence[int]) -> Tensor:
    """The same picture or volume in other sizes."""
    shape = list(tensor.shape)
    for dim, size in zip(sides(tensor.shape), sizes, strict=True):
        shape[dim] = size
    return replace(tensor, shape=tuple(shape))


def path_text(path: Path) -> str:
    """How people write a path: `batch.ids`, `feats.0`."""
    return ".".join(map(str, path))


def _tensors(path: Path, node: Node) -> Iterator[tuple[Path, Tensor]]:
    if isinstance(node, Tensor):
        yield path, node
    elif isinstance(node, Several):
        for index, item in enumerate(node.items):
            yield from _tensors((*path, index), item)
    elif isinstance(node, Named):
        for name, item in node.items:
            yield from _tensors((*path, name), item)


def _replaced(node: Node, path: Path, new: Node) -> Node:
    if not path:
        return new
    key, rest = path[0], path[1:]
    if isinstance(node, Several):
        items = list(node.items)
        items[key] = _replaced(items[key], rest, new)
        return replace(node, items=tuple(items))
    if isinstance(node, Named):
        found = dict(node.items)
        found[key] = _replaced(found[key], rest, new) if rest else new
        return Named(tuple(found.items()))
    raise KeyError(key)
