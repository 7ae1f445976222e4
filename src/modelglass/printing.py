"""What `print` shows of a noun: the text that its command shows."""


class Printed:
    """A noun that prints as text, and has a short `repr` or that of its fields."""

    __slots__ = ()

    def __str__(self) -> str:
        from modelglass.api import render  # when somebody prints; nouns need nothing else of it

        return render(self).rstrip("\n")  # type: ignore[arg-type]  # nouns alone print
