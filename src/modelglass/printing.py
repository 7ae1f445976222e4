"""What `print` shows of a noun: the text that its command shows."""

from __future__ import annotations

from importlib import import_module


class Printed:
    """A noun that prints as text, and has a short `repr` or that of its fields."""

    __slots__ = ()

    def __str__(self) -> str:
        api = import_module("modelglass.api")  # when somebody prints; nouns need nothing else of it
        return str(api.render(self)).rstrip("\n")
