"""One adapter per framework, each imported only when a model of that framework arrives."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

# Package name = file name here.
FRAMEWORKS = ("torch",)


def framework_of(native: object) -> str | None:
    """Name the framework without importing it: whoever made `native` already has."""
    packages = {cls.__module__.partition(".")[0] for cls in type(native).__mro__}
    return next((name for name in FRAMEWORKS if name in packages), None)


def adapter(framework: str) -> ModuleType:
    """The adapter's module: it offers `accepts`, `observe` and `values` of a model, `reproducer` of an op."""
    return import_module(f"modelglass.frameworks.{framework}")
