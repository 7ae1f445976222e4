"""What Markdown outputs share: lines of tables, notes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from modelglass.page.notes import note_text
from modelglass.renderers._escape import markdown
from modelglass.report import Note


def line(cells: Iterable[str]) -> str:
    """One line of a table."""
    return "| " + " | ".join(cells) + " |"


def head(columns: Sequence[str], titles: Iterable[str], numbers: Collection[str]) -> Iterator[str]:
    """The title line, and the one below it that says which columns are numbers."""
    yield line(titles)
    yield line("---:" if name in numbers else "---" for name in columns)


def note_items(notes: Iterable[Note]) -> Iterator[str]:
    """The notes as items of a list."""
    return (f"- **{note.code}**: {markdown(note_text(note))}" for note in notes)
