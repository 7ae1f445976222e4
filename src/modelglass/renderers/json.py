"""The nouns for programs: versioned JSON whose schemas are published in docs/, which `mg.load` reads back."""

from __future__ import annotations

from modelglass.page.redact import redact_noun
from modelglass.renderers._json import pretty
from modelglass.report.codec import Document, document_of, dumps, format_of


def render(noun: Document, *, indent: int | None = 2, redact: bool = False) -> str:
    """The JSON text of a noun, the same for the same noun. `redact` leaves out what texts may hide."""
    noun = redact_noun(noun) if redact else noun
    format = format_of(noun)
    is_large = format is not None and format.brief
    return dumps(noun, indent=indent) if is_large else pretty(document_of(noun))
