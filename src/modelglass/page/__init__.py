"""What a command says, as data that renderers write as text, Markdown or CSV.

`pages` makes the page of each command, of `sections`. Nothing here knows a terminal or the marks of Markdown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from modelglass.errors import UsageError

if TYPE_CHECKING:
    from modelglass.report import Flow, Memory, Note

# Named tuples: making a data class takes a millisecond, and the listing of a file starts at once.

Tone: TypeAlias = Literal["strong", "quiet", "accent", "warning", "alarm"]  # how a text stands out
RowTone: TypeAlias = Tone | Mapping[str, Tone | None] | None  # of a row, or of its cells by column
DATA_ONLY = 1 << 20  # the width of a line from which columns are shown that are for data
UNBROKEN = "\N{NO-BREAK SPACE}"  # between words that stay on one line


class Cell(NamedTuple):
    """A text for people, and the figure or text that it stands for."""

    text: str
    value: object
    brief: str = ""  # the text where a line is too short for the other


class Column(NamedTuple):
    """One column of a table. `name` is for data, `head` for people."""

    name: str
    head: str
    number: bool = False
    least: int | None = None  # cells that it may be cut to; None: it stays whole
    cut: Literal["end", "middle", "wrapped"] = "end"
    from_width: int = 0  # of a line: the column is shown from there on
    tone: Tone | None = None


class Table(NamedTuple):
    """Rows of cells: of plain texts where text and value are the same."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell | str]]
    title: str = ""
    more: str = ""  # a line about rows that are left out
    tones: Sequence[RowTone] = ()  # of each row; without any, the columns' own
    guides: Sequence[Sequence[bool]] = ()  # of a tree: for each level above a row, whether more follow there
    weights: Sequence[int] = ()  # of each row, drawn as bars where there is room
    spare: Sequence[str] = ()  # columns that are left out, in this order, where a line is too short
    document_width: int = DATA_ONLY - 1  # of the lines of a document, which has none of its own
    whole: bool = False  # a few rows in an order of their own


class Heading(NamedTuple):
    """The title of the page or of a part. `of_document`: a terminal does without it."""

    text: str
    about: str = ""  # in a few words, what it is a title of
    below: Sequence[tuple[str, Tone | None]] = ()  # lines that belong to it
    tone: Tone = "strong"
    level: int = 3
    cut: bool = False  # to one line
    of_document: bool = False
    key: str = ""  # of a section: where links to it lead


class Figure(NamedTuple):
    """A figure that people ask for first: short, in full, and how it is known."""

    label: str
    text: str
    exact: str
    known: str


class Figures(NamedTuple):
    """The few figures that matter most."""

    rows: Sequence[Figure]


class Facts(NamedTuple):
    """Labels and texts in reading order. A label that begins with blanks belongs to the one above it."""

    rows: Sequence[tuple[str, str]]
    head: str = "figure"
    most: int | None = None  # lines of one fact


class Text(NamedTuple):
    """Paragraphs, or lines of one paragraph where they are `together`."""

    lines: Sequence[str]
    tone: Tone | None = None
    together: bool = False
    quoted: bool = False
    cut: bool = False  # to one line each
    broken: bool = False  # words that are too long for a line go on in the next one
    at_end: bool = False  # of a terminal, where the end is what people see


class Listing(NamedTuple):
    """A table of which a terminal shows a sentence for each row."""

    sentences: Sequence[str]
    table: Table


class Items(NamedTuple):
    """Names with a few words about each."""

    items: Sequence[tuple[str, str]]


class Notes(NamedTuple):
    """What a reader must know about the figures."""

    notes: Sequence[Note]


class Timeline(NamedTuple):
    """A chart of what a run holds in memory."""

    title: str
    memory: Memory


class Diagram(NamedTuple):
    """A drawing of a flow, in the words of a language; None: English."""

    flow: Flow
    words: Mapping[str, str] | None = None


Block: TypeAlias = Heading | Figures | Facts | Text | Table | Listing | Items | Notes | Timeline | Diagram


class Page(NamedTuple):
    """Blocks in reading order. `longest`: characters of one text that comes from a hostile file."""

    blocks: Sequence[Block]
    longest: int | None = None


def ending(remarks: Iterable[str], notes: Sequence[Note]) -> Iterator[Block]:
    """What comes after the figures, where there is something."""
    lines = list(remarks)
    if lines:
        yield Text(lines, tone="quiet")
    if notes:
        yield Notes(notes)


def text_of(cell: Cell | str, *, brief: bool = False) -> str:
    """What people read in the cell."""
    if isinstance(cell, str):
        return cell
    return (brief and cell.brief) or cell.text


def value_of(cell: Cell | str) -> object:
    """What the cell stands for."""
    return cell if isinstance(cell, str) else cell.value


def parse_columns(names: Sequence[str] | str, known: Sequence[str]) -> list[str]:
    """The names, given one by one or by commas, each checked to be a column."""
    chosen = names.replace(" ", "").split(",") if isinstance(names, str) else list(names)
    for name in chosen:
        if name not in known:
            raise UsageError(f"there is no column {name!r}", hint="columns are " + ", ".join(known))
    return chosen


def sort_page(page: Page, sort: str | None, top: int | None) -> Page:
    """The page with the first rows of its tables, by a column of one of them."""
    tables = [each for each in page.blocks if isinstance(each, Table) and not each.whole]
    names = dict.fromkeys(column.name for table in tables for column in table.columns)
    if sort is not None and tables:
        parse_columns([sort], list(names))
    blocks = [
        first_rows(each, sort, top) if isinstance(each, Table) and not each.whole else each
        for each in page.blocks
    ]
    return page._replace(blocks=blocks) if sort or top else page


def first_rows(table: Table, sort: str | None, top: int | None, *, ascending: bool = False) -> Table:
    """The first rows by a column: the largest figure first, texts by the alphabet, what is unknown last."""
    order = list(range(len(table.rows)))
    places = [place for place, column in enumerate(table.columns) if column.name == sort]
    for place in places:
        values = [value_of(row[place]) for row in table.rows]
        order.sort(key=lambda index: sort_key(values[index], ascending=ascending))
        table = table._replace(guides=())  # a tree has an order of its own
    chosen = order[:top]
    return table._replace(
        rows=[table.rows[index] for index in chosen],
        tones=[table.tones[index] for index in chosen if table.tones],
        guides=[table.guides[index] for index in chosen if table.guides],
        weights=[table.weights[index] for index in chosen if table.weights],
        more=f"{len(chosen):,} of {len(order):,} rows" if len(chosen) < len(order) else table.more,
    )


def sort_key(value: Any, *, ascending: bool = False) -> tuple[bool, Any]:
    """The place of a value among others: large figures first, texts by the alphabet, unknown values last."""
    if isinstance(value, str):
        return False, value
    return value is None, (value or 0) * (1 if ascending else -1)
