"""One adapter per framework, each imported only when a model of that framework arrives."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, cast

from modelglass.options import FRAMEWORKS

if TYPE_CHECKING:
    from modelglass.frameworks.protocol import Adapter


def framework_of(native: object) -> str | None:
    """Name the framework without importing it: whoever made `native` already has."""
    packages = {cls.__module__.partition(".")[0] for cls in type(native).__mro__}
    return next((name for name in FRAMEWORKS if name in packages), None)


def adapter_for(native: object) -> Adapter | None:
    """The adapter that takes this object as a model; None if there is no adapter."""
    packages = set()
    for cls in type(native).__mro__:
        packages.add(cls.__module__.partition(".")[0])
    for framework in FRAMEWORKS:
        if framework in packages:
            found = cast("Adapter", import_module(f"modelglass.frameworks.{framework}.session"))
            return found if found.accepts(native) else None
    return None


def takes_text(native: object) -> bool:
    """Whether the model is given texts: to an engine they are prompts, and not code that makes inputs."""
    return framework_of(native) == "vllm"


def adapter(framework: str) -> Adapter:
    """The adapter of a framework, imported when it is first asked for."""
    return cast("Adapter", import_module(f"modelglass.frameworks.{framework}.session"))


@contextmanager
def seeded() -> Iterator[None]:
    """The same random numbers each time, in every framework that is loaded; then states are as before."""
    with ExitStack() as stack:
        for framework in FRAMEWORKS:
            if framework in sys.modules:
                stack.enter_context(adapter(framework).seeded())
        yield
