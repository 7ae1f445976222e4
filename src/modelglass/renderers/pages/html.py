"""A page in one file that needs no network: everything is in it, also the document it was made of.

It can be read without a script. Its policy lets run and look like something only what has the hashes of our
own script and style, so that there are no attributes of either; all texts are escaped where they are put in.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from modelglass._version import __version__
from modelglass.page import (
    UNBROKEN,
    Cell,
    Column,
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
    text_of,
    value_of,
)
from modelglass.page.notes import note_text
from modelglass.renderers._escape import html, shortened
from modelglass.report.embedded import MARK, embed, held

_LONGEST = 400  # characters of one text; documents and the text's own tooltip have more
_LONGEST_TOOLTIP = 10_000
_LONGEST_WORD = 48  # in a cell
_MOST_ROWS = 1_000  # of a table, for those who read without a script
_DEEPEST = 12  # levels of a tree that are indented
_WEB = Path(__file__).with_name("web")
_SCRIPTS = ("core", "tables", "grid", "layers", "icicle", "flow", "memory", "weights", "page")
_FIRST_LEVEL = 2  # of headings below the page's own

Escape = Callable[[str], str]


def render(page: Page, document: str, view: Mapping[str, Any] | None = None) -> str:
    """The page as HTML, with the document (its JSON) inside, and what its script draws from."""
    write = partial(_shown, longest=page.longest or _LONGEST)
    style = _style()
    title = next((block.text for block in page.blocks if isinstance(block, Heading)), "modelglass")
    body = "\n".join([*_menu(page.blocks, write), "<main>", *_sections(page.blocks, write), "</main>"])
    script = _script()
    data = "" if view is None else held(json.dumps(view, allow_nan=False), "modelglass-view")
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(style, script)}">\n'
        f'{MARK} content="{html(_format_of(document))}">\n'
        f'<meta name="generator" content="modelglass {html(__version__)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n'
        f"<title>{html(shortened(title, 120))}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        f"{body}\n{_footer()}\n{data}\n{embed(document)}\n<script>{script}</script>\n</body>\n</html>\n"
    )


def _format_of(document: str) -> str:
    """The name of the document's format, which it begins with."""
    return document.partition('"format": "')[2].partition('"')[0]


def _policy(style: str, script: str) -> str:
    """Nothing is loaded from anywhere, and of what is here only our own has an effect."""
    own = f"style-src {_hash(style)}; script-src {_hash(script)}"
    return f"default-src 'none'; {own}; base-uri 'none'; form-action 'none'"


def _hash(content: str) -> str:
    return f"'sha256-{b64encode(sha256(content.encode()).digest()).decode('ascii')}'"


@cache
def _style() -> str:
    from modelglass.renderers.flow._look import STYLE

    indents = "".join(f".d{depth}{{--depth:{depth}}}" for depth in range(1, _DEEPEST + 1))
    return f"{(_WEB / 'page.css').read_text(encoding='utf-8')}{indents}\n{STYLE}"


@cache
def _script() -> str:
    parts = [(_WEB / f"{name}.js").read_text(encoding="utf-8") for name in _SCRIPTS]
    return f"(()=>{{'use strict';\n{''.join(parts)}}})();"


def _menu(blocks: Sequence[Any], write: Escape) -> Iterator[str]:
    """Where the sections are, if there are several."""
    sections = [block for block in blocks if isinstance(block, Heading) and block.key]
    if sections:
        links = (f'<a href="#section-{each.key}">{write(each.text)}</a>' for each in sections)
        yield f'<nav aria-label="Sections">{"".join(links)}</nav>'


def _footer() -> str:
    return (
        f"<footer>Made by modelglass {html(__version__)}. The report itself is inside of this file.</footer>"
    )


def _shown(text: str, longest: int) -> str:
    """The text escaped; of one that is too long for any page both ends, and more where the mouse rests."""
    short = shortened(text, longest)
    if short == text:
        return html(text)
    return f'<span title="{html(shortened(text, _LONGEST_TOOLTIP))}">{html(short)}</span>'


def _sections(blocks: Sequence[Any], write: Escape) -> Iterator[str]:
    """The blocks, each heading of the upper levels with what follows it as a section."""
    is_open = False
    for index, block in enumerate(blocks):
        if isinstance(block, Heading) and (index == 0 or block.level <= _FIRST_LEVEL):
            yield "</section>" if is_open else ""
            yield f'<section id="section-{block.key}">' if block.key else "<section>"
            is_open = True
        if isinstance(block, Heading):
            yield from _heading(block, write, 1 if index == 0 else block.level)
        else:
            yield from _WRITERS[type(block)](block, write)
    yield "</section>" if is_open else ""


def _heading(block: Heading, write: Escape, level: int) -> Iterator[str]:
    about = f' <span class="about">{write(block.about)}</span>' if block.about else ""
    yield f'<h{level} class="{_tone(block.tone)}">{write(block.text)}{about}</h{level}>'
    for text, tone in block.below:
        yield f'<p class="{_tone(tone)}">{write(text)}</p>'


def _tone(tone: str | None) -> str:
    return f"t-{tone}" if tone else "t"


