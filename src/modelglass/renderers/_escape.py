"""Text that came from a model, made harmless for the place it is shown in."""

from __future__ import annotations

import unicodedata

# Control and format characters, surrogates and private use: they move the cursor or hide text.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
_INVISIBLE = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"
)  # letters and marks without a shape
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
_CELL = 32_000  # characters; a spreadsheet spills what is longer into other cells


def printable(text: str) -> str:
    """The text with everything that a terminal would obey or hide written out as an escape."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_visible(char) for char in text)


def _visible(char: str) -> str:
    if unicodedata.category(char) not in _HIDDEN and char not in _INVISIBLE:
        return char
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def markdown(text: str) -> str:
    """The text as it should appear in a Markdown table cell."""
    escaped = printable(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    for char in "\\|`*_[]#~":
        escaped = escaped.replace(char, f"\\{char}")
    # Written out, since pages make links of bare addresses and call people by their names.
    return escaped.replace("://", "&#58;//").replace("www.", "www&#46;").replace("@", "&#64;")


def csv_cell(text: str) -> str:
    """The text as it should appear in a spreadsheet, where it must not become a formula."""
    shown = printable(text[:_CELL])
    if len(text) > _CELL or len(shown) > _CELL:
        shown = f"{shown[: _CELL - 1]}…"
    return f"'{shown}" if text.startswith(_FORMULA) else shown


def cell_width(text: str) -> int:
    """How many terminal cells the text takes."""
    if text.isascii():
        return len(text)
    return sum(_char_width(char) for char in text)


def _char_width(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def fitted(text: str, width: int) -> str:
    """The text cut to `width` cells, with an ellipsis where something was lost."""
    if cell_width(text) <= width:
        return text
    kept, used = "", 0
    for char in text:
        used += _char_width(char)
        if used > width - 1:
            break
        kept += char
    return kept + "…" if width > 0 else ""
