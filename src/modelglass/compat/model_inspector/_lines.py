"""What the sections share: headings, aligned rows, sizes."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil, log10
from typing import TYPE_CHECKING, NamedTuple

from modelglass.page.sections.checkpoint import plain
from modelglass.renderers._escape import cell_width, fitted, printable
from modelglass.renderers._terminal import wrapped

if TYPE_CHECKING:
    from modelglass.report import Json

INDENT = "   "
_RULE = 80  # cells of the line below a heading
_MIB = 2**20
_LARGER = ("GiB", "TiB", "PiB")
_LEAST_VALUE = 20  # cells that a value has however long its label is
_LONGEST_LABEL = 56


def heading(text: str) -> str:
    """A section's heading with the line below it."""
    return f"{text}\n{'=' * _RULE}"


def rows(pairs: Iterable[tuple[str, str]], width: int) -> str:
    """Labels and texts, aligned; what is too long is cut."""
    listed = [(fitted(printable(label), _LONGEST_LABEL), printable(text)) for label, text in pairs]
    label_width = max((cell_width(label) for label, _ in listed), default=0) + 1
    room = max(_LEAST_VALUE, width - len(INDENT) - label_width - 1)
    return "\n".join(
        f"{INDENT}{padded(f'{label}:', label_width)} {fitted(text, room)}".rstrip() for label, text in listed
    )


def sentence(text: str, width: int) -> str:
    """A text of its own, on as many lines as it takes."""
    return "\n".join(INDENT + line for line in wrapped(text, max(40, width - len(INDENT))))


def padded(text: str, width: int, *, right: bool = False) -> str:
    """The text with blanks behind it, or before it, until it is so many cells wide."""
    blanks = " " * (width - cell_width(text))
    return blanks + text if right else text + blanks


def mebibytes(nbytes: int, digits: int = 3) -> str:
    """Bytes in MiB whatever their number, so that they compare; from 1,024 MiB on in a larger unit."""
    value, unit = nbytes / _MIB, "MiB"
    for larger in _LARGER:
        if abs(value) >= 1024:
            value, unit = value / 1024, larger
    if 0 < abs(value) < 1:  # so that as many digits count however small it is
        digits = max(digits, ceil(-log10(abs(value))) + digits - 1)
    return f"{value:.{digits}f} {unit}"


class Figure(NamedTuple):
    """A size under its label; None: nobody knows it. `least`: it has a part that nobody knows."""

    label: str
    nbytes: int | None
    note: str = ""
    least: bool = False


def figures(listed: Iterable[Figure], unknown: str) -> str:
    """Labels with sizes and bytes, aligned so that they can be added up, each with a note."""
    shown = []
    for label, nbytes, note, least in listed:
        size = unknown if nbytes is None else f"{'≥ ' if least else ''}{mebibytes(nbytes)}"
        shown.append((f"{printable(label)}:", size, "" if nbytes is None else f"{nbytes:,} B", note))
    wide = [max(cell_width(row[place]) for row in shown) for place in range(3)]
    return "\n".join(
        f"{INDENT}{padded(label, wide[0])}  {padded(size, wide[1], right=True)}  "
        f"{padded(exact, wide[2], right=True)}  {note}".rstrip()
        for label, size, exact, note in shown
    )


def value_text(value: Json) -> str:
    """A setting as people write it: lists of numbers as one thing, floats as short as they are."""
    if isinstance(value, list) and value and all(type(item) in (int, float) for item in value):
        return f"({', '.join(map(_number, value))})"
    return _number(value) if type(value) is float else plain(value)


def _number(number: float) -> str:
    return repr(number) if abs(number) < 1e15 else f"{number:g}"