def _figures(block: Figures, write: Escape) -> Iterator[str]:
    items = (
        f'<li><span class="label">{write(each.label)}</span> <strong>{write(each.text)}</strong> '
        f'<span class="exact">{write(each.exact)}</span> <span class="known">{write(each.known)}</span></li>'
        for each in block.rows
    )
    yield f'<ul class="figures">{"".join(items)}</ul>'


def _facts(block: Facts, write: Escape) -> Iterator[str]:
    rows = (
        f"<dt{' class=sub' if label.startswith(' ') else ''}>{write(label.strip())}</dt>"
        f"<dd>{write(text.replace(UNBROKEN, ' '))}</dd>"
        for label, text in block.rows
    )
    yield f'<dl class="facts">{"".join(rows)}</dl>'


def _text(block: Text, write: Escape) -> Iterator[str]:
    lines = list(map(write, block.lines))
    tone = _tone(block.tone)
    if block.quoted:
        yield f'<blockquote class="{tone} lines">{"<br>".join(lines)}</blockquote>'
    elif block.together:
        yield f'<p class="{tone}">{"<br>".join(lines)}</p>'
    else:
        yield from (f'<p class="{tone}">{line}</p>' for line in lines)


def _items(block: Items, write: Escape) -> Iterator[str]:
    items = (f"<li><b>{write(name)}</b> {write(about)}</li>" for name, about in block.items)
    yield f'<ul class="items">{"".join(items)}</ul>'


def _notes(block: Notes, write: Escape) -> Iterator[str]:
    items = (
        f'<li class="s-{note.severity}"><span class="severity">{note.severity}</span> '
        f"<code>{write(note.code)}</code> {write(note_text(note))}</li>"
        for note in block.notes
    )
    yield f'<ul class="notes">{"".join(items)}</ul>'


def _listing(block: Listing, write: Escape) -> Iterator[str]:
    return _table(block.table, write)


def _table(block: Table, write: Escape) -> Iterator[str]:
    """A row for each row; those beyond what a page can hold are counted."""
    places = [i for i, column in enumerate(block.columns) if column.from_width <= block.document_width]
    columns = [block.columns[place] for place in places]
    heads = "".join(
        f'<th scope="col"{_class("n" if column.number else "")}>{write(column.head)}</th>'
        for column in columns
    )
    bars = list(_bars(block.weights[:_MOST_ROWS]))
    rows = []
    for index, row in enumerate(block.rows[:_MOST_ROWS]):
        depth = min(len(block.guides[index]), _DEEPEST) if block.guides else 0
        tone = block.tones[index] if block.tones else None
        cells = [
            _cell(columns[i], row[place], _look(columns[i], tone), depth, write)
            for i, place in enumerate(places)
        ]
        cells += [f'<td class="bar">{bars[index]}</td>'] if bars else []
        rows.append(f"<tr{_class(_tone(tone) if isinstance(tone, str) else '')}>{''.join(cells)}</tr>")
    caption = f"<caption>{write(block.title)}</caption>" if block.title else ""
    heads += "<td></td>" if bars else ""
    yield f'<div class="wide"><table>{caption}<thead><tr>{heads}</tr></thead>'
    yield "<tbody>"
    yield from rows
    yield "</tbody></table></div>"
    left_out = len(block.rows) - _MOST_ROWS
    if block.more or left_out > 0:
        yield f'<p class="more">{write(block.more or f"and {left_out:,} more rows")}</p>'


def _class(names: str) -> str:
    return f' class="{names}"' if names else ""


def _look(column: Column, tone: RowTone) -> str:
    """The classes of a cell: what it holds, and how it stands out."""
    own = tone.get(column.name, column.tone) if isinstance(tone, Mapping) else tone or column.tone
    return " ".join(filter(None, ["n" if column.number else "", f"t-{own}" if own else ""]))


def _is_long(text: str) -> bool:
    """Whether a word of it is so long that it must be broken, lest it push all others aside."""
    return len(text) > _LONGEST_WORD and max(map(len, text.split()), default=0) > _LONGEST_WORD


def _cell(column: Column, cell: Cell | str, look: str, depth: int, write: Escape) -> str:
    text, value = text_of(cell), value_of(cell)
    look = f"{look} long".lstrip() if _is_long(text) else look
    exact = f' data-v="{value}"' if isinstance(value, (int, float)) and not isinstance(value, bool) else ""
    if column.name == "name" and depth:
        return f'<th scope="row" class="d d{depth} {look}"{exact}>{write(text)}</th>'
    return f"<td{_class(look)}{exact}>{write(text)}</td>"


def _bars(weights: Sequence[int]) -> Iterator[str]:
    highest = max(weights, default=0) or 1
    for weight in weights:
        yield (
            '<svg class="share" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
            f'<rect width="{100 * weight / highest:.1f}" height="8"/></svg>'
        )


def _timeline(block: Timeline, write: Escape) -> Iterator[str]:
    from modelglass.renderers.pages import _chart

    yield f'<figure class="chart"><figcaption>{write(block.title)}</figcaption>'
    yield _chart.timeline(block.memory)
    yield "</figure>"


def _diagram(block: Diagram, write: Escape) -> Iterator[str]:
    from modelglass.renderers.flow import svg

    yield f'<figure class="drawing"><div class="wide">{svg.drawing(block.flow)}</div></figure>'


_WRITERS: dict[type, Callable[[Any, Escape], Iterator[str]]] = {
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
