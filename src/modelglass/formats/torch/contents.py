"""What hangs where in the object that a torch file holds: tensors by dotted names, and modules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from modelglass.formats.pickles.objects import Elements, Global, Pairs, Thing, as_text
from modelglass.formats.torch.plain import numpy_scalar
from modelglass.formats.torch.tensors import is_tensor, items_of
from modelglass.report import Json

_HELD = {"_parameters": "parameter", "_buffers": "buffer", "_modules": None}
MOST_DEPTH = 200
MOST_DUPLICATES = 20
MOST_KEY = 4096  # characters of one key in a name
MOST_NAME = 8192  # characters of a name, beyond which nothing is listed below it


@dataclass(slots=True)
class Contents:
    """Tensors by name, with their kind if the file says it, and the modules of a file that has whole ones."""

    tensors: list[tuple[str, Thing, str | None]] = field(default_factory=list)
    modules: dict[str, Thing] = field(default_factory=dict)
    repeated: int = 0  # containers that hang in a second place, and are listed in the first
    duplicates: list[str] = field(default_factory=list)  # keys that a dictionary has twice
    too_deep: int = 0  # containers that hang too deep to be listed


def contents_of(root: Any, seen: set[int] | None = None) -> Contents:
    """Everything below an object, each container once: shared ones may be shared a million times over.

    `seen` has the identities of containers that were listed before, and gets those that are listed now.
    """
    found = Contents()
    seen = set() if seen is None else seen
    waiting: list[tuple[str, Any, str | None, int]] = [("", root, None, 0)]
    while waiting:
        path, value, kind, depth = waiting.pop()
        if is_tensor(value):
            found.tensors.append((path, value, kind))
            continue
        if isinstance(value, (str, bytes, int, float, type(None), Global)) or value == ():
            continue
        if id(value) in seen:
            found.repeated += 1
            continue
        seen.add(id(value))
        if depth == MOST_DEPTH or len(path) > MOST_NAME:
            found.too_deep += 1
            continue
        below = [(*each, depth + 1) for each in _below(path, value, found)]
        waiting.extend(reversed(below))
    return found


def _below(path: str, value: Any, found: Contents) -> Iterator[tuple[str, Any, str | None]]:
    if is_module(value):
        yield from _in_module(path, value, found)
        return
    items = items_of(value)
    if items is not None:
        yield from _in_dict(path, items, found)
    if isinstance(value, (list, tuple)):
        yield from ((_join(path, index), item, None) for index, item in enumerate(value))
    elif isinstance(value, Elements):
        yield from ((_join(path, index), item, None) for index, item in enumerate(value.items))
    elif isinstance(value, Thing):
        if value.listed:
            yield from ((_join(path, index), item, None) for index, item in enumerate(value.listed))
        if type(value.state) is Pairs and items is None:
            yield from _in_dict(path, value.state, found)
        elif type(value.args) is tuple and items is None and value.state is None:
            yield from ((_join(path, index), item, None) for index, item in enumerate(value.args))


def _in_dict(path: str, items: Pairs, found: Contents) -> Iterator[tuple[str, Any, str | None]]:
    names: set[str] = set()
    for number, (key, value) in enumerate(items.items()):
        # A whole optimizer keeps its states by parameters, which have no names: its `state_dict` counts them.
        name = str(number) if is_tensor(key) else _key(key)
        if (
            name in names
            and len(found.duplicates) < MOST_DUPLICATES
            and not isinstance(value, (int, float, str, type(None)))
        ):
            found.duplicates.append(_join(path, name))
        names.add(name)
        yield _join(path, name), value, None


def is_module(value: Any) -> bool:
    """Whether this is a whole `nn.Module` or one of TorchScript's."""
    return (
        isinstance(value, Thing)
        and type(value.state) is Pairs
        and (value.path.startswith("__torch__.") or value.state.get("_modules") is not None)
    )


def _in_module(path: str, value: Thing, found: Contents) -> Iterator[tuple[str, Any, str | None]]:
    found.modules[path] = value
    scripted = value.path.startswith("__torch__.")
    for key, held in value.state.items():
        name = as_text(key)
        inside = items_of(held) if name in _HELD else None
        if inside is not None:
            for inner, item in inside.items():
                yield _join(path, _key(inner)), item, _HELD[name]
        elif scripted and (is_tensor(held) or is_module(held)):
            yield _join(path, name), held, None


def settings(module: Thing) -> dict[str, Json]:
    """The plain attributes of a whole module, such as `in_features`."""
    return {
        as_text(key): value
        for key, value in module.state.items()
        if isinstance(value, (str, int, float, bool))
        and not as_text(key).startswith("_")
        and key != "training"
    }


def _key(key: Any) -> str:
    if isinstance(key, (str, bytes)):
        return as_text(key)[:MOST_KEY]
    if isinstance(key, tuple):
        return ",".join(_key(part) for part in key[:8] if not isinstance(part, tuple))
    number = numpy_scalar(key) if isinstance(key, Thing) else None
    if number is not None:
        return str(number)
    if isinstance(key, Thing) and type(key.args) is tuple:
        return ",".join(_key(part) for part in key.args[:4] if not isinstance(part, (tuple, Thing)))
    return str(key)[:100] if isinstance(key, (int, float, bool, type(None))) else type(key).__name__


def _join(path: str, key: Any) -> str:
    return f"{path}.{key}" if path else str(key)
