"""What texts for a terminal share: colours, tables that fit, lines that wrap."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from modelglass.page.notes import note_text
from modelglass.renderers._escape import cell_width, fitted, printable

if TYPE_CHECKING:
    from modelglass.report import Note

GAP = 2
DIM, BOLD, CYAN, RED, YELLOW = "2", "1", "36", "31", "33"
_NOTE_STYLE = {"info": DIM, "warning": YELLOW, "error": RED}

Paint = Callable[[str, str | None], str]
Style = Callable[[str], str | None]  # a column's style


def painter(color: bool) -> Paint:
    """Paints text in a style, or leaves it as it is."""

    def paint(text: str, style: str | None) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if color and style and text.strip() else text

    return paint


class Table:
    """Columns of texts, some of which may be cut to make a line fit: `flexible` gives their least width."""

    def __init__(
        self,
        columns: Sequence[str],
        heads: Sequence[str],
        rows: Sequence[Sequence[str]],
        *,
        numbers: Collection[str],
        flexible: Mapping[str, int],
    ) -> None:
        self._columns, self._heads, self._rows = columns, heads, rows
        self._numbers, self._flexible = numbers, flexible
        self._widths = [max(map(cell_width, column)) for column in zip(heads, *rows, strict=True)]

    def width(self, *, at_least: Collection[str] = ()) -> int:
        """What a line takes uncut, except for the columns that are asked for their least width."""
        return _line_width(
            min(width, self._flexible[name]) if name in at_least else width
            for name, width in zip(self._columns, self._widths, strict=True)
        )

    def text(self, width: int, styles: Sequence[Style], paint: Paint) -> str:
        """The table between rules, its lines at most `width` cells long if that can be."""
        widths = self._cut(width)
        rule = paint("─" * _line_width(widths), DIM)
        lines = [self._line(self._heads, widths, lambda name: BOLD, paint), rule]
        for texts, style in zip(self._rows, styles, strict=True):
            lines.append(self._line(texts, widths, style, paint))
        return "\n".join([*lines, rule])

    def _cut(self, width: int) -> list[int]:
        """The widths with flexible columns cut until the line fits, always the one with most to spare."""
        widths = list(self._widths)
        for squeeze in (1, 2, 4):  # comfortable at first, then as far as it takes
            floors = {
                i: self._flexible[name] // squeeze
                for i, name in enumerate(self._columns)
                if name in self._flexible
            }
            while floors and (excess := _line_width(widths) - width) > 0:
                spare, widest = max((widths[i] - floor, i) for i, floor in floors.items())
                if spare <= 0:
                    break
                widths[widest] -= min(excess, max(1, spare // 4))
        return widths

    def _line(self, texts: Sequence[str], widths: Sequence[int], style: Style, paint: Paint) -> str:
        parts = []
        for name, text, width in zip(self._columns, texts, widths, strict=True):
            shown = fitted(text, width)
            padding = " " * (width - cell_width(shown))
            painted = paint(shown, style(name))
            parts.append(padding + painted if name in self._numbers else painted + padding)
        return (" " * GAP).join(parts).rstrip()


def _line_width(widths: Iterable[int]) -> int:
    each = list(widths)
    return sum(each) + GAP * (len(each) - 1)


def note_lines(notes: Iterable[Note], width: int, paint: Paint) -> str:
    """Each note with its code and where it applies."""
    return "\n".join(_note(note, width, paint) for note in notes)


def _note(note: Note, width: int, paint: Paint) -> str:
    text = f"{note.severity} [{note.code}] {note_text(note)}"
    return paint("\n".join(wrapped(printable(text), width)), _NOTE_STYLE[note.severity])


def wrapped(text: str, width: int) -> list[str]:
    """The text in lines of `width` cells, the second and later ones indented."""
    lines, line = [], ""
    for word in text.split(" "):
        candidate = f"{line} {word}" if line.strip() else line + (word or " ")
        if line.strip() and cell_width(candidate) > width:
            lines.append(line)
            candidate = "    " + word
        line = candidate
    return [*lines, line]


def broken(text: str, width: int) -> list[str]:
    """The text in lines of `width` cells as above; a word too long for one is broken."""
    lines, current, indent = [], "", "    "
    for word in text.split(" "):
        candidate = f"{current} {word}" if current.strip() else current + word
        if current.strip() and cell_width(candidate) > width:
            lines.append(current)
            candidate = indent + word
        while cell_width(candidate) > width:
            kept = _first_cells(candidate, width)
            lines.append(candidate[:kept])
            candidate = indent + candidate[kept:]
        current = candidate
    return [*lines, current] if current.strip() or not lines else lines


def _first_cells(text: str, width: int) -> int:
    """How many characters of the text fit into that many cells."""
    used = 0
    for index, char in enumerate(text):
        used += cell_width(char)
        if used > width:
            return index
    return len(text)
