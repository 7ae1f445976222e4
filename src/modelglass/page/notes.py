"""Notes as sentences, for any output."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from modelglass.report import Note


SHOWN_PLACES = 4  # of those a note is about


def note_text(note: Note) -> str:
    """What the note says, and of the places it is about the first few."""
    places = [f"{path or '(root)'} {detail}".rstrip() for path, detail in note.places[:SHOWN_PLACES]]
    if len(note.where) > SHOWN_PLACES:
        places.append(f"and {len(note.where) - SHOWN_PLACES} more")
    return f"{note.text} ({', '.join(places)})" if places else note.text
