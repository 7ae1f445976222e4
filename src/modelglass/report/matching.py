"""Which tensors of a checkpoint belong to which of a model, and which belong to none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from modelglass.report.model import Shape

Side: TypeAlias = Literal["checkpoint", "model"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A tensor that both have and that is not the same in both: what the model has, and what was found."""

    name: str  # the model's
    stored: str  # the checkpoint's name for it
    shape: Shape | None
    stored_shape: Shape | None
    dtype: str
    stored_dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Matching:
    """The tensors of a checkpoint beside those that a model would load.

    `prefix` is what the names of one `side` begin with and those of the other do not. A tensor is missing
    when none of the names of its memory is in the checkpoint; `tied` are names that are absent while another
    name of the same memory is there. What is `retyped` has the right shape: loading converts it.
    """

    matched: int  # tensors of the model that are there, in the right shape
    wanted: int  # tensors that the model would load, each memory once
    prefix: str = ""
    side: Side | None = None
    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()  # as the checkpoint has them
    reshaped: tuple[Difference, ...] = ()
    retyped: tuple[Difference, ...] = ()
    tied: tuple[str, ...] = ()
    library: str | None = None  # that stores the model under other names than its own, which are those here

    @property
    def complete(self) -> bool:
        """Whether everything is there and nothing else is."""
        return not (self.missing or self.unexpected or self.reshaped)
