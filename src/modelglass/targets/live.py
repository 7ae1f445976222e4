"""A model that the user holds: a module of torch or MLX, an engine of vLLM."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from modelglass.options import BuildOptions
from modelglass.targets.kind import RUN, OpenModel, Runnable


@dataclass(frozen=True)
class Live(Runnable):
    """An object of a framework, which is left as it is."""

    native: Any
    build: BuildOptions

    kind = "live"
    takes = RUN | {"stats", "framework"}
    because = "it is built already"

    def __str__(self) -> str:
        return f"a live {type(self.native).__name__}"

    def open(self, *, weightless: bool) -> AbstractContextManager[OpenModel]:
        return nullcontext(OpenModel(native=self.native, is_user_object=True))


resolve = Live
