"""Text that came from a model, made harmless for the place it is shown in.

A text is escaped for its medium where it is put in (`printable`, `markdown`, `html`, `csv_cell`), and what is
made of texts once more as a whole (`unspoken`), since a line may begin anywhere in a text that is wrapped.
"""

from __future__ import annotations

import re
import unicodedata

# Control and format characters, surrogates, private use and what is not assigned: they move the cursor, hide
# text, or are none that XML may hold.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
# Letters and marks without a shape, and selectors of variants, in which whole texts have been hidden.
_INVISIBLE = frozenset(
    [*"\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"]
    + [
        chr(code)
        for each in ((0x180B, 0x1810), (0xFE00, 0xFE10), (0xE0100, 0xE01F0))
        for code in range(*each)
    ]
)
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
_CELL = 32_000  # characters; a spreadsheet spills what is longer into other cells
# Systems that build software obey lines of a log that begin with ::error, travis_fold: or section_start:,
# after blanks, or have ##vso[, ##[ or ##teamcity[ anywhere. (A plain start of a pattern is found fast.)
_LINE = re.compile(r"(\n(?:[^\S\n]|\x1b\[[\d;]*m)*+)(?=::|travis_(?:fold|time):|section_(?:start|end):)(.)")
_MARK = re.compile(r"##(?=\w*\[)")
# Markdown makes lists, rules and headings of texts that begin so, and a log commands.
_BLOCK = re.compile(r"^\s*(?=[-+](?:\s|$)|--|[=:])|^\s*\d{1,9}(?=[.)](?:\s|$))")


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


def unspoken(document: str) -> str:
    """The document without anything that a system which keeps its lines in a log would take for a command.

    What is written instead is the same text where JSON is read, so that any document may be given.
    """
    marked = _MARK.sub(r"#\\u0023", document).replace("\x7f", r"\u007f")  # which JSON leaves as it is
    return _LINE.sub(lambda found: f"{found[1]}\\u{ord(found[2]):04x}", f"\n{marked}")[1:]


def told(*lines: str) -> str:
    """Lines of a message, which may quote what a file holds, for a terminal or a log."""
    return unspoken("\n".join(map(printable, lines)))


def markdown(text: str) -> str:
    """The text as it should appear in Markdown: a cell of a table, a heading, a paragraph."""
    escaped = printable(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    for char in "\\|`*_[]#~$":
        escaped = escaped.replace(char, f"\\{char}")
    # Pages make links of addresses and numbers, and call people by their names, some after they have read all
    # codes: what has no width keeps such words apart.
    escaped = re.sub(r"#(?=\d)", "#&#8203;", escaped)
    for mark, code in {"://": "&#58;&#8203;//", "www.": "www&#46;&#8203;", "@": "&#64;&#8203;"}.items():
        escaped = escaped.replace(mark, code)
    return _not_a_block(escaped)


def _not_a_block(text: str) -> str:
    """The text, which may be the first of its line, as words."""
    words = _BLOCK.sub(lambda found: f"{found[0]}\\", text)
    return f"&#32;{words[1:]}" if words.startswith("    ") else words  # so many blanks begin a block of code


def html(text: str) -> str:
    """The text as it should appear in a page: in an element, or in an attribute between double quotes."""
    escaped = printable(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return escaped.replace('"', "&quot;").replace("##", "#&#35;")  # see `unspoken`


def csv_cell(text: str) -> str:
    """The text as it should appear in a spreadsheet, where it must not become a formula."""
    shown = printable(text[:_CELL])
    if len(text) > _CELL or len(shown) > _CELL:
        shown = f"{shown[: _CELL - 1]}…"
    return f"'{shown}" if text.startswith(_FORMULA) or shown.lstrip().startswith(_FORMULA) else shown


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


def shortened(text: str, width: int) -> str:
    """The text with its middle left out where it is too long: both ends of a path tell more."""
    if cell_width(text) <= width:
        return text
    ahead = fitted(text, (width + 1) // 2)  # with the ellipsis
    behind = fitted(text[::-1], width - cell_width(ahead) + 1)[::-1]
    return ahead + behind[1:]
