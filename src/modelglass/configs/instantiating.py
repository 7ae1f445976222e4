"""Nodes called as Hydra's `instantiate` and Lightning's command line would call them."""

from __future__ import annotations

from difflib import get_close_matches
from functools import partial
from inspect import signature
from typing import Any

from modelglass.configs.interpolation import Key, named
from modelglass.configs.nodes import HYDRA, Find, is_node, target_of
from modelglass.errors import TargetError
from modelglass.user_code import user_errors

_OF_HYDRA = frozenset({HYDRA, "_args_", "_partial_", "_recursive_", "_convert_"})


class Section(dict[str, Any]):
    """Names and values that were no node, with attributes as those that a model gets from Hydra have."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError as cause:
            raise AttributeError(f"the configuration has no {name!r} here") from cause


def instantiated(node: Any, key: Key, find: Find) -> Any:
    """What a node makes, with every node inside of it made first."""
    return _of_hydra(node, key, find) if HYDRA in node else _of_lightning(node, key, find)


def _of_hydra(node: dict[str, Any], key: Key, find: Find) -> Any:
    deep = node.get("_recursive_", True)
    sections = node.get("_convert_", "none") in ("none", None)
    target = find(target_of(node), named(key))
    given = {name: value for name, value in node.items() if name not in _OF_HYDRA}
    args = node.get("_args_") or []
    if not isinstance(args, list):
        raise TargetError(
            f"{named((*key, '_args_'))} is not a list", hint="list the positional arguments there"
        )
    if deep:
        given = {name: _made(value, (*key, name), sections, find) for name, value in given.items()}
        args = [_made(value, (*key, "_args_", index), sections, find) for index, value in enumerate(args)]
    elif sections:
        given = {name: _section(value, (*key, name)) for name, value in given.items()}
    if node.get("_partial_"):
        return partial(target, *args, **given)
    return _called(target, tuple(args), given, key)


def _of_lightning(node: dict[str, Any], key: Key, find: Find) -> Any:
    target = find(target_of(node), named(key))
    given: dict[str, Any] = {}
    for section in ("init_args", "dict_kwargs"):
        settings = node.get(section) or {}
        if not isinstance(settings, dict):
            raise TargetError(f"{named((*key, section))} has no names", hint="write name: value there")
        for name, value in settings.items():
            given[name] = _made(value, (*key, section, name), False, find)
    return _called(target, (), given, key)


def _made(value: Any, key: Key, sections: bool, find: Find) -> Any:
    """A value as an argument: nodes inside of it are called."""
    if is_node(value):
        return instantiated(value, key, find)
    if isinstance(value, list):
        return [_made(item, (*key, index), sections, find) for index, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    if sections and not _holds_node(value):
        return _section(value, key)
    return {name: _made(item, (*key, name), sections, find) for name, item in value.items()}


def _holds_node(value: Any) -> bool:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return is_node(value) or any(map(_holds_node, inside))


def _section(value: Any, key: Key) -> Any:
    """A section as Hydra gives it to a model: an OmegaConf object where that is installed."""
    if not isinstance(value, dict):
        return value
    try:
        from omegaconf import OmegaConf
    except ModuleNotFoundError:
        return Section({name: _section(item, (*key, name)) for name, item in value.items()})
    with user_errors(f"{named(key)}, as a section of OmegaConf,"):  # it takes fewer names than YAML
        return OmegaConf.create(value)


def _called(target: Any, args: tuple[Any, ...], given: dict[str, Any], key: Key) -> Any:
    where, name = named(key) or "the file", getattr(target, "__qualname__", str(target))
    try:
        signature(target).bind(*args, **given)
    except TypeError as cause:
        raise TargetError(
            f"{where}: {name} cannot be called with these arguments: {cause}",
            hint=_nearest(target, given),
        ) from cause
    except ValueError:  # a signature written in C
        pass
    with user_errors(f"building {where}, a {name},"):
        return target(*args, **given)


def _nearest(target: Any, given: dict[str, Any]) -> str:
    parameters = [each for each in signature(target).parameters if each not in ("self", "args", "kwargs")]
    wrong = [str(each) for each in given if each not in parameters]
    close = get_close_matches(wrong[0], parameters, n=1, cutoff=0.5) if wrong else []
    guess = f"did you mean {close[0]} instead of {wrong[0]}? " if close else ""
    return f"{guess}it takes {', '.join(parameters)}" if parameters else "it takes no arguments"
