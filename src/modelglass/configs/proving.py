"""What a configuration may build although nobody vouches for it: classes of models, and plain values.

A class counts when it is a subclass of a framework's module and comes from an installed package that was
made for that framework. Whatever else a file names is refused, by name.
"""

from __future__ import annotations

import re
import sys
from argparse import Namespace
from collections import OrderedDict
from functools import cache
from importlib import import_module, metadata
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path, PurePath
from types import ModuleType, SimpleNamespace
from typing import Any

from modelglass.configs.interpolation import Key, named
from modelglass.configs.nodes import nodes_in, target_of
from modelglass.errors import TargetError, UntrustedError
from modelglass.user_code import folders_of_packages, user_errors

_FRAMEWORKS = ("torch", "mlx")
# What can do no more than hold what it is given.
_VALUES = (bool, dict, float, frozenset, int, list, set, slice, str, tuple)
_PLAIN: dict[str, Any] = {
    **{f"builtins.{each.__name__}": each for each in _VALUES},
    "argparse.Namespace": Namespace,
    "collections.OrderedDict": OrderedDict,
    "pathlib.Path": Path,
    "pathlib.PurePath": PurePath,
    "types.SimpleNamespace": SimpleNamespace,
}
_BY_PATH = ("hydra.utils.get_class", "hydra.utils.get_object")  # how Hydra writes a class or an element type
_HOLD_CODE = ("_dynamo", "distributed", "export", "fx", "jit", "onnx", "package")  # parts of torch
_LONGEST = 300  # characters of a name
_MOST_REFUSED = 50  # names
_REQUIREMENT = re.compile(r"[\w.-]+")


class _UnprovenError(TargetError):
    """Why something is not called for a file's sake."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, hint="name a model class of an installed package")


def check_proven(node: Any, key: Key, file: str) -> None:
    """That a node, and every node inside of it, calls nothing but what is proven; else say what it would."""
    refused = []
    for place, each in nodes_in(node, key):
        try:
            _found(target_of(each))
        except _UnprovenError as reason:
            refused.append(_refusal_text(named(place) or "the file", target_of(each), reason))
    if refused:
        raise _refusal(file, refused)


def proven(name: str, node: str) -> Any:
    """What a dotted name stands for, where it is a class of models or holds a plain value."""
    try:
        return _found(name)
    except _UnprovenError as reason:
        raise _refusal("the configuration", [_refusal_text(node, name, reason)]) from reason


def _refusal_text(node: str, name: str, reason: _UnprovenError) -> str:
    """Exactly what would be called, unless it is longer than any name."""
    shown = repr(name if len(name) <= _LONGEST else f"{name[:_LONGEST]}…")
    return f"{node[-_LONGEST:]} would call {shown}, {reason.problem}"


def _refusal(file: str, refused: list[str]) -> UntrustedError:
    more = f"; and {len(refused) - _MOST_REFUSED:,} more" if len(refused) > _MOST_REFUSED else ""
    return UntrustedError(
        f"{file} names code that is not trusted: {'; '.join(refused[:_MOST_REFUSED])}{more}",
        hint="only model classes of installed packages are built unasked; if you trust the file and what it "
        "names: --trust (trust=True in Python), or build it yourself: --builder file.py::function",
    )


def _found(name: str) -> Any:
    if name in _PLAIN:
        return _PLAIN[name]
    return _by_path if name in _BY_PATH else _model_class(name)


def _by_path(path: str) -> Any:
    """The element type or class of models that a dotted name stands for."""
    torch = sys.modules.get("torch")
    home, _, member = str(path).rpartition(".")
    dtype = getattr(torch, member, None) if home == "torch" else None
    if torch is not None and isinstance(dtype, torch.dtype):
        return dtype
    return proven(str(path), "path")


def _model_class(name: str) -> type:
    top, *parts = name.split(".")
    if not parts or not all(part.isidentifier() for part in (top, *parts)):
        raise _UnprovenError("which is not a package and a class in it")
    if any(part.startswith("_") for part in (top, *parts)):
        raise _UnprovenError("which is not public in its package")
    _check_package(top)
    found = _member(top, parts)
    if not (isinstance(found, type) and issubclass(found, _modules())):
        raise _UnprovenError("which is not a model class")
    home = found.__module__.partition(".")[0]
    if home != top:
        _check_package(home)
    if any(map(_holds_code, found.__mro__)):
        raise _UnprovenError("which holds code instead of layers")
    return found


def _holds_code(base: type) -> bool:
    home, _, inside = base.__module__.partition(".")
    return home == "torch" and inside.partition(".")[0] in _HOLD_CODE


def _check_package(top: str) -> None:
    """That a package is installed, not just a file somewhere, and was made for a framework of models."""
    if top in sys.stdlib_module_names:
        raise _UnprovenError("of Python's standard library")
    if not _is_made_for_models(top):
        raise _UnprovenError(
            f"and no installed package {top[:_LONGEST]!r} declares that it needs torch or mlx"
        )
    module = sys.modules.get(top)
    spec = getattr(module, "__spec__", None) if module is not None else find_spec(top)
    if spec is None or not all(map(_is_installed, _places(spec))):
        raise _UnprovenError(f"and the {top!r} that would be imported is not an installed package")


def _places(spec: ModuleSpec) -> list[str]:
    """Where a package is: its file, or the folders of one that has none of its own."""
    return [spec.origin] if spec.origin else [*(spec.submodule_search_locations or [""])]


def _is_installed(place: str) -> bool:
    return any(Path(place).is_relative_to(each) for each in folders_of_packages())


@cache
def _is_made_for_models(top: str) -> bool:
    """Whether the package that a module belongs to is a framework, or says that it needs one.

    It is what tells a library of models from everything else that happens to be installed.
    """
    if top in _FRAMEWORKS:
        return True
    needed = (
        requirement
        for package in metadata.packages_distributions().get(top, ())
        for requirement in metadata.requires(package) or ()
    )
    names = (_REQUIREMENT.match(each) for each in needed)
    return any(name is not None and name[0].lower() in _FRAMEWORKS for name in names)


def _member(top: str, parts: list[str]) -> Any:
    """What the package has under that name; nothing that it merely imports from elsewhere is followed."""
    with user_errors(f"importing {top!r}"):
        found: Any = import_module(top)
        for index, part in enumerate(parts):
            if not hasattr(found, part) and isinstance(found, ModuleType) and hasattr(found, "__path__"):
                _import_below(".".join((top, *parts[: index + 1])))
            found = getattr(found, part, None)
            if isinstance(found, ModuleType) and found.__name__.partition(".")[0] != top:
                raise _UnprovenError(f"in which {part!r} is another package")
    if found is None:
        raise _UnprovenError(f"which {top!r} does not have")
    return found


def _import_below(name: str) -> None:
    try:
        import_module(name)
    except ModuleNotFoundError as cause:
        if cause.name != name:
            raise


def _modules() -> tuple[type, ...]:
    """The classes that every model of a loaded framework is a subclass of."""
    loaded = (sys.modules.get(name) for name in ("torch.nn", "mlx.nn"))
    return tuple(framework.Module for framework in loaded if framework is not None)
