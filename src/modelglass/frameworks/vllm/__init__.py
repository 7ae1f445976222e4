"""vLLM: engines that serve a model, and the modules they are made of.

vLLM loads `plugin` of this package in each of its processes, and `building` starts a process of its own for
what it wants to know. Neither needs torch or vLLM here, so both are loaded only with the names that do.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = [
    "accepts",
    "folded",
    "in_training",
    "observe",
    "reproducer",
    "seeded",
    "sizes",
    "unsaved",
    "untouched_process",
    "values",
    "varied",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.session"), name)
