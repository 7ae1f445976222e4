"""How a command's result is shown: its format, its width and colour, and the file that it goes to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from modelglass.cli._command import options_as
from modelglass.cli._exit import tell_of_inputs
from modelglass.cli._options import color_option, format_option, output_option, width_option
from modelglass.cli._output import emit, wants_color, width_of

_DOCUMENTS = ("json", "sarif")  # for programs: they hold everything, in an order of their own
_PAGES = ("text", "markdown", "html")
_WITH_NOTES = (*_DOCUMENTS, *_PAGES)
_NONE: Mapping[str, Any] = {}


@dataclass(frozen=True, kw_only=True)
class View:
    """How a result is shown."""

    width: int | None
    format_: str
    color: str
    output: Path | None

    def options(self, rows: Mapping[str, Any] = _NONE, *, pages: Mapping[str, Any] = _NONE) -> dict[str, Any]:
        """What the renderer of this format is asked for: `rows` of tables, `pages` of a page."""
        chosen = dict(rows) if self.format_ not in _DOCUMENTS else {}
        if self.format_ in _PAGES:
            chosen |= pages
        if self.format_ == "text":
            chosen |= {
                "width": width_of(self.width, self.output),
                "color": wants_color(self.color, self.output),
            }
        return chosen

    @property
    def shows_failure(self) -> bool:
        """Whether somebody reads in it why a run failed."""
        return self.output is None and self.format_ not in ("json", "csv")

    def tell_of_inputs(self, notes: Iterable[Any]) -> None:
        """Say on stderr that inputs were found, or not, where the result has no notes."""
        if self.format_ not in _WITH_NOTES:
            tell_of_inputs(notes)

    def emit(self, text: str) -> None:
        """Write the result where it is wanted."""
        emit(text, self.output)


def view_options(formats: Iterable[str], default: str | None = "text") -> Callable[[Any], Any]:
    """How the result is shown, as the argument `view`. Without a default it follows from the suffix of -o."""
    return options_as(
        "view", View, width_option, format_option(formats, default), color_option, output_option
    )
