"""Stand-ins for packages that only read images and sound, where they are missing or cannot be imported.

vLLM imports them along with its models that see or hear, and building such a model needs neither.
Only for a process that is thrown away afterwards: the stand-ins stay.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_PACKAGES = ("torchvision", "torchaudio")


def replace_missing_packages() -> None:
    """Let the packages be imported that are not there; what they hold stands for nothing."""
    from vllm.model_executor.models import registry

    missing = frozenset(name for name in _PACKAGES if not _can_be_imported(name))
    if not missing:
        return
    sys.meta_path.insert(0, _Finder(missing))
    for function in vars(registry).values():  # that remember a model whose import failed
        if callable(getattr(function, "cache_clear", None)):
            function.cache_clear()


def _can_be_imported(name: str) -> bool:
    try:
        import_module(name)
    except Exception:
        for loaded in [each for each in sys.modules if each.partition(".")[0] == name]:
            del sys.modules[loaded]  # half of it
        return False
    return True


class _Finder(MetaPathFinder, Loader):
    """Finds every module of some packages, and in each of them whatever it is asked for."""

    def __init__(self, packages: frozenset[str]) -> None:
        self._packages = packages

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in self._packages:
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Nothing(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        return None


class _Nothing(ModuleType):
    """A module that has a class of any name."""

    __version__ = "0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = _Anything(name, (), {"__module__": self.__name__})
        setattr(self, name, found)
        return found


class _Anything(type):
    """A class with any attribute, each a class of that kind."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything(name, (), {"__module__": cls.__module__})
