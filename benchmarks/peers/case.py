"""What a case is: a model with inputs, or a file, and what is known of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from models import ids
from peers.builders import Given, given


@dataclass(frozen=True, kw_only=True)
class Case:
    """One model with inputs, or one file, and what is known of it.

    `asked` has the right answer to each question; a pair is the least and the most. `by_hand` shows the
    arithmetic. `otherwise` has answers that are right too, where one counts by another rule, and says which.
    """

    id: str
    what: str
    build: Callable[[], nn.Module] | None = None
    inputs: Callable[[], Given] = Given
    file: Callable[[Path], Path] | None = None
    asked: Mapping[str, Any]
    by_hand: Mapping[str, str] = field(default_factory=dict)
    otherwise: Mapping[int, str] = field(default_factory=dict)

    @property
    def group(self) -> str:
        return self.id[0]


def case_of(
    id: str,
    what: str,
    build: Callable[[], nn.Module],
    inputs: Callable[[], Given],
    by_hand: str | None = None,
    *,
    otherwise: Mapping[int, str] | None = None,
    **asked: Any,
) -> Case:
    """A case of a model; `by_hand` is the arithmetic of what is asked first."""
    known = {name.replace("_", " "): value for name, value in asked.items()}
    hand = {} if by_hand is None else {next(iter(known)): by_hand}
    return Case(
        id=id, what=what, build=build, inputs=inputs, asked=known, by_hand=hand, otherwise=otherwise or {}
    )


def macs_case(
    id: str,
    what: str,
    build: Callable[[], nn.Module],
    inputs: Callable[[], Given],
    macs: int,
    by_hand: str | None = None,
    *,
    otherwise: Mapping[int, str] | None = None,
    **asked: Any,
) -> Case:
    """A case that is asked for MACs before all else."""
    return case_of(id, what, build, inputs, by_hand, otherwise=otherwise, macs=macs, **asked)


def case_of_file(id: str, what: str, file: Callable[[Path], Path], **asked: Any) -> Case:
    """A case of a file, which is built in an empty folder."""
    return Case(
        id=id, what=what, file=file, asked={name.replace("_", " "): value for name, value in asked.items()}
    )


def sixteen_tokens() -> Given:
    return given(ids())
