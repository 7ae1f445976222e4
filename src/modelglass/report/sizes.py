"""Amounts of memory as users write them."""

from __future__ import annotations

import re
from fractions import Fraction

from modelglass.errors import UsageError

_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([a-z]*)", re.ASCII | re.IGNORECASE)
_SEVERAL = re.compile(r"(\d+) ?[x×*] ?(.+)", re.ASCII | re.IGNORECASE)
_TOKENS = re.compile(r"(\d{1,15}) ?([km]?)", re.ASCII | re.IGNORECASE)
MOST_TOKENS = 1 << 40
_UNITS = {"": 1, "b": 1} | {
    f"{letter}{ending}": base**power
    for power, letter in enumerate("kmgt", start=1)
    for ending, base in (("b", 1000), ("ib", 1024))
}


def parse_nbytes(text: str) -> int:
    """Bytes from a number and a unit; a letter alone could mean either of two units and is refused.

    >>> parse_nbytes("1.5GiB")
    1610612736
    """
    match = _SIZE.fullmatch(text.strip())
    unit = None if match is None else _UNITS.get(match[2].lower())
    if match is None or unit is None:
        raise UsageError(f"{text!r} is not a valid size", hint=_right_spelling(text.strip()))
    nbytes = int(Fraction(match[1]) * unit)
    if nbytes < 1:
        raise UsageError(f"{text!r}: the size must be at least 1 byte", hint="give a size such as 24GiB")
    return nbytes


def parse_tokens(text: str) -> int:
    """A number of tokens, also by 1,024 as lengths of contexts are told.

    >>> parse_tokens("8k")
    8192
    """
    match = _TOKENS.fullmatch(text.strip().replace(",", "").replace("_", ""))
    found = 0 if match is None else int(match[1]) * {"": 1, "k": 1024, "m": 1 << 20}[match[2].lower()]
    if not 0 < found <= MOST_TOKENS:
        raise UsageError(f"{text!r} is not a number of tokens", hint="write 8192, or 8k for 8 × 1,024")
    return found


def device_nbytes(memory: int | str, name: str = "device_memory") -> int:
    """The memory of a device in bytes, given as such or as "24GiB"."""
    if isinstance(memory, str):
        return parse_nbytes(memory)
    if type(memory) is not int or memory < 1:
        raise UsageError(
            f'{name} must be a positive integer or a size such as "24GiB", got {memory!r}',
            hint="give bytes: 24 * 2**30",
        )
    return memory


def _right_spelling(text: str) -> str:
    several = _SEVERAL.fullmatch(text)
    if several is not None:
        count, each = several.groups()
        return (
            f"give the memory of one device, {each}, and the number of devices by itself: "
            f"--devices {count} with --sharding, or --tensor-parallel {count} for vLLM"
        )
    match = _SIZE.fullmatch(text)
    if match is not None and match[2].lower() in ("k", "m", "g", "t"):
        letter = match[2].upper()
        return f"write {match[1]}{letter}iB (powers of 1024) or {match[1]}{letter}B (powers of 1000)"
    return "write 24GiB, 24GB, 512MiB or a number of bytes"
