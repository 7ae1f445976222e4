"""A page for a terminal: lines of a width, in colour if that is wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from modelglass.page import (
    UNBROKEN,
    Cell,
    Diagram,
    Facts,
    Figures,
    Heading,
    Items,
    Listing,
    Notes,
    Page,
    RowTone,
    Table,
    Text,
    Timeline,
    Tone,
    text_of,
)
from modelglass.renderers import _terminal
from modelglass.renderers._escape import cell_width, fitted, printable, shortened
from modelglass.renderers._terminal import GAP, Paint, Style, broken, note_lines, painter, wrapped

_STYLES: dict[Tone | None, str | None] = {
    None: None,
    "strong": _terminal.BOLD,
    "quiet": _terminal.DIM,
    "accent": _terminal.CYAN,
    "warning": _terminal.YELLOW,
    "alarm": _terminal.RED,
}
_LEAST = 20  # cells beside labels and other columns
_LONGEST_BAR, _SHORTEST_BAR = 40, 6


class _Line(NamedTuple):
    """How lines are written: how long, in which colours, and how much of a hostile text."""

    width: int
    paint: Paint
    longest: int | None

    def text(self, text: str, tone: Tone | None, *, break_words: bool = False) -> str:
        """The text in lines, in a tone."""
        shown = printable(text[: self.longest and self.longest + 1])
        if self.longest is not None:
            shown = fitted(shown, self.longest)
        in_lines = broken if break_words or self.longest else wrapped
        lines = in_lines(shown, self.width)
        return "\n".join(self.paint(line, _STYLES[tone]) for line in lines)

    def cut(self, text: str, tone: Tone | None) -> str:
        """The text on one line."""
        longest = len(text) if self.longest is None else self.longest + self.width
        return self.paint(fitted(printable(text[:longest]), self.width), _STYLES[tone])


def render(page: Page, *, width: int = 100, color: bool = False) -> str:
    """The blocks of the page in lines of at most `width` cells, if that can be."""
    line = _Line(width, painter(color), page.longest)
    ordered = sorted(page.blocks, key=lambda block: isinstance(block, Text) and block.at_end)
    parts = [part for block in ordered for part in _WRITERS[type(block)](block, line)]
    return "\n\n".join(parts) + "\n"


def _heading(block: Heading, line: _Line) -> Iterator[str]:
    if block.of_document:
        return
    text = f"{block.text}: {block.about}" if block.about else block.text
    title = line.cut(text, block.tone) if block.cut else line.text(text, block.tone)
    yield "\n".join([title, *(line.text(text, tone) for text, tone in block.below)])


def _figures(block: Figures, line: _Line) -> Iterator[str]:
    return _facts(Facts([(each.label, f"{each.text} ({each.known})") for each in block.rows]), line)


def _facts(block: Facts, line: _Line) -> Iterator[str]:
    label_width = max(cell_width(label) for label, _ in block.rows) + GAP
    room = max(_LEAST, line.width - label_width)
    lines = []
    for label, text in block.rows:
        fitting = " ".join(shortened(word, room) for word in printable(text).split(" "))
        parts = [part.strip().replace(UNBROKEN, " ") for part in wrapped(fitting, room)]
        if block.most is not None and len(parts) > block.most:
            parts = [*parts[: block.most - 1], fitted(f"{parts[block.most - 1]} …", room)]
        for name, part in zip([label, *[""] * len(parts)], parts, strict=False):
            lines.append(line.paint(name.ljust(label_width), _terminal.DIM) + part)
    yield "\n".join(lines)


def _text(block: Text, line: _Line) -> Iterator[str]:
    write = line.cut if block.cut else partial(line.text, break_words=block.broken)
    yield "\n".join(write(text, block.tone) for text in block.lines)


def _listing(block: Listing, line: _Line) -> Iterator[str]:
    tones = block.table.tones
    lines = [line.text(text, tone) for text, tone in zip(block.sentences, tones, strict=True)]  # type: ignore[arg-type]
    yield "\n".join([*lines, *filter(None, [block.table.more])])


def _items(block: Items, line: _Line) -> Iterator[str]:
    lines = []
    for name, about in block.items:
        rest = printable(f": {about}")
        shown = fitted(printable(name[: line.longest]), max(_LEAST, line.width - cell_width(rest)))
        lines.append(fitted(f"{shown}{rest}", line.width))
    yield "\n".join(lines)


def _notes(block: Notes, line: _Line) -> Iterator[str]:
    yield note_lines(block.notes, line.width, line.paint)


def _timeline(block: Timeline, line: _Line) -> Iterator[str]:
    from modelglass.renderers import _sparkline

    yield line.cut(block.title, "strong")
    yield _sparkline.timeline(block.memory, line.width, line.paint)


def _diagram(block: Diagram, line: _Line) -> Iterator[str]:
    from modelglass.renderers.flow import text

    yield text.diagram(block.flow, line.width, line.paint, block.words)


def _table(block: Table, line: _Line) -> Iterator[str]:
    if block.title:
        yield line.text(block.title, "strong") if line.longest else line.cut(block.title, "strong")
    yield _Grid(block, line.width).text(line)
    if block.more:
        yield block.more


class _Grid:
    """The columns of a table that have room in a line, and the texts in them."""

    def __init__(self, table: Table, width: int) -> None:
        self._table = table
        self._places = [i for i, column in enumerate(table.columns) if column.from_width <= width]
        self._texts = self._printed()
        is_brief = any(isinstance(cell, Cell) and cell.brief for row in table.rows for cell in row)
        if is_brief and self._grid().width(at_least=("config",)) > width:
            self._texts = self._printed(brief=True)
        self._tones: list[RowTone] = list(table.tones) or [None] * len(table.rows)
        self._leave_out(width)
        self._shorten_paths(width)
        self._wrap(width)

    def _printed(self, *, brief: bool = False) -> dict[int, list[str]]:
        """The texts of each column, the names of a tree behind its lines."""
        texts = {
            place: [printable(text_of(row[place], brief=brief)) for row in self._table.rows]
            for place in self._places
        }
        for place in self._places if self._table.guides else ():
            if self._table.columns[place].name == "name":
                named = zip(self._table.guides, texts[place], strict=True)
                texts[place] = [_guide(levels) + name for levels, name in named]
        return texts

    @property
    def _columns(self) -> list[Any]:
        return [self._table.columns[place] for place in self._places]

    def _grid(self, bars: Sequence[str] = ()) -> _terminal.Table:
        columns = self._columns
        names, heads = [each.name for each in columns], [each.head for each in columns]
        texts = [self._texts[place] for place in self._places]
        if bars:
            names, heads, texts = [*names, "bar"], [*heads, ""], [*texts, list(bars)]
        return _terminal.Table(
            names,
            heads,
            list(zip(*texts, strict=True)),
            numbers={each.name for each in columns if each.number},
            flexible={each.name: each.least for each in columns if each.least is not None},
        )

    def _leave_out(self, width: int) -> None:
        """Drop columns that can be spared while the line is too long with the others at their least width."""
        for name in self._table.spare:
            flexible = [each.name for each in self._columns if each.least is not None]
            if self._grid().width(at_least=flexible) <= width:
                break
            self._places = [place for place in self._places if self._table.columns[place].name != name]

    def _shorten_paths(self, width: int) -> None:
        """Leave out the middle of paths: both ends of them matter."""
        place = next((each for each in self._places if self._table.columns[each].cut == "middle"), None)
        excess = 0 if place is None else self._grid().width() - width
        if place is not None and excess > 0:
            room = max(map(cell_width, self._texts[place]), default=0) - excess
            room = max(room, self._table.columns[place].least or 0)
            self._texts[place] = [shortened(text, room) for text in self._texts[place]]

    def _wrap(self, width: int) -> None:
        """Give a row as many lines as its longest text takes, where that is wanted of a column."""
        place = next((each for each in self._places if self._table.columns[each].cut == "wrapped"), None)
        if place is None:
            return
        own = max(map(cell_width, [self._table.columns[place].head, *self._texts[place]]))
        room = max(self._table.columns[place].least or 0, width - self._grid().width() + own)
        parts = [wrapped(text, room) for text in self._texts[place]]
        for each in self._places:
            texts = [[text] for text in self._texts[each]] if each != place else parts
            self._texts[each] = [
                part
                for text, lines in zip(texts, parts, strict=True)
                for part in [*text, *[""] * (len(lines) - len(text))]
            ]
        self._tones = [tone for tone, lines in zip(self._tones, parts, strict=True) for _ in lines]

    def text(self, line: _Line) -> str:
        """The table, with bars where there is room for them."""
        bars = list(self._bars(line.width)) if self._table.weights else []
        own = {column.name: _STYLES[column.tone] for column in self._columns} | {"bar": _terminal.CYAN}
        styles = [_style(tone, own) for tone in self._tones]
        return self._grid(bars).text(line.width, styles, line.paint)

    def _bars(self, width: int) -> Iterator[str]:
        from modelglass.renderers._sparkline import bar

        cells = min(_LONGEST_BAR, width - self._grid().width() - GAP)
        if cells >= _SHORTEST_BAR:
            highest = max(self._table.weights)
            yield from (bar(weight, highest, cells) for weight in self._table.weights)


def _style(tone: RowTone, own: dict[str, str | None]) -> Style:
    if tone is None:
        return own.get
    if isinstance(tone, str):
        return lambda name: _STYLES[tone]
    return {**own, **{name: _STYLES[each] for name, each in tone.items()}}.get


def _guide(levels: Sequence[bool]) -> str:
    """The lines that draw a tree."""
    if not levels:
        return ""
    *above, more = levels
    return "".join("│ " if follows else "  " for follows in above) + ("├ " if more else "└ ")


_WRITERS: dict[type, Callable[[Any, _Line], Iterator[str]]] = {
    Heading: _heading,
    Figures: _figures,
    Facts: _facts,
    Text: _text,
    Table: _table,
    Listing: _listing,
    Items: _items,
    Notes: _notes,
    Timeline: _timeline,
    Diagram: _diagram,
}
