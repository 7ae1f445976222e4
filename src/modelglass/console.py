"""Texts for a console whose encoding lacks characters of theirs, which become the ASCII most like them."""

from __future__ import annotations

from codecs import register_error
from typing import Any, TextIO
from unicodedata import east_asian_width

AS_ASCII = "modelglass.as_ascii"  # what `errors` of a stream may be once this module is imported
_LIKE = {
    **dict.fromkeys("─╴╶–—−‐", "-"),
    **dict.fromkeys("│╵┤├┼┴┬╰╯╭╮└┘┌┐", "|"),
    **dict(zip("├└┴┼┬╰╭", "|`+++`,", strict=True)),
    **dict(zip(" ▁▂▃▄▅▆▇█", " .:-=+*%#", strict=True)),
    **dict(zip("▏▎▍▌▋▊▉", ".:-=+*%", strict=True)),
    **dict(zip("░▒▼●○◆·×…", ".+v*o*.x~", strict=True)),
    **dict(zip("⌊⌋⌈⌉‹›²", "[][]<>2", strict=True)),
    "≥": ">=",
    "≤": "<=",
    "→": "->",
    "←": "<-",
    "✓": "ok",
    "✗": "x",
    "\ufe0f": "",
}


def _stand_in(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_like, error.object[error.start : error.end])), error.end


def _like(char: str) -> str:
    """As wide as the character where nothing is like it, so that columns stay columns."""
    return _LIKE.get(char) or ("" if char in _LIKE else "?" * (2 if east_asian_width(char) in "WF" else 1))


register_error(AS_ASCII, _stand_in)


def never_fail(stream: TextIO) -> None:
    """Let a stream write any text, whatever its encoding."""
    reconfigure: Any = getattr(stream, "reconfigure", None)  # a stream that was put in place may have none
    if reconfigure is not None:
        reconfigure(errors=AS_ASCII)


def encodable(text: str, stream: TextIO) -> str:
    """The text as the stream can write it."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, AS_ASCII).decode(encoding)
