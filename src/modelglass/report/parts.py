"""What a training checkpoint holds beside the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from modelglass.report.model import Json, Tensor

PartKind: TypeAlias = Literal[
    "model",
    "copy",
    "optimizer",
    "scheduler",
    "progress",
    "loss",
    "hyper-parameters",
    "normalisation",
    "training",
    "other",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPart:
    """One thing that a training checkpoint holds, under the key where it was found.

    `value` is what can be shown of plain data; `tensors` are those of anything but the model, whose tensors
    are the report's. Of an optimizer, `matched` says which parameter each of its states belongs to.
    """

    kind: PartKind
    key: str
    value: Json = None
    tensors: tuple[Tensor, ...] = ()
    type: str | None = None  # "Adam": by the names of what it keeps for each parameter
    matched: Mapping[str, str] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes or 0 for tensor in self.tensors)
