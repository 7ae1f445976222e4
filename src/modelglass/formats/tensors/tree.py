"""The module tree, rebuilt from the dotted names of tensors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from modelglass.report import Module

if TYPE_CHECKING:
    from modelglass.report import Json, Tensor

MOST_DEPTH = 64  # names with more dots than that are not taken apart further
MOST_MODULES = 150_000  # beyond which the tree is cut at a depth that has fewer
MOST_DIGITS = 18  # of a number that orders modules
FLAT = 4  # tensors without a dot in their names, beyond which each gets a line of its own

Known: TypeAlias = (
    "Mapping[str, tuple[str, Mapping[str, Json]]]"  # by path: the type of a module, and its settings
)
_NUMBER = re.compile(r"([0-9]+)")
_NO_SETTINGS: Mapping[str, Json] = {}


def modules(tensors: Sequence[Tensor], known: Known, *, ordered: bool = True) -> tuple[Module, ...]:
    """Every module that a name implies, parents first, with what the file says of its type.

    `ordered` says that tensors come in the model's own order; names order modules where they do not.
    """
    held: dict[str, list[str]] = {"": []}
    children: dict[str, list[str]] = {"": []}
    for path in known:
        _make(path, held, children)
    flat = sum("." not in tensor.name for tensor in tensors) > FLAT and not known
    for tensor, owner in zip(tensors, _owners(tensors, flat), strict=True):
        if owner not in held:
            _make(owner, held, children)
        held[owner].append(tensor.name)
    for listed in (children.values(), *(() if ordered else (held.values(),))):
        for names in listed:
            if len(names) > 1:
                _put_in_order(names, ordered)
    return tuple(_module(path, held[path], children[path], known) for path in _downwards(children))


def _put_in_order(names: list[str], ordered: bool) -> None:
    """Put 10 behind 9, where numbers or letters order names: files that sort them put it behind 1."""
    counted = names[0][-1:].isdecimal() and all(_last(name).isdecimal() for name in names)
    if not ordered or counted or names == sorted(names):
        names.sort(key=_naturally if _NUMBER.search("".join(map(_last, names))) else None)


def _naturally(name: str) -> list[str | int]:
    """What orders a name as people count: texts and numbers in turn."""
    parts = _NUMBER.split(_last(name))
    return [int(part[:MOST_DIGITS]) if place % 2 else part for place, part in enumerate(parts)]


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _downwards(children: Mapping[str, list[str]]) -> Iterator[str]:
    """Every module after the one that it is in."""
    waiting = [""]
    while waiting:
        path = waiting.pop()
        yield path
        waiting += reversed(children[path])


def _owners(tensors: Sequence[Tensor], flat: bool) -> list[str]:
    """The module that holds each tensor; of very many, one further up, so that there are fewer."""
    owners = [_owner(tensor.name, flat, MOST_DEPTH) for tensor in tensors]
    if len(tensors) <= MOST_MODULES or len(set(owners)) <= MOST_MODULES:
        return owners
    depth = min(MOST_DEPTH, max(tensor.name.count(".") for tensor in tensors)) - 1
    while depth > 0:
        owners = [_owner(tensor.name, False, depth) for tensor in tensors]
        if len(set(owners)) <= MOST_MODULES:
            break
        depth //= 2
    return owners


def _owner(name: str, flat: bool, depth: int) -> str:
    if name.count(".") > depth:
        return ".".join(name.split(".", depth)[:depth])
    owner = name.rpartition(".")[0]
    return name if flat and not owner and name else owner


def _make(path: str, held: dict[str, list[str]], children: dict[str, list[str]]) -> None:
    """Make the module and those above it."""
    missing = []
    while path not in held:
        missing.append(path)
        path = path.rpartition(".")[0]
    for each in reversed(missing):
        held[each], children[each] = [], []
        children[each.rpartition(".")[0]].append(each)


def _module(path: str, names: list[str], below: list[str], known: Known) -> Module:
    qualified, settings = known.get(path, ("", _NO_SETTINGS))
    return Module(
        path=path,
        type=qualified.rpartition(".")[2],
        qualified_type=qualified,
        config=settings,
        tensors=tuple(names),
        children=tuple(below),
    )
