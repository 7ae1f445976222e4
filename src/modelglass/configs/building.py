"""A model from its configuration: by the node that names it, by transformers, or by the user's function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from modelglass.configs.guarding import guarded
from modelglass.configs.importing import located
from modelglass.configs.instantiating import instantiated
from modelglass.configs.interpolation import Key, at, resolved, resolved_if_possible
from modelglass.configs.nodes import is_node, key_of, model_key
from modelglass.configs.process import importing, offline_and_quiet, untouched
from modelglass.configs.proving import check_proven, proven
from modelglass.configs.reading import read
from modelglass.errors import MissingPackageError, TargetError, UsageError
from modelglass.user_code import FORMS, load_named, only_installed, parse_code_name, user_errors

Notes = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Built:
    """A model as its configuration describes it, on the meta device where that is possible.

    `inputs` are those that came with it. `notes` are pairs of a code and a text.
    """

    native: Any
    inputs: Any = None
    notes: Notes = ()


@contextmanager
def built(
    path: Path,
    *,
    builder: Any = None,
    key: str | None = None,
    weightless: bool = True,
    trust: bool = False,
) -> Iterator[Built]:
    """The model of a configuration file. What was imported for it is forgotten afterwards.

    Without `trust`, nothing beside the file is imported, and only what is proven to be a model is built.
    """
    content = read(path)
    if builder is not None:
        with built_by(builder, section(content, key, str(path)), weightless=weightless) as made:
            yield made
        return
    with importing(path) if trust else _kept_in(path):
        yield _by_file(content, path, key, weightless=weightless, trust=trust)


@contextmanager
def _kept_in(path: Path) -> Iterator[None]:
    """As long as a model is there that nobody vouches for, it changes nothing: its run may be what does."""
    with only_installed(path), offline_and_quiet(), guarded():
        yield


def _by_file(content: Any, path: Path, key: str | None, *, weightless: bool, trust: bool) -> Built:
    """The model that the file itself describes."""
    place: Key = () if key is None else key_of(content, key, str(path))
    if is_huggingface(at(content, place), path if key is None else None):
        from modelglass.configs import huggingface

        config = resolved(content, place, trust=trust)
        with untouched():
            native, notes = huggingface.built(config, str(path), weightless=weightless)
        return Built(native, notes=notes)
    find = located if trust else proven
    found = model_key(content, key, str(path), find, trust=trust)
    node = resolved(content, found, trust=trust)
    if not trust:
        check_proven(node, found, str(path))
    native, notes = _made(lambda: instantiated(deepcopy(node), found, find), weightless)
    return Built(native, notes=notes)


def section(content: dict[str, Any], key: str | None, file: str) -> Any:
    """The part of a configuration that a key names, all of it without one; references are resolved."""
    return resolved_if_possible(content, () if key is None else key_of(content, key, file))


@contextmanager
def built_by(builder: Any, section: Any, *, weightless: bool = True) -> Iterator[Built]:
    """What the user's function makes of a section of a configuration: a model, or a model and its inputs.

    It is called again where it needs values that a model without weights does not have.
    """
    if not isinstance(builder, str):
        yield _by_function(builder, section, weightless)
        return
    if parse_code_name(builder) is None:
        raise UsageError(f"the builder {builder!r} does not name a function", hint=f"write {FORMS}")
    with load_named(builder) as function:
        yield _by_function(function, section, weightless)


def is_huggingface(section: Any, file: Path | None) -> bool:
    """Whether this is a configuration of transformers. A whole file must be JSON, as theirs are."""
    is_other_file = file is not None and file.suffix.lower() != ".json"
    if not isinstance(section, dict) or is_node(section) or is_other_file:
        return False
    if isinstance(section.get("model_type"), str):
        return True
    names = section.get("architectures")
    return isinstance(names, list) and bool(names) and isinstance(names[0], str)


def _by_function(function: Any, section: Any, weightless: bool) -> Built:
    name = getattr(function, "__qualname__", type(function).__name__)
    if not callable(function):
        raise TargetError(f"the builder {name!r} cannot be called", hint="name a function of a configuration")

    def call() -> Any:
        with user_errors(f"the builder {name!r}"):
            return function(deepcopy(section))

    found, notes = _made(call, weightless)
    if found is None:
        raise TargetError(
            f"the builder {name!r} returned nothing", hint="return a model, or a model and its inputs"
        )
    pair = isinstance(found, tuple) and len(found) == 2
    return Built(found[0], found[1], notes) if pair else Built(found, notes=notes)


def _made(make: Callable[[], Any], weightless: bool) -> tuple[Any, Notes]:
    """What a function makes, without weights where that can be; and a note where it cannot."""
    try:
        from modelglass.configs.weightless import noted, without_weights
    except ModuleNotFoundError as cause:
        if cause.name != "torch":
            raise
        raise MissingPackageError("torch", wanted_by="building a model", extra="torch") from cause
    with untouched():
        return noted(*without_weights(make, expected=(TargetError,))) if weightless else (make(), ())
