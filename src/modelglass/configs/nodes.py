"""Which part of a configuration is the model: a node that names a class, as Hydra or Lightning write it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from difflib import get_close_matches
from typing import Any

from modelglass.configs.interpolation import Key, named, resolved
from modelglass.errors import TargetError

HYDRA, LIGHTNING = "_target_", "class_path"
Find = Callable[[str, str], Any]  # what a dotted name stands for, which the node at that key names
_MOST_LISTED = 8
_HINT = "mark it with _target_ or class_path, or give --builder file.py::function that builds it"


def is_node(value: Any) -> bool:
    """Whether a value names something to be called."""
    return isinstance(value, dict) and any(isinstance(value.get(mark), str) for mark in (HYDRA, LIGHTNING))


def target_of(node: dict[str, Any]) -> str:
    """The dotted name of what a node calls."""
    return str(node.get(HYDRA) or node.get(LIGHTNING))


def nodes_in(value: Any, key: Key) -> Iterator[tuple[Key, dict[str, Any]]]:
    """Every node at or below a key, also where the one above it keeps it for itself."""
    if is_node(value):
        yield key, value
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in items:
        yield from nodes_in(item, (*key, name))


def model_key(content: dict[str, Any], asked: str | None, file: str, find: Find, *, trust: bool) -> Key:
    """Where the node of the model is: at or below the key that was asked for, or wherever it stands out."""
    top = () if asked is None else key_of(content, asked, file)
    found = list(_outermost(content, top))
    if len(found) > 1:
        found = _of_models(content, _likeliest(found, top), find, trust)
    if len(found) == 1:
        return found[0]
    where = file if asked is None else f"{file}, at {asked}"
    if not found:
        raise TargetError(f"{where}: no part of it names a model", hint=_HINT)
    keys = ", ".join(named(key) for key in found[:_MOST_LISTED])
    more = ", …" if len(found) > _MOST_LISTED else ""
    raise TargetError(
        f"{where}: {len(found)} parts of it could be the model: {keys}{more}",
        hint=f"choose one: --model-key {named(found[0])}",
    )


def key_of(content: Any, asked: str, file: str) -> Key:
    """The key that is written as `a.b`; what is not there is an error that says what is."""
    key: Key = ()
    for part in asked.split("."):
        names: list[Any] = list(content) if isinstance(content, dict) else []
        step: Any = next((name for name in names if str(name) == part), None)
        if isinstance(content, list) and part.isdecimal() and int(part) < len(content):
            step = int(part)
        if step is None:
            raise TargetError(f"{file}: there is no {asked!r}", hint=_nearest(key, part, names, content))
        key, content = (*key, step), content[step]
    return key


def _nearest(key: Key, part: str, names: list[Any], content: Any) -> str:
    where = named(key) or "the file"
    if isinstance(content, list):
        return f"{where} is a list of {len(content)}: numbers from 0 choose one"
    if not names:
        return f"{where} has nothing below it"
    close = get_close_matches(part, list(map(str, names)), n=1, cutoff=0.5)
    guess = f"did you mean {named((*key, close[0]))}? " if close else ""
    return f"{guess}{where} has {', '.join(map(str, names[:_MOST_LISTED]))}"


def _outermost(content: Any, top: Key) -> Iterator[Key]:
    """The keys of nodes that are not inside of another node."""
    value = content
    for part in top:
        value = value[part]
    if is_node(value):
        yield top
        return
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, _ in items:
        yield from _outermost(content, (*top, name))


def _likeliest(found: list[Key], top: Key) -> list[Key]:
    """Those that are called model, if any, the least deep; else those below something called so; else all."""
    below = [key[len(top) :] for key in found]
    called = [key for key, rest in zip(found, below, strict=True) if rest[-1:] == ("model",)]
    if called:
        least = min(map(len, called))
        return [key for key in called if len(key) == least]
    return [key for key, rest in zip(found, below, strict=True) if "model" in rest] or found


def _of_models(content: dict[str, Any], found: list[Key], find: Find, trust: bool) -> list[Key]:
    """Those that name a class of models, or else a function that may return one."""
    if len(found) == 1:
        return found
    classes, functions, trouble = [], [], None
    for key in found:
        try:
            node = resolved(content, key, trust=trust)
            target = find(target_of(node), named(key))
        except TargetError as error:
            trouble = trouble or error
            continue
        if node.get("_partial_"):
            continue
        if not isinstance(target, type):
            functions.append(key)
        elif _is_model(target):
            classes.append(key)
    if not classes and not functions and trouble is not None:
        raise trouble
    return classes or functions


def _is_model(target: type) -> bool:
    import torch

    loss = torch.nn.MSELoss.__mro__[1]  # what all losses are
    return issubclass(target, torch.nn.Module) and not issubclass(target, loss)
