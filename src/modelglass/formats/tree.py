"""The module tree, rebuilt from the dotted names of tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from modelglass.report import Json, Module, Tensor

MOST_DEPTH = 64  # names with more dots than that are not taken apart further
FLAT = 4  # tensors without a dot in their names, beyond which each gets a line of its own

Known = Mapping[str, tuple[str, Mapping[str, Json]]]  # by path: the type of a module, and its settings
_NO_SETTINGS: Mapping[str, Json] = {}


def modules(tensors: Sequence[Tensor], known: Known) -> tuple[Module, ...]:
    """Every module that a name implies, parents first, with what the file says of its type."""
    held: dict[str, list[str]] = {"": []}
    children: dict[str, list[str]] = {"": []}
    for path in known:
        _make(path, held, children)
    flat = sum("." not in tensor.name for tensor in tensors) > FLAT and not known
    for tensor in tensors:
        owner = _owner(tensor.name, flat)
        if owner not in held:
            _make(owner, held, children)
        held[owner].append(tensor.name)
    return tuple(_module(path, names, children[path], known) for path, names in held.items())


def _owner(name: str, flat: bool) -> str:
    if name.count(".") > MOST_DEPTH:
        return ".".join(name.split(".", MOST_DEPTH)[:MOST_DEPTH])
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
