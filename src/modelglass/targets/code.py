"""Code that returns a model: a function, or its name as `file.py::function` or `package.module:function`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from modelglass.options import BuildOptions
from modelglass.targets.kind import RUN, OpenModel, Runnable
from modelglass.user_code import call_factory, call_named


@dataclass(frozen=True)
class Code(Runnable):
    """A function without arguments, or its name."""

    factory: Any

    kind = "code"
    takes = RUN | {"stats", "framework"}
    because = "code builds the model by itself"

    def __str__(self) -> str:
        name = self.factory if isinstance(self.factory, str) else getattr(self.factory, "__name__", "code")
        return repr(name)

    @contextmanager
    def open(self, *, weightless: bool) -> Iterator[OpenModel]:
        with result_of(self.factory) as native:
            yield OpenModel(native=native)


@contextmanager
def result_of(factory: Any) -> Iterator[Any]:
    """What a function returns, or one that is named; what it imported is forgotten afterwards."""
    from modelglass.configs.guarding import lifted

    with lifted():  # the user named it, whatever a configuration may do
        if not isinstance(factory, str):
            yield call_factory(factory)
            return
        with call_named(factory) as found:
            yield found


def resolve(target: Any, build: BuildOptions) -> Code:
    return Code(os.fspath(target) if isinstance(target, os.PathLike) else target)
