"""A page for a pull request: GitHub's Markdown, nothing that needs a script."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from modelglass.page import (
    UNBROKEN,
    Diagram,
    Facts,
    Figures,
    Heading,
    Items,
    Listing,
    Notes,
    Page,
    Table,
    Text,
    Timeline,
    text_of,
)
from modelglass.page.notes import note_text
from modelglass.renderers._escape import markdown

_CHART_WIDTH = 100  # cells


def render(page: Page) -> str:
    """The blocks of the page, one below the other."""
    escape = markdown if page.longest is None else partial(_shortened, longest=page.longest)
    parts = [part for block in page.blocks for part in _WRITERS[type(block)](block, escape)]
    return "\n\n".join(parts) + "\n"


Escape = Callable[[str], str]


def _shortened(text: str, longest: int) -> str:
    return markdown(text if len(text) <= longest else f"{text[: longest - 1]}…")


def _heading(block: Heading, escape: Escape) -> Iterator[str]:
    yield f"{'#' * block.level} {escape(block.text)}"
    yield from map(escape, filter(None, (block.about, *(text for text, _ in block.below))))


def _figures(block: Figures, escape: Escape) -> Iterator[str]:
    return _facts(Facts([(each.label, f"{each.text} ({each.known})") for each in block.rows]), escape)


def _facts(block: Facts, escape: Escape) -> Iterator[str]:
    rows = (map(escape, (label.strip(), text.replace(UNBROKEN, " "))) for label, text in block.rows)
    yield "\n".join([_line([block.head, ""]), _line(["---", "---"]), *map(_line, rows)])


def _text(block: Text, escape: Escape) -> Iterator[str]:
    lines = map(escape, block.lines)
    if block.quoted:
        yield "\n".join(f"> {text}  " for text in lines)
    elif block.together:
        yield "\n".join(f"{text}  " for text in lines)
    else:
        yield from lines


def _table(block: Table, escape: Escape) -> Iterator[str]:
    if block.title:
        yield f"**{escape(block.title)}**"
    places = [i for i, column in enumerate(block.columns) if column.from_width <= block.document_width]
    columns = [block.columns[place] for place in places]
    lines = [_line(column.head for column in columns)]
    lines.append(_line("---:" if column.number else "---" for column in columns))
    # Browsers make one of several spaces, unless they are of the kind that does not break.
    rows = [
        [escape(text_of(row[place])).replace("  ", UNBROKEN * 2) for place in places] for row in block.rows
    ]
    names = [place for place, column in enumerate(columns) if column.name == "name"]
    for row, guides in zip(rows, block.guides if names else (), strict=False):
        row[names[0]] = "&emsp;" * len(guides) + row[names[0]]
    yield "\n".join([*lines, *map(_line, rows)])
    if block.more:
        yield block.more


def _listing(block: Listing, escape: Escape) -> Iterator[str]:
    return _table(block.table, escape)


def _items(block: Items, escape: Escape) -> Iterator[str]:
    yield "\n".join(f"- {escape(name)}: {escape(about)}" for name, about in block.items)


def _notes(block: Notes, escape: Escape) -> Iterator[str]:
    yield "\n".join(f"- **{note.code}**: {escape(note_text(note))}" for note in block.notes)


def _timeline(block: Timeline, escape: Escape) -> Iterator[str]:
    from modelglass.renderers import _sparkline
    from modelglass.renderers._terminal import painter

    yield f"**{escape(block.title)}**"
    yield _fenced(_sparkline.timeline(block.memory, _CHART_WIDTH, painter(False)), "text")


def _diagram(block: Diagram, escape: Escape) -> Iterator[str]:
    from modelglass.page.sections.dataflow import nodes
    from modelglass.renderers.flow import mermaid

    yield _fenced(mermaid.render(block.flow).rstrip("\n"), "mermaid")
    yield from _table(nodes(block.flow), escape)


def _fenced(text: str, language: str) -> str:
    """The text as a block of code, between more marks than there are in it."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}{language}\n{text}\n{fence}"


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


_WRITERS: dict[type, Callable[[Any, Escape], Iterator[str]]] = {
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
