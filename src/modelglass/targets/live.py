"""A model that the user holds: a module of torch or MLX, an engine of vLLM."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from modelglass.options import BuildOptions
from modelglass.targets.kind import RUN, OpenModel, Runnable


@dataclass(frozen=True)
class Live(Runnable):
    """An object of a framework, which is left as it is."""

    native: Any

    kind = "live"
    takes = RUN | {"stats", "framework"}
    because = "it is built already"

    def __str__(self) -> str:
        return f"a live {type(self.native).__name__}"

    @contextmanager
    def open(self, *, weightless: bool) -> Iterator[OpenModel]:
        yield OpenModel(native=self.native, is_user_object=True)


def resolve(target: Any, build: BuildOptions) -> Live:
    return Live(target)
