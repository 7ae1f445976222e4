"""Code of others, which may raise anything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class Foreign:
    """What code of others raised, if it did."""

    error: Exception | SystemExit | None = None

    @property
    def text(self) -> str:
        """The error as notes quote it."""
        return "" if self.error is None else f"{type(self.error).__name__}: {self.error}"


@contextmanager
def foreign_errors() -> Iterator[Foreign]:
    """Whatever the block raises is kept, to be looked at afterwards."""
    found = Foreign()
    try:
        yield found
    except (Exception, SystemExit) as error:
        found.error = error
