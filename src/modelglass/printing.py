"""What `print` shows of a noun, and what a notebook does: the text, and the page, that its command shows."""

from __future__ import annotations

from collections.abc import Container
from importlib import import_module


class Printed:
    """A noun that prints as text, and has a short `repr` or that of its fields."""

    __slots__ = ()

    def __str__(self) -> str:
        api = import_module("modelglass.api")  # when somebody prints; nouns need nothing else of it
        return str(api.render(self)).rstrip("\n")

    def _repr_mimebundle_(
        self, include: Container[str] | None = None, exclude: Container[str] | None = None
    ) -> dict[str, str]:
        """What Jupyter, VS Code and marimo show of it."""
        cell = import_module("modelglass.api").cell(self)
        return {"text/plain": str(self), "text/html": str(cell)}
