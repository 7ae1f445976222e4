"""Texts from files without the names of people and the secrets that often lie in them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

HIDDEN = "[redacted]"

# A preview may end in the middle of a secret, so a shorter one counts before an ellipsis.
_CUT = r"(?=\.\.\.|…)"
_TOKENS = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    + "|".join(
        rf"{start}(?:{char}{{{least},}}|{char}{{4,}}{_CUT})"
        for start, char, least in (
            ("hf_", "[A-Za-z0-9]", 16),
            ("sk-", "[A-Za-z0-9_-]", 16),
            ("(?:AKIA|ASIA)", "[A-Z0-9]", 16),
            ("gh[pousr]_", "[A-Za-z0-9]", 16),
            ("github_pat_", "[A-Za-z0-9_]", 16),
            ("glpat-", "[A-Za-z0-9_-]", 16),
            ("xox[abprs]-", "[A-Za-z0-9-]", 16),
        )
    )
    + ")"
)
# A name may hold spaces where a separator follows; else it ends at the first of them.
_HOMES = re.compile(
    r"(?P<above>[\\/](?:home|Users|Documents and Settings)[\\/]+)"
    r"(?:[^\\/:*?\"'<>|\r\n]{1,64}(?=[\\/])|[^\\/:*?\"'<>|,;()\s]+)"
)
_LOGINS = re.compile(r"(?P<above>://)[^\s/@:]{1,256}:[^\s/@]{1,256}(?=@)")

Noun = TypeVar("Noun")


def redact(text: str) -> str:
    """The text with tokens, passwords in addresses and the owners of home folders replaced.

    What remains may still be private: only well-known forms are recognised.
    """
    text = _TOKENS.sub(HIDDEN, text)
    for pattern in (_HOMES, _LOGINS):
        text = pattern.sub(rf"\g<above>{HIDDEN}", text)
    return text


def redact_noun(noun: Noun) -> Noun:
    """The same noun, every text in it redacted."""
    changed: Noun = _redact(noun)
    return changed


def _redact(value: Any) -> Any:
    if isinstance(value, str):
        return redact(value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{item.name: _redact(getattr(value, item.name)) for item in fields(value)})
    if isinstance(value, Mapping):
        return _redact_mapping(value)
    if isinstance(value, (tuple, list)):
        return tuple(_redact(item) for item in value)
    return value


def _redact_mapping(mapping: Mapping[Any, Any]) -> dict[Any, Any]:
    made: dict[Any, Any] = {}
    for key, item in mapping.items():
        name = _redact(key)
        while name in made:  # two keys that differed only in what is hidden now
            name = f"{name}'"
        made[name] = _redact(item)
    return made
