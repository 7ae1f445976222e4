"""How wide a text is in a picture, before any browser has drawn it."""

from __future__ import annotations

import unicodedata
from itertools import accumulate, takewhile

# Parts of the letters' height, in the sans-serif fonts that systems have: those of Helvetica's widths, and a
# little more for the fonts that are wider.
_NARROW, _THIN, _PLAIN, _CAPITAL, _BROAD, _FULL = 0.26, 0.36, 0.6, 0.74, 0.96, 1.1
_BY_CHARACTER = {
    **dict.fromkeys("ijl|'", _NARROW),
    **dict.fromkeys(' .,:;!()[]{}/\\`"frtI-·', _THIN),
    **dict.fromkeys("mwMW@%…→×", _BROAD),
    **dict.fromkeys("ABCDEFGHJKLNOPQRSTUVXYZ&", _CAPITAL),
}
_BOLD = 1.08


def text_width(text: str, size: float, *, bold: bool = False) -> float:
    """The most that the text should take at that font size."""
    return sum(map(_part, text)) * size * (_BOLD if bold else 1.0)


def shortened(text: str, room: float, size: float, *, bold: bool = False) -> str:
    """The text cut to that room, with an ellipsis where something was lost."""
    if text_width(text, size, bold=bold) <= room:
        return text
    left = room - text_width("…", size, bold=bold)
    ends = accumulate(text_width(char, size, bold=bold) for char in text)
    return f"{text[: sum(1 for _ in takewhile(lambda end: end <= left, ends))]}…"


def _part(char: str) -> float:
    if char in _BY_CHARACTER:
        return _BY_CHARACTER[char]
    if char.isascii() or unicodedata.category(char) in ("Ll", "Lm"):
        return _PLAIN
    if unicodedata.combining(char):
        return 0.0
    return _FULL + 0.4 * (ord(char) > 0xFFFF)
