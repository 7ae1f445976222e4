"""What `print` shows of a noun: the text that its command shows."""

from __future__ import annotations


class Printed:
    """A noun that prints as text, and has a short `repr` or that of its fields."""

    __slots__ = ()

    def __str__(self) -> str:
        from modelglass.api import render

        return render(self).rstrip("\n")  # type: ignore[arg-type]
