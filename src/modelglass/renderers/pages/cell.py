"""A page sized for the cell of a notebook: a piece of HTML without a script, which saved notebooks can keep.

A tree of layers folds by `<details>`, and drawings are pictures, so that their styles stay inside.
Where a viewer takes styles away, as on GitHub, what is left still reads as lines and tables.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

from modelglass.page import Cell, Column, Diagram, Page, Table, text_of
from modelglass.renderers._escape import html as escape
from modelglass.renderers.pages import html
from modelglass.renderers.pages.html import Escape, Writers

_STYLE = Path(__file__).parent / "web" / "cell.css"
_OPEN = 2  # levels of a tree that are unfolded at first
_DEEPEST = 6  # levels that are indented
_MOST_ROWS = 400


def render(page: Page) -> str:
    """The page as a piece of HTML."""
    write = html.escape_up_to(page.longest)
    body = "\n".join(html.sections(page.blocks, write, _WRITERS))
    return f'<div class="modelglass-cell"><style>{_style()}</style>\n{body}\n</div>'


@cache
def _style() -> str:
    return _STYLE.read_text(encoding="utf-8")


def _table(block: Table, write: Escape) -> Iterator[str]:
    """A tree is unfolded row by row; other tables are as on the page."""
    if not block.guides:
        yield from html.WRITERS[Table](block, write)
        return
    places = [i for i, column in enumerate(block.columns) if column.from_width <= block.document_width]
    columns = [block.columns[place] for place in places]
    rows = [[row[place] for place in places] for row in block.rows[:_MOST_ROWS]]
    depths = [len(guides) for guides in block.guides[:_MOST_ROWS]]
    yield '<div class="modelglass-tree">'
    heads = ((_look(column), write(column.head)) for column in columns)
    yield f'<div class="row head">{"".join(f"<span{look}>{text}</span> " for look, text in heads)}</div>'
    for row, (depth, following) in zip(rows, pairwise([*depths, 0]), strict=True):
        line = _row(columns, row, depth, write)
        if following > depth:
            yield f"<details{' open' if depth < _OPEN else ''}><summary class=row>{line}</summary>"
        else:
            yield f'<div class="row">{line}</div>'
        yield "</details>" * max(0, depth - following)
    yield "</div>"
    if block.more or len(block.rows) > _MOST_ROWS:
        yield f'<p class="more">{write(block.more or f"and {len(block.rows) - _MOST_ROWS:,} more rows")}</p>'


def _row(columns: list[Column], row: list[Cell | str], depth: int, write: Escape) -> str:
    cells = []
    for column, cell in zip(columns, row, strict=True):
        indent = f' class="d{min(depth, _DEEPEST)}"' if column is columns[0] and depth else _look(column)
        cells.append(f"<span{indent}>{write(text_of(cell))}</span> ")
    return "".join(cells)


def _look(column: Column) -> str:
    return ' class="n"' if column.number else ""


def _diagram(block: Diagram, write: Escape) -> Iterator[str]:
    from modelglass.renderers.flow import svg

    picture = b64encode(svg.render(block.flow).encode()).decode("ascii")
    name = escape(f"the data flow of {block.flow.name}")
    yield f'<img alt="{name}" src="data:image/svg+xml;base64,{picture}">'


_WRITERS: Writers = {**html.WRITERS, Table: _table, Diagram: _diagram}
