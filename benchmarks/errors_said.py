"""What was raised, in one line that is the same in every run and on every machine."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST_SAID = 200
_VARYING = re.compile(r"0x[0-9a-f]{6,}|\b\d{12,}\b")  # addresses
_MACHINE = "|".join(re.escape(str(place)) for place in (ROOT, tempfile.gettempdir()))
_PLACES = re.compile(rf"({_MACHINE})[^\s'\"]*")


def said(error: BaseException, most: int = MOST_SAID) -> str:
    """An exception: its type, and what it says, without addresses and without paths of this machine."""
    text = one_line(str(getattr(error, "problem", error)), most)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def one_line(text: str, most: int = MOST_SAID) -> str:
    text = _VARYING.sub("…", _PLACES.sub("…", " ".join(text.split())))
    return text if len(text) <= most else text[: most - 1] + "…"
