"""JSON that can be read in one way only: what two readers might take differently is an error.

The standard library parses. Around it stand checks over the raw bytes, in linear time and without recursion,
for what it would accept, or would stop at with an error that says nothing about the file.
"""

from __future__ import annotations

import json
import re
import reprlib
from collections.abc import Iterator
from typing import NoReturn

from modelglass.formats.limits import Limits
from modelglass.formats.source import Source
from modelglass.report import Json

DIGITS = 40  # of an integer; tokenizers without a longest text say 10^30, which is written with 31

_WINDOW = 1 << 16
_NO_STRUCTURE = bytes(set(range(256)) - set(b'"[]{}'))
_ANY_DIGIT = bytes.maketrans(b"123456789E", b"000000000e")
_ODD_NUMBERS = (b"0" * (DIGITS + 1), b"e000", b"e+000")  # after that translation
_ODD_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_ESCAPE = re.compile(rb"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]|u[dD]([89a-fA-F])|.)", re.DOTALL)
# A string without an end runs to the end of the text: the pattern must not try again at each of its quotes.
_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?+|[\[\]{},:]|[^\s"\[\]{},:]++', re.DOTALL)


class _OddError(Exception):
    """What a hook of the parser refuses; where it stands is looked for afterwards."""

    def __init__(self, code: str, problem: str, token: str) -> None:
        super().__init__(problem)
        self.code, self.problem, self.token = code, problem, token


def document(source: Source, limits: Limits, *, lenient: bool = False) -> Json:
    """All of a source, as one JSON document; a lenient reading takes NaN and infinity, too."""
    if source.nbytes > limits.json_nbytes:
        raise source.over("json_nbytes", limits.json_nbytes, offset=0)
    return loads(source.read(0, source.nbytes, "the document"), source, limits, lenient=lenient)


def loads(data: bytes, source: Source, limits: Limits, *, offset: int = 0, lenient: bool = False) -> Json:
    """The value that `data` spells; `offset` is where `data` starts in `source`, for error messages."""
    limits.take("json_nbytes", len(data), source, offset=offset)
    text = _text(data, source, offset)
    _check_depth(data, source, limits.json_depth, offset)
    _check_surrogates(data, source, offset)
    digits = data.translate(_ANY_DIGIT)
    odd = any(number in digits for number in _ODD_NUMBERS)
    try:
        return json.loads(
            text,
            object_pairs_hook=_without_duplicates,
            parse_constant=str if lenient else _constant,
            parse_int=_integer if odd else None,
            parse_float=_float if odd else None,
        )
    except json.JSONDecodeError as cause:
        at = offset + len(text[: cause.pos].encode())
        raise source.corrupt(f"this is not JSON: {cause.msg}", code="json.syntax", offset=at) from cause
    except _OddError as odd_one:
        at = offset + len(text[: _place(text, odd_one)].encode())
        raise source.corrupt(odd_one.problem, code=odd_one.code, offset=at) from None
    except RecursionError as cause:  # only a raised limit lets it come this far
        raise source.corrupt("its JSON is nested too deeply", code="json.depth", offset=offset) from cause


def _text(data: bytes, source: Source, offset: int) -> str:
    if data.startswith(b"\xef\xbb\xbf"):
        raise source.corrupt("its JSON starts with a byte order mark", code="json.encoding", offset=offset)
    try:
        return data.decode()
    except UnicodeDecodeError as cause:
        raise source.corrupt(
            f"its JSON is not UTF-8: {cause.reason}", code="json.encoding", offset=offset + cause.start
        ) from cause


def _check_depth(data: bytes, source: Source, limit: int, offset: int) -> None:
    """Nothing is nested deeper than the limit, as far as a parser could follow it."""
    depth, in_string, start = 0, False, 0
    while start < len(data):
        window = data[start : start + _WINDOW]
        if (len(window) - len(window.rstrip(b"\\"))) % 2 and start + _WINDOW < len(data):
            window += data[start + _WINDOW : start + _WINDOW + 1]  # an escape stays in one piece
        outside, ends_in_string = _structure(window, in_string)
        closed, opened, height = _folded(outside)
        if depth + max(height, opened + height) > limit:
            at = _too_deep(window, in_string, depth, limit)
            if at is not None:
                raise source.corrupt(
                    f"its JSON is nested more than {limit:,} levels deep (limit json_depth)",
                    code="json.depth",
                    offset=offset + start + at,
                )
        depth, in_string = depth - closed + opened, ends_in_string
        start += len(window)


def _structure(window: bytes, in_string: bool) -> tuple[bytes, bool]:
    """The brackets outside of strings, and whether the window ends inside of one."""
    if b"\\" in window:
        window = window.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Two quotes with nothing between them change nothing, whichever of them opens.
    kept = window.translate(None, _NO_STRUCTURE).replace(b'""', b"")
    parts = kept.split(b'"')
    return b"".join(parts[in_string::2]), in_string ^ (len(parts) % 2 == 0)


def _folded(brackets: bytes) -> tuple[int, int, int]:
    """How many brackets close what came before, how many stay open, and the height between them."""
    height, before = 0, -1
    while len(brackets) != before and brackets:
        before = len(brackets)
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
        height += 1
        if height > 256:
            break  # the exact count decides
    opened = brackets.count(b"[") + brackets.count(b"{")
    return len(brackets) - opened, opened, height


def _too_deep(window: bytes, in_string: bool, depth: int, limit: int) -> int | None:
    """The position at which the depth exceeds the limit, counted bracket by bracket."""
    escaped = False
    for at, byte in enumerate(window):
        if in_string:
            if escaped:
                escaped = False
            elif byte == 0x5C:
                escaped = True
            elif byte == 0x22:
                in_string = False
        elif byte == 0x22:
            in_string = True
        elif byte in b"[{":
            depth += 1
            if depth > limit:
                return at
        elif byte in b"]}":
            depth -= 1
    return None


def _check_surrogates(data: bytes, source: Source, offset: int) -> None:
    if b"\\u" not in data or _ODD_SURROGATE.search(data) is None:
        return
    for match in _ESCAPE.finditer(data):
        if match[1] is not None:
            raise source.corrupt(
                f"its JSON holds half of a surrogate pair, {data[match.start() : match.start() + 6]!r}",
                code="json.encoding",
                offset=offset + match.start(),
            )


def _without_duplicates(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    made = dict(pairs)
    if len(made) != len(pairs):
        _refuse_duplicate(pairs)
    return made


def _refuse_duplicate(pairs: list[tuple[str, Json]]) -> NoReturn:
    seen: dict[str, Json] = {}
    for key, value in pairs:
        if key in seen:
            raise _OddError(
                "json.duplicate-key",
                f"duplicate key {key[:200]!r}: first {reprlib.repr(seen[key])}, then {reprlib.repr(value)}",
                key,
            )
        seen[key] = value
    raise AssertionError("there is a duplicate key")


def _constant(token: str) -> NoReturn:
    raise _OddError("json.number", f"{token} is not a number in JSON", token)


def _integer(token: str) -> int:
    digits = len(token.lstrip("-"))
    if digits > DIGITS:
        raise _OddError(
            "json.number", f"an integer of {digits:,} digits; more than {DIGITS} are not read", token
        )
    return int(token)


def _float(token: str) -> float:
    value = float(token)
    if value in (float("inf"), float("-inf")):
        raise _OddError("json.number", f"the number {token[:40]} is too large for 64 bits", token)
    return value


def _place(text: str, odd: _OddError) -> int:
    """Where what was refused stands: the token itself, or the second of two equal keys of an object."""
    if odd.code != "json.duplicate-key":
        return next((match.start() for match in _TOKEN.finditer(text) if match[0].startswith(odd.token)), 0)
    seen: list[bool] = []  # for each object that is open: did the key come already?
    for token, at in _keys_and_braces(text):
        if token == "{":
            seen.append(False)
        elif token == "}":
            seen.pop()
        elif json.loads(token) == odd.token:
            if seen[-1]:
                return at
            seen[-1] = True
    return 0


def _keys_and_braces(text: str) -> Iterator[tuple[str, int]]:
    """Braces, and strings that a colon follows."""
    string, at = "", 0
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token == ":":
            yield string, at
        elif token in "{}":
            yield token, match.start()
        elif token.startswith('"'):
            string, at = token, match.start()
