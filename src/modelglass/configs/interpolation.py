"""Values that refer to others, as OmegaConf writes them: `${a.b}`, `${oc.env:HOME}`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from modelglass.errors import TargetError, UntrustedError

Key = tuple[str | int, ...]  # the way to a value, from the top of the file
MOST_STEPS = 5_000_000  # calls of functions
MOST_TEXT = 1_000_000  # characters
_SECRETS = "oc.env"
MISSING = "???"  # what stands for a value that has to be given


def at(content: Any, key: Key) -> Any:
    """The value at a key that is there."""
    for part in key:
        content = content[part]
    return content


def named(key: Key) -> str:
    """A key as people write it: `model.layers.0`."""
    return ".".join(map(str, key))


def resolved(content: dict[str, Any], key: Key, *, trust: bool) -> Any:
    """The value at a key with every reference in it replaced by what it refers to, anywhere in the file."""
    value = at(content, key)
    first = next(((place, text) for place, text in _texts(value, key) if "${" in text), None)
    if first is not None:
        value = _by_omegaconf(content, key, *first, trust=trust)
    for place, text in _texts(value, key):
        if "${" in text and not trust:  # it was escaped, and would be followed by whoever gets it
            raise UntrustedError(
                f"{named(place)} is {text!r}, in which the model might find a function to call",
                hint="if you trust the file: --trust (trust=True in Python); or write the value out",
            )
        if text == MISSING:
            raise TargetError(
                f"{named(place)} is ???, a value that must be given",
                hint="write the value into the file",
            )
    return value


@contextmanager
def _own_functions() -> Iterator[None]:
    """References find only functions that OmegaConf has itself: a process may have registered `eval`.

    They do not find the environment, whose values would be shown.
    """
    from omegaconf.basecontainer import BaseContainer

    registered = BaseContainer._resolvers
    own = {name: each for name, each in registered.items() if name.startswith("oc.") and name != _SECRETS}
    BaseContainer._resolvers = own
    try:
        with _few_steps():
            yield
    finally:
        BaseContainer._resolvers = registered


@contextmanager
def _few_steps() -> Iterator[None]:
    """Inside, at most MOST_STEPS functions are called, and none returns a text longer than MOST_TEXT.

    A few references to references are billions of values.
    """
    steps = 0

    def count(frame: Any, event: str, arg: Any) -> None:
        nonlocal steps
        steps += event == "call"
        if steps > MOST_STEPS or (type(arg) is str and len(arg) > MOST_TEXT):
            raise _TooManyStepsError

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield
    except (_TooManyStepsError, RecursionError) as cause:
        raise UntrustedError(
            "its references to other values take too long to follow",
            hint="if you trust the file: --trust (trust=True in Python); or write the values out",
        ) from cause
    finally:
        sys.setprofile(before if callable(before) else None)  # a profiler in C cannot be put back


class _TooManyStepsError(BaseException):
    """Not an error of OmegaConf's, which would go on."""


def resolved_if_possible(content: dict[str, Any], key: Key) -> Any:
    """The same, or the value as it is where something in it refers to what only another program knows."""
    try:
        return resolved(content, key, trust=True)
    except TargetError:
        return at(content, key)


def _by_omegaconf(content: dict[str, Any], key: Key, place: Key, text: str, *, trust: bool) -> Any:
    try:
        from omegaconf import OmegaConf
        from omegaconf.errors import OmegaConfBaseException
    except ModuleNotFoundError as cause:
        raise TargetError(
            f"{named(place)} refers to another value, {text!r}, which needs the package 'omegaconf', "
            "which is not installed",
            hint="pip install omegaconf, or write the value out",
        ) from cause
    try:
        with nullcontext() if trust else _own_functions():
            node = OmegaConf.create(content)
            for part in key:
                node = node[part]
            return OmegaConf.to_container(node, resolve=True) if OmegaConf.is_config(node) else node
    except (OmegaConfBaseException, ValueError) as cause:
        raise TargetError(
            f"{named(place)} cannot be resolved: {str(cause).strip().splitlines()[0]}",
            hint="give it a value that the file itself has",
        ) from cause


def _texts(value: Any, key: Key) -> Iterator[tuple[Key, str]]:
    """Every text below a value, each with its key."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _texts(item, (*key, name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _texts(item, (*key, index))
