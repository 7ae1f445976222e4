"""What an explanation of a changed tensor gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from modelglass.analyses.diff.change import Change
    from modelglass.report.model import Json


class Explained(NamedTuple):
    """A kind of operation, its figures, and the change that it leaves to be explained."""

    kind: str
    figures: Mapping[str, Json]
    confidence: float = 1.0
    exact: bool = False
    rest: Change | None = None
